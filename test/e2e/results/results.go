// Package results keeps what came of the end-to-end tests on each Slurm and way of tracking processes: a file a run beside
// this one, and the tables that are made of them.
package results

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Folder holds the committed results, seen from the root of the tree.
const Folder = "test/e2e/results"

// Run is one run of the suite.
type Run struct {
	Slurm   string    `json:"slurm"`  // "24.11.5"
	Track   string    `json:"track"`  // "cgroup/v2"
	Paths   string    `json:"paths"`  // how a job's cgroup is called there: "job_N", "SLUID", "" for none
	Slurms  string    `json:"slurms"` // where Slurm comes from: "Debian 13"
	Host    string    `json:"host"`   // system and kernel that it ran on
	Date    time.Time `json:"date"`
	Seconds float64   `json:"seconds"`
	Tests   []Test    `json:"tests"`
}

// Test is one story and how it went.
type Test struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Why     string  `json:"why,omitempty"` // of what is left out
	Seconds float64 `json:"seconds"`
	Tries   int     `json:"tries,omitempty"` // 2: it failed first, and passed when it was run again alone
}

// Outcome is how a test went.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	LeftOut Outcome = "left out" // cannot be told on this Slurm or host
)

// Mark begins the line of a test's log that says why it is left out.
const Mark = "left out: "

// Count is how many tests went so.
func (r Run) Count(o Outcome) (n int) {
	for _, t := range r.Tests {
		if t.Outcome == o {
			n++
		}
	}
	return n
}

// Again is how many tests passed at the second try.
func (r Run) Again() (n int) {
	for _, t := range r.Tests {
		if t.Tries > 1 {
			n++
		}
	}
	return n
}

// Failed are the tests to run again: the whole ones of which something failed.
func (r Run) Failed() (names []string) {
	for _, t := range r.Tests {
		name, _, _ := strings.Cut(t.Name, "/")
		if t.Outcome == Failed && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Retry takes over what passed when it was run again: for a test that failed before its parts began, the parts.
func (r *Run) Retry(second []Test) {
	var tests []Test
	for _, t := range r.Tests {
		parts := slices.DeleteFunc(slices.Clone(second), func(s Test) bool {
			return s.Name != t.Name && (!strings.HasPrefix(s.Name, t.Name+"/") || slices.ContainsFunc(r.Tests, s.same))
		})
		failed := func(s Test) bool { return s.Outcome == Failed }
		if t.Outcome != Failed || len(parts) == 0 || slices.ContainsFunc(parts, failed) {
			tests = append(tests, t)
			continue
		}
		for _, p := range parts {
			p.Tries = 2
			tests = append(tests, p)
		}
	}
	r.Tests = tests
}

func (t Test) same(o Test) bool { return t.Name == o.Name }

// event is a line of "go test -json".
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// Read gathers the tests from what "go test -json" writes; each line of theirs goes to log as well. Of tests with parts the
// parts count, and the whole only where it failed and no part did.
func Read(from io.Reader, log io.Writer) ([]Test, error) {
	found := map[string]*Test{}
	var order []string
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(log, lines.Text()) // a compiler's
			continue
		}
		if e.Action == "output" {
			fmt.Fprint(log, e.Output)
		}
		if e.Test == "" {
			continue
		}
		t := found[e.Test]
		if t == nil {
			t = &Test{Name: e.Test}
			found[e.Test], order = t, append(order, e.Test)
		}
		t.hear(e)
	}
	return counted(found, order), lines.Err()
}

func (t *Test) hear(e event) {
	switch e.Action {
	case "output":
		if _, why, ok := strings.Cut(e.Output, ": "+Mark); ok {
			t.Why = strings.TrimSpace(why)
		}
	case "pass", "fail":
		t.Outcome, t.Seconds = Passed, e.Elapsed
		if e.Action == "fail" {
			t.Outcome = Failed
		} else if t.Why != "" {
			t.Outcome = LeftOut
		}
	}
}

func counted(found map[string]*Test, order []string) (tests []Test) {
	whole, failedPart := map[string]bool{}, map[string]bool{}
	for _, name := range order {
		for above := name; strings.Contains(above, "/"); {
			above = above[:strings.LastIndexByte(above, '/')]
			whole[above] = true
			failedPart[above] = failedPart[above] || found[name].Outcome == Failed
		}
	}
	for _, name := range order {
		t := *found[name]
		if t.Outcome == "" {
			t.Outcome = Failed // it never ended
		}
		if !whole[name] || t.Outcome == Failed && !failedPart[name] {
			tests = append(tests, t)
		}
	}
	return tests
}

// fileName is the file of a branch and way of tracking: the next run of the same takes its place.
func (r Run) fileName() string {
	branch := r.Slurm
	if parts := strings.Split(r.Slurm, "."); len(parts) > 2 {
		branch = strings.Join(parts[:2], ".")
	}
	return branch + "-" + strings.ReplaceAll(r.Track, "/", "-") + ".json"
}

// Write keeps a run in a folder.
func (r Run) Write(folder string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, r.fileName()), append(data, '\n'), 0o644) //nolint:gosec // a document
}

// Load reads what is kept in a folder, by Slurm and then by way of tracking.
func Load(folder string) ([]Run, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []Run
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
