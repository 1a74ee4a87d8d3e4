package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	Passed  int       `json:"passed"` // stories
	Others  []Test    `json:"others,omitempty"`
}

// Test is one story that did not pass.
type Test struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Why     string  `json:"why,omitempty"`
}

// Outcome is how a test went.
type Outcome string

// The outcomes.
const (
	passed  Outcome = "passed"
	Failed  Outcome = "failed"
	LeftOut Outcome = "left out" // cannot be told on this Slurm or host
)

func (r Run) count(o Outcome) (n int) {
	for _, t := range r.Others {
		if t.Outcome == o {
			n++
		}
	}
	return n
}

// blame makes a failure of "go test" itself a failed test if no test failed, as when nothing compiles.
func (r *Run) blame(failed error) {
	if failed != nil && r.count(Failed) == 0 {
		r.Others = append(r.Others, Test{Name: "go test", Outcome: Failed, Why: failed.Error()})
	}
}

var (
	// ofGo begins the lines that "go test" itself writes about a test.
	ofGo = regexp.MustCompile(`^\s*(===|---) `)
	// place is where in the code a test says something.
	place = regexp.MustCompile(`\s*\w+_test\.go:\d+: `)
)

// mostWhy is how much is kept of what a test said.
const mostWhy = 200

// read gathers the tests from what "go test -json" writes, and returns its plain text. Of tests with parts the parts
// count.
func (r *Run) read(out []byte) (text string) {
	var tests []Test
	at, whole := map[string]int{}, map[string]bool{}
	for line := range strings.Lines(string(out)) {
		var e struct {
			Action, Test, Output string
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
			tests[i].Outcome = map[string]Outcome{"pass": passed, "skip": LeftOut}[e.Action]
		case "output":
			if !ofGo.MatchString(e.Output) {
				tests[i].Why += place.ReplaceAllString(e.Output, "")
			}
		}
	}
	for _, t := range tests {
		switch {
		case whole[t.Name]:
		case t.Outcome == passed:
			r.Passed++
		default:
			t.Why = strings.Join(strings.Fields(t.Why), " ")
			t.Why = strings.ToValidUTF8(t.Why[:min(len(t.Why), mostWhy)], "")
			r.Others = append(r.Others, t)
		}
	}
	return text
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
