package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// kept holds the committed results, a file a run, seen from the root of the tree.
const kept = "test/e2e/results"

// Run is one run of the suite.
type Run struct {
	Slurm   string    `json:"slurm"`            // "24.11.5"
	Track   string    `json:"track"`            // "cgroup/v2"
	Paths   string    `json:"paths"`            // how a job's cgroup is called there: "job_N", "SLUID", "" for none
	Slurms  string    `json:"slurms"`           // where Slurm comes from: "Debian 13"
	Host    string    `json:"host"`             // system and kernel that it ran on
	Commit  string    `json:"commit,omitempty"` // of the tree, with "+" if files differed; "" in old records
	Date    time.Time `json:"date"`
	Seconds float64   `json:"seconds"`
	Tests   []Test    `json:"tests"`
}

// Test is one story and how it went.
type Test struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Why     string  `json:"why,omitempty"` // it is left out, failed, or failed first
	Seconds float64 `json:"seconds"`
	Tries   int     `json:"tries,omitempty"` // 2: it failed first, and was run again alone
}

// Outcome is how a test went.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	LeftOut Outcome = "left out" // cannot be told on this Slurm or host
)

func (r Run) count(o Outcome) (n int) {
	for _, t := range r.Tests {
		if t.Outcome == o {
			n++
		}
	}
	return n
}

// wholeRun is the name of what fails if "go test" does and no test says that it did, as when nothing compiles.
const wholeRun = "go test"

// blame makes a failure of "go test" itself a failed test if no test failed.
func blame(tests []Test, failed error) []Test {
	if failed == nil || (Run{Tests: tests}).count(Failed) > 0 {
		return tests
	}
	return append(tests, Test{Name: wholeRun, Outcome: Failed, Why: failed.Error()})
}

// failed are the tests to run again: the whole ones of which something failed.
func (r Run) failed() (names []string) {
	for _, t := range r.Tests {
		if name, _, _ := strings.Cut(t.Name, "/"); t.Outcome == Failed && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == wholeRun })
}

// retry notes what passed when it was run again alone. Why it failed first is kept.
func (r *Run) retry(second []Test) {
	for i := range r.Tests {
		t := &r.Tests[i]
		again := slices.ContainsFunc(second, func(s Test) bool { return s.Name == t.Name && s.Outcome == Passed })
		if t.Outcome == Failed && again {
			t.Outcome, t.Tries = Passed, 2
		}
	}
}

var (
	// ofGo begins the lines that "go test" itself writes about a test.
	ofGo = regexp.MustCompile(`^\s*(===|---) `)
	// place is where in the code a test says something.
	place = regexp.MustCompile(`\s*\w+_test\.go:\d+: `)
)

// mostWhy is how much is kept of what a test said.
const mostWhy = 300

// readTests gathers the tests from what "go test -json" writes, and its plain text. Of tests with parts the parts count.
func readTests(out []byte) (tests []Test, text string) {
	at := map[string]int{}
	whole := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		var e struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if json.Unmarshal([]byte(line), &e) != nil {
			e.Output = line // a compiler's
		}
		if text += e.Output; e.Test == "" {
			continue
		}
		i, known := at[e.Test]
		if !known {
			i, tests = len(tests), append(tests, Test{Name: e.Test, Outcome: Failed}) // until it ends
			at[e.Test], whole[filepath.Dir(e.Test)] = i, true
		}
		switch e.Action {
		case "pass", "skip":
			tests[i].Outcome, tests[i].Seconds = map[string]Outcome{"pass": Passed, "skip": LeftOut}[e.Action], e.Elapsed
		case "output":
			if !ofGo.MatchString(e.Output) {
				tests[i].Why += place.ReplaceAllString(e.Output, "")
			}
		}
	}
	tests = slices.DeleteFunc(tests, func(t Test) bool { return whole[t.Name] })
	for i := range tests {
		t := &tests[i]
		t.Why = strings.Join(strings.Fields(t.Why), " ")
		if t.Why = strings.ToValidUTF8(t.Why[:min(len(t.Why), mostWhy)], ""); t.Outcome == Passed {
			t.Why = ""
		}
	}
	return tests, text
}

// name is that of a branch and way of tracking: the next run of the same takes its place.
func (r Run) name() string {
	parts := strings.SplitN(r.Slurm, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".") + "-" + strings.ReplaceAll(r.Track, "/", "-")
}

// write keeps a run in a directory, a failed one too.
func (r Run) write(dir string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.name()+".json"), append(data, '\n'), 0o644) //nolint:gosec // a document
}

// load reads what is kept in a directory, by Slurm and then by way of tracking.
func load(dir string) (all []Run, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var r Run
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("read %q: %w", name, err)
		}
		all = append(all, r)
	}
	return all, nil
}
