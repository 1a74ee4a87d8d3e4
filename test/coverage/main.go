// Command coverage measures which statements of the privileged and of the state code the tests reach, in every process
// that they start: test binaries, the built hooks, and the children that these start of themselves and turn into users.
//
//	coverage [--min PERCENT] [--profile FILE] [--draft] [SUITE ...]
//
// It is run in the root of the tree, as root. Suites are packages of tests, beside the measured packages' own; without
// any, the tests of the built hooks. Every statement that was not reached must be explained in test/coverage/gaps.txt.
// Exit codes: 0 all is as it should be, 1 too little was reached, a gap is not explained or a test failed, 64 usage.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

const (
	exitWrong = 1
	exitUsage = 64
)

// measured are the packages that run as root for every job, or keep what hooks must remember.
var measured = []string{
	"internal/asuser", "internal/child", "internal/cleanup", "internal/confine", "internal/joblog", "internal/safefile", "internal/scontrol",
	"internal/state",
}

// suites run the built hooks.
var suites = []string{"test/faults"}

// gapsFile explains what is not reached.
const gapsFile = "test/coverage/gaps.txt"

func main() {
	least := flag.Float64("min", 95, "fail when less than `PERCENT` of a package's statements are reached")
	profile := flag.String("profile", "", "judge a `FILE` that an earlier run wrote, and run nothing")
	out := flag.String("out", "", "write the profile to `FILE`, as go tool cover reads it")
	draft := flag.Bool("draft", false, "print the gaps that are not explained as entries of "+gapsFile)
	flag.Parse()
	wrong, err := run(os.Stdout, *least, *profile, *out, *draft, flag.Args())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "coverage:", err)
		os.Exit(exitUsage)
	case wrong > 0:
		fmt.Fprintf(os.Stderr, "coverage: %d wrong\n", wrong)
		os.Exit(exitWrong)
	}
}

// run measures, or takes a profile, and says how many things are wrong.
func run(w io.Writer, least float64, profile, out string, draft bool, more []string) (wrong int, err error) {
	if len(more) == 0 {
		more = suites
	}
	var text []byte
	var failed error
	if profile != "" {
		text, err = os.ReadFile(profile)
	} else {
		text, failed, err = measure(measured, slices.Concat(measured, more))
	}
	if err == nil && out != "" {
		err = os.WriteFile(out, text, 0o644)
	}
	if err != nil {
		return 0, err
	}
	if failed != nil {
		fmt.Fprintln(w, failed)
		wrong++
	}
	more2, err := judge(w, string(text), least, draft)
	return wrong + more2, err
}

// judge prints each package's figure and what is wrong with it.
func judge(w io.Writer, text string, least float64, draft bool) (wrong int, err error) {
	blocks, err := parseProfile(text)
	if err != nil {
		return 0, err
	}
	// Programs are in the profile too: see measure.
	blocks = slices.DeleteFunc(blocks, func(b block) bool { return !slices.Contains(measured, b.pkg()) })
	for i := range blocks {
		if err := blocks[i].locate("."); err != nil {
			return 0, err
		}
	}
	list, err := os.ReadFile(gapsFile)
	if err != nil {
		return 0, err
	}
	gaps, err := parseGaps(string(list))
	if err != nil {
		return 0, errors.Join(errors.New(gapsFile), err)
	}
	for _, s := range sums(blocks, measured) {
		fmt.Fprintf(w, "%-20s %4d of %4d statements  %5.1f %%\n", s.pkg, s.reached, s.total, s.percent())
		if s.percent() < least {
			fmt.Fprintf(w, "%s: less than %.1f %% of its statements were reached\n", s.pkg, least)
			wrong++
		}
	}
	complaints := compare(blocks, gaps)
	for _, c := range complaints {
		fmt.Fprintln(w, c)
	}
	if draft {
		fmt.Fprint(w, drafted(blocks, gaps))
	}
	return wrong + len(complaints), nil
}
