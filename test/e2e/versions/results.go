package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Run is one run of the suite.
type Run struct {
	Slurm   string // "24.11.5"
	Track   string // "cgroup/v2"
	Paths   string // how a job's cgroup is called there: "job_N", "SLUID", "" for none
	Host    string // system and kernel that it ran on
	Commit  string // of the tree, with "+" if files differed
	Seconds float64
	Passed  int // stories
	Others  []Test
}

// Test is one story that did not pass.
type Test struct {
	Name    string
	Outcome Outcome
	Why     string
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

// page has the table of what ran where, seen from the root of the tree. Each run takes the place of the last one of its
// branch of Slurm and way of tracking, a failed one too.
const page = "docs/packages.md"

// The marks between which the page has the table, and below it a line a run.
const (
	begin = "<!-- what ran where: go run ./test/e2e/versions -->\n"
	end   = "<!-- end of what ran where -->\n"
)

// tracks are the columns behind Slurm and where it is from, in the order in which Slurm got them.
var tracks = []string{"linuxproc", "cgroup/v1", "cgroup/v2"}

// on returns the page with a run on it.
func (r Run) on(page string) string {
	before, rest, begins := strings.Cut(page, begin)
	block, after, ends := strings.Cut(rest, end)
	branch := r.Slurm[:strings.LastIndex(r.Slurm, ".")+1]
	old := regexp.MustCompile(`^\* ` + regexp.QuoteMeta(branch) + `\d+ ` + r.Track + `: `)
	var notes []string
	text, in := "", false
	for line := range strings.Lines(block) {
		switch {
		case strings.HasPrefix(line, "| "+branch):
			cells := strings.Split(strings.Trim(line, "| \n"), " | ")
			cells[0], cells[2+slices.Index(tracks, r.Track)], in = r.Slurm, r.cell(), true
			text += "| " + strings.Join(cells, " | ") + " |\n"
		case strings.HasPrefix(line, "* "):
			notes = append(notes, line)
		default:
			text += line
		}
	}
	if !begins || !ends || !in {
		panic(fmt.Errorf("the page has no block between %q and %q with a row of Slurm %s", begin, end, branch))
	}
	notes = append(slices.DeleteFunc(notes, old.MatchString), r.note())
	slices.Sort(notes)
	return before + begin + text + strings.Join(notes, "") + end + after
}

func (r Run) cell() string {
	text := fmt.Sprintf("%d of %d", r.Passed, r.Passed+len(r.Others))
	if n := r.count(LeftOut); n > 0 {
		text += fmt.Sprintf(", %d left out", n)
	}
	if n := r.count(Failed); n > 0 {
		text += fmt.Sprintf(", **%d failed**", n)
	}
	if r.Paths != "" {
		text += "; `" + r.Paths + "`"
	}
	return fmt.Sprintf("%s; %.0f s", text, r.Seconds)
}

// note says of which commit a run is, and what did not pass, and why.
func (r Run) note() string {
	text := fmt.Sprintf("* %s %s: commit %s on %s", r.Slurm, r.Track, r.Commit, r.Host)
	for _, t := range r.Others {
		text += fmt.Sprintf("; %s %s: `%s`", t.Name, t.Outcome, strings.ReplaceAll(t.Why, "`", "'"))
	}
	return text + "\n"
}
