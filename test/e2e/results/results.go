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
	"regexp"
	"slices"
	"strings"
	"time"
)

// Folder holds the committed results, seen from the root of the tree.
const Folder = "test/e2e/results"

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
	Why     string  `json:"why,omitempty"` // it is left out, failed, or failed first; "" in old records of second tries
	Seconds float64 `json:"seconds"`
	Tries   int     `json:"tries,omitempty"` // 2: it failed first, and was run again alone

	open bool // the text of Why goes on
}

// Outcome is how a test went.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	LeftOut Outcome = "left out" // cannot be told on this Slurm or host
)

// Whole is the name of what fails where "go test" does and no test says that it did, as when nothing compiles.
const Whole = "go test"

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
		if t.Tries > 1 && t.Outcome == Passed {
			n++
		}
	}
	return n
}

// Failed are the tests to run again: the whole ones of which something failed.
func (r Run) Failed() (names []string) {
	for _, t := range r.Tests {
		if name := t.whole(); t.Outcome == Failed && name != Whole && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Retry takes over what became of the tests that were run again alone. Why one failed first is kept.
func (r *Run) Retry(second []Test) {
	again := r.Failed()
	first := slices.Clone(r.Tests)
	r.Tests = slices.DeleteFunc(r.Tests, func(t Test) bool { return slices.Contains(again, t.whole()) })
	for _, t := range second {
		if t.Tries = 2; t.Outcome == Passed {
			at := slices.IndexFunc(first, func(f Test) bool { return f.Outcome == Failed && (f.Name == t.Name || f.Name == t.whole()) })
			if at < 0 { // it passed the first time, too
				t.Tries = 0
			} else {
				t.Why = first[at].Why
			}
		}
		r.Tests = append(r.Tests, t)
	}
}

// whole is the test that this is a part of.
func (t Test) whole() string {
	name, _, _ := strings.Cut(t.Name, "/")
	return name
}

// Blame makes a failure of "go test" itself a failed test where no test failed: what it stands for is in no other.
func Blame(tests []Test, failed error) []Test {
	if failed == nil || slices.ContainsFunc(tests, func(t Test) bool { return t.Outcome == Failed }) {
		return tests
	}
	return append(tests, Test{Name: Whole, Outcome: Failed, Why: failed.Error()})
}

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

// reported is a line in which a test says something, or Go for it.
var reported = regexp.MustCompile(`^(?:\s+\w+_test\.go:\d+|panic): (.*)`)

// mostWhy is how much is kept of it.
const mostWhy = 300

func (t *Test) hear(e event) {
	switch e.Action {
	case "output":
		if m := reported.FindStringSubmatch(e.Output); m != nil {
			if t.open = t.Why == ""; t.open {
				t.Why = strings.TrimSpace(m[1])
			}
		} else if t.open = t.open && strings.HasPrefix(e.Output, "        "); t.open {
			t.Why += " " + strings.TrimSpace(e.Output)
		}
	case "pass", "fail", "skip":
		t.Outcome, t.Seconds = map[string]Outcome{"pass": Passed, "fail": Failed, "skip": LeftOut}[e.Action], e.Elapsed
		if t.Outcome == Passed {
			t.Why = ""
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
		t.open, t.Why = false, strings.ToValidUTF8(t.Why[:min(len(t.Why), mostWhy)], "")
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

// Write keeps a run in a folder, a failed one too.
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
