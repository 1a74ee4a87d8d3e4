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

	"bookend/test/rig"
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
	Why     string  `json:"why,omitempty"` // it is left out or failed
	Seconds float64 `json:"seconds"`
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

// blame makes a failure of "go test" itself a failed test if no test failed, as when nothing compiles.
func blame(tests []Test, failed error) []Test {
	if failed == nil || (Run{Tests: tests}).count(Failed) > 0 {
		return tests
	}
	return append(tests, Test{Name: "go test", Outcome: Failed, Why: failed.Error()})
}

var (
	// ofGo begins the lines that "go test" itself writes about a test.
	ofGo = regexp.MustCompile(`^\s*(===|---) `)
	// place is where in the code a test says something.
	place = regexp.MustCompile(`\s*\w+_test\.go:\d+: `)
)

// mostWhy is how much is kept of what a test said.
const mostWhy = 200

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
	return r.Slurm[:strings.LastIndex(r.Slurm, ".")] + "-" + strings.ReplaceAll(r.Track, "/", "-")
}

// write keeps a run in a directory, a failed one too.
func (r Run) write(dir string) {
	data := append(rig.Have(json.MarshalIndent(r, "", "\t")), '\n')
	rig.Try(os.WriteFile(filepath.Join(dir, r.name()+".json"), data, 0o644)) //nolint:gosec // a document
}

// load reads what is kept in a directory, by Slurm and then by way of tracking.
func load(dir string) (all []Run) {
	for _, name := range rig.Have(filepath.Glob(filepath.Join(dir, "*.json"))) {
		var r Run
		if err := json.Unmarshal(rig.Have(os.ReadFile(name)), &r); err != nil {
			panic(fmt.Errorf("read %q: %w", name, err))
		}
		all = append(all, r)
	}
	return all
}
