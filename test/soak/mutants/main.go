// Command mutants asks whether the soak would notice: it plants one mistake at a time in the judgement, by an overlay
// of the sources that leaves the tree alone, and runs the soak against it.
//
//	mutants [--pairs N] [--seed S] [--only TEXT]
//
// It is run in the root of the tree. Exit codes: 0 every mistake was noticed, 1 one was not, 64 usage, or a mistake
// that cannot be planted any more because its line has changed.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const (
	exitSurvived = 1
	exitUsage    = 64
)

// experiment is how each mutant is tried.
type experiment struct {
	folder string
	pairs  uint64
	seed   uint64
	known  map[uint64]bool // pairs that fail without any mutant
}

func main() {
	survived, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(exitUsage)
	}
	if survived > 0 {
		fmt.Fprintf(os.Stderr, "mutants: %d survived\n", survived)
		os.Exit(exitSurvived)
	}
}

func run(args []string) (survived int, err error) {
	e := experiment{known: map[uint64]bool{}}
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.Uint64Var(&e.pairs, "pairs", 100_000, "pairs within which a mutant must be noticed")
	flags.Uint64Var(&e.seed, "seed", 1, "seed of all chance")
	only := flags.String("only", "", "try the mutants alone whose name contains `TEXT`")
	if err := flags.Parse(args); err != nil {
		return 0, fmt.Errorf("read arguments: %w", err)
	}
	if e.folder, err = os.MkdirTemp("", "bookend-mutants-"); err != nil {
		return 0, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(e.folder)
	found, err := e.try(mutant{name: "nothing changed"})
	if err != nil {
		return 0, err
	}
	for n := range found {
		e.known[n] = true
	}
	if len(found) > 0 {
		fmt.Printf("%d pairs of seed %d fail without any mutant; they count for none\n", len(found), e.seed)
	}
	const row = "%-46s  %-20s  %s\n"
	fmt.Printf(row, "mutant", "noticed after", "by")
	for _, m := range mutants {
		if !strings.Contains(m.name, *only) {
			continue
		}
		found, err := e.try(m)
		if err != nil {
			return survived, err
		}
		if first, kind, any := e.first(found); any {
			fmt.Printf(row, m.name, fmt.Sprintf("%d pairs", first+1), kind)
		} else {
			survived++
			fmt.Printf(row, m.name, fmt.Sprintf("not in %d pairs", e.pairs), "NOTHING")
		}
	}
	return survived, nil
}

// first is the first pair that fails with a mutant and not without.
func (e experiment) first(found map[uint64]string) (n uint64, kind string, any bool) {
	for pair, k := range found {
		if !e.known[pair] && (!any || pair < n) {
			n, kind, any = pair, k, true
		}
	}
	return n, kind, any
}

var line = regexp.MustCompile(`^([a-z ]+): .*\(--replay \d+:(\d+)\)$`)

// try builds the soak with a mutant and returns the pairs that fail, each with what first went wrong in it.
func (e experiment) try(m mutant) (map[uint64]string, error) {
	program := filepath.Join(e.folder, "soak")
	args := []string{"build", "-o", program}
	if m.file != "" {
		overlay, err := e.plant(m)
		if err != nil {
			return nil, err
		}
		args = append(args, "-overlay", overlay)
	}
	if out, err := exec.Command("go", append(args, "./test/soak")...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %q: %w: %s", m.name, err, out)
	}
	enough := 1
	if m.file == "" || len(e.known) > 0 {
		enough = 1 << 30
	}
	out, err := exec.Command(program, "-pairs", fmt.Sprint(e.pairs), "-seed", fmt.Sprint(e.seed), "-enough", fmt.Sprint(enough)).Output()
	if ended := new(exec.ExitError); err != nil && (!errors.As(err, &ended) || ended.ExitCode() != 1) {
		return nil, fmt.Errorf("run %q: %w", m.name, err)
	}
	found := map[uint64]string{}
	for text := range strings.Lines(string(out)) {
		if parts := line.FindStringSubmatch(strings.TrimSpace(text)); parts != nil {
			n, _ := strconv.ParseUint(parts[2], 10, 64)
			if _, had := found[n]; !had {
				found[n] = parts[1]
			}
		}
	}
	return found, nil
}

// plant writes the mutant's source and the overlay that puts it in the place of the real one.
func (e experiment) plant(m mutant) (overlay string, err error) {
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", fmt.Errorf("plant %q: %w", m.name, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("plant %q: %w", m.name, err)
	}
	changed, err := m.apply(string(text))
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(e.folder, "mutated.go")
	if err := os.WriteFile(mutated, []byte(changed), 0o600); err != nil {
		return "", fmt.Errorf("plant %q: %w", m.name, err)
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		return "", fmt.Errorf("plant %q: %w", m.name, err)
	}
	overlay = filepath.Join(e.folder, "overlay.json")
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return "", fmt.Errorf("plant %q: %w", m.name, err)
	}
	return overlay, nil
}

// apply changes a source, in which the mutant's line must stand once.
func (m mutant) apply(text string) (string, error) {
	if n := strings.Count(text, m.old); n != 1 {
		return "", fmt.Errorf("plant %q: its line stands %d times in %s: adapt the table", m.name, n, m.file)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}
