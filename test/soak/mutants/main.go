// Command mutants asks whether the soak would notice: it plants one mistake at a time in the judgement, by an overlay
// of the sources that leaves the tree alone, and runs the soak against it.
//
//	mutants [--pairs N] [--seed S] [--only TEXT]
//
// It is run in the root of the tree. Exit codes: 0 every mistake was noticed, 1 one was not, or the judgement fails on
// these pairs as it is, 64 usage, or a mistake that cannot be planted any more because its line has changed.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"bookend/test/mutant"
)

//go:embed mutants.yaml
var table []byte

// mutants are the mistakes that a soak must notice.
var mutants = mutant.Table(table)

func main() {
	pairs := flag.String("pairs", "100000", "pairs within which a mutant must be noticed")
	seed := flag.String("seed", "1", "seed of all chance")
	only := flag.String("only", "", "try the mutants alone whose name contains `TEXT`")
	flag.CommandLine.Init("mutants", flag.ContinueOnError)
	err := flag.CommandLine.Parse(os.Args[1:])
	folder, failed := os.MkdirTemp("", "bookend-mutants-")
	wrong := 0
	if err = errors.Join(err, failed); err == nil {
		wrong, err = run(folder, *only, "-pairs", *pairs, "-seed", *seed, "-enough", "1")
	}
	if err = errors.Join(err, os.RemoveAll(folder)); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(64)
	}
	if wrong > 0 {
		fmt.Fprintf(os.Stderr, "mutants: %d wrong\n", wrong)
		os.Exit(1)
	}
}

// run tries the judgement as it is, of which nothing must be noticed, then every mutant. It counts what was wrong.
func run(folder, only string, soak ...string) (wrong int, err error) {
	for _, m := range append([]mutant.Mutant{{Name: "without any mutant"}}, mutants...) {
		if m.File != "" && !strings.Contains(m.Name, only) {
			continue
		}
		breach, err := try(folder, m, soak)
		if err != nil {
			return wrong, fmt.Errorf("%s: %w", m.Name, err)
		}
		if (breach == "none") != (m.File == "") {
			wrong++
		}
		fmt.Printf("%-46s  %s\n", m.Name, breach)
		if m.File == "" && wrong > 0 {
			break
		}
	}
	return wrong, nil
}

// try builds the soak with a mutant, none where it names no file, and returns the first breach that it finds, or "none".
func try(folder string, m mutant.Mutant, soak []string) (breach string, err error) {
	program := filepath.Join(folder, "soak")
	build := []string{"build", "-o", program}
	if m.File != "" {
		overlay, err := m.Overlay(".", folder)
		if err != nil {
			return "", err
		}
		build = append(build, "-overlay", overlay)
	}
	if out, err := exec.Command("go", append(build, "./test/soak")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	out, err := exec.Command(program, soak...).Output()
	_, breach, said := strings.Cut(string(out), "\nfirst breach: ") // its last line
	if breach = strings.TrimSuffix(breach, "\n"); !said || (breach == "none") != (err == nil) {
		return "", fmt.Errorf("run: %v, and its last line says %q", err, breach)
	}
	return breach, nil
}
