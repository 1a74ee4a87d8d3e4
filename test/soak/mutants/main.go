// Command mutants asks whether the soak would notice: it plants one mistake at a time in the judgement, by an overlay
// of the sources that leaves the tree alone, and runs the soak against it.
//
//	mutants [--pairs N] [--seed S] [--only TEXT]
//
// It is run in the root of the tree. Exit codes: 0 every mistake was noticed, 1 one was not, or the judgement fails on
// these pairs as it is, 64 usage, or a mistake that cannot be planted any more because its line has changed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"bookend/test/mutant"
)

const (
	exitWrong = 1
	exitUsage = 64
)

// experiment is how each mutant is tried.
type experiment struct {
	folder string
	pairs  uint64
	seed   uint64
}

func main() {
	wrong, err := run(os.Args[1:])
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(exitUsage)
	case wrong != "":
		fmt.Fprintln(os.Stderr, "mutants:", wrong)
		os.Exit(exitWrong)
	}
}

// run tries the judgement as it is, of which nothing must be noticed, then every mutant. It returns what was wrong.
func run(args []string) (wrong string, err error) {
	var e experiment
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.Uint64Var(&e.pairs, "pairs", 100_000, "pairs within which a mutant must be noticed")
	flags.Uint64Var(&e.seed, "seed", 1, "seed of all chance")
	only := flags.String("only", "", "try the mutants alone whose name contains `TEXT`")
	if err := flags.Parse(args); err != nil {
		return "", fmt.Errorf("read arguments: %w", err)
	}
	if e.folder, err = os.MkdirTemp("", "bookend-mutants-"); err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(e.folder)
	noticed, err := e.try(mutant.Mutant{Name: "nothing changed"})
	if err != nil {
		return "", err
	}
	if noticed.by != "" {
		return fmt.Sprintf("pair %d of seed %d fails without any mutant: %s", noticed.pair, e.seed, noticed.by), nil
	}
	survived := 0
	const row = "%-46s  %-20s  %s\n"
	fmt.Printf(row, "mutant", "noticed after", "by")
	for _, m := range mutants {
		if !strings.Contains(m.Name, *only) {
			continue
		}
		noticed, err := e.try(m)
		switch {
		case err != nil:
			return "", err
		case noticed.by != "":
			fmt.Printf(row, m.Name, fmt.Sprintf("%d pairs", noticed.pair+1), noticed.by)
		default:
			survived++
			fmt.Printf(row, m.Name, fmt.Sprintf("not in %d pairs", e.pairs), "NOTHING")
		}
	}
	if survived > 0 {
		return fmt.Sprintf("%d survived", survived), nil
	}
	return "", nil
}

// notice is the first pair that failed, and the kind of its first failure; none where by is empty.
type notice struct {
	pair uint64
	by   string
}

var line = regexp.MustCompile(`^([a-z ]+): .*\(--replay \d+:(\d+)\)$`)

// try builds the soak with a mutant, none where it names no file, and runs it until something fails.
func (e experiment) try(m mutant.Mutant) (notice, error) {
	program := filepath.Join(e.folder, "soak")
	args := []string{"build", "-o", program}
	if m.File != "" {
		overlay, err := m.Overlay(".", e.folder)
		if err != nil {
			return notice{}, err
		}
		args = append(args, "-overlay", overlay)
	}
	if out, err := exec.Command("go", append(args, "./test/soak")...).CombinedOutput(); err != nil {
		return notice{}, fmt.Errorf("build %q: %w: %s", m.Name, err, out)
	}
	out, err := exec.Command(program, "-pairs", fmt.Sprint(e.pairs), "-seed", fmt.Sprint(e.seed), "-enough", "1").Output()
	if ended := new(exec.ExitError); err != nil && (!errors.As(err, &ended) || ended.ExitCode() != 1) {
		return notice{}, fmt.Errorf("run %q: %w", m.Name, err)
	}
	n, readErr := firstOf(string(out))
	if err != nil && n.by == "" && readErr == nil {
		readErr = fmt.Errorf("run %q: it failed without saying at which pair", m.Name)
	}
	return n, readErr
}

// firstOf reads the soak's report, whose failures come in the order of their pairs.
func firstOf(out string) (notice, error) {
	for text := range strings.Lines(out) {
		if parts := line.FindStringSubmatch(strings.TrimSpace(text)); parts != nil {
			n, err := strconv.ParseUint(parts[2], 10, 64)
			if err != nil {
				return notice{}, fmt.Errorf("read the soak's report: %w", err)
			}
			return notice{n, parts[1]}, nil
		}
	}
	return notice{}, nil
}
