package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/test/gpu/runrecord"
	"bookend/test/must"
)

// TestPages holds the published tables to the committed records.
func TestPages(t *testing.T) {
	all := must.Have(pages("../../.."))(t)
	for path, want := range all {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not what the records say (%v): go run ./test/gpu/accuracy", path, err)
		}
	}
}

// What the committed records have no case of: what went wrong, and controls that were not noticed.
func TestPagesShowWhatWasWrong(t *testing.T) {
	f := runrecord.File{Version: runrecord.Version, Date: time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC),
		Machine: runrecord.Machine{GPU: "Example GPU", GPUs: 2}}
	right := runrecord.Run{Scenario: "left", Title: "Left behind", Truth: "It is there.", Number: 1,
		Outcome: runrecord.Right, Checks: []runrecord.Check{{What: "fine", Right: true}}}
	wrong, broken, control := right, right, right
	wrong.Number, wrong.Outcome = 2, runrecord.Wrong
	wrong.Checks = []runrecord.Check{{What: "process", Want: "99", Got: "a `b`\n|c"}, {What: "fine", Right: true}}
	broken.Number, broken.Outcome, broken.Problem = 3, runrecord.Broken, "no job"
	control.Control = "thresholds: {}"
	f.Runs = []runrecord.Run{right, wrong, broken, control}
	timed := f
	timed.Runs, timed.Timings = nil, &runrecord.Timings{Rounds: 3, Pairs: []runrecord.Pair{{Name: "test",
		What: "a against b", Limit: 1.05,
		Ours: runrecord.Timing{Millis: []float64{110, 105, 108}}, Bare: runrecord.Timing{Millis: []float64{100, 100, 100}}}}}
	all := facts{Files: []runrecord.File{f, timed}, Scenarios: byScenario([]runrecord.File{f})}
	page := all.page("accuracy") + all.page("performance") + all.page("results")
	for _, want := range []string{
		"| left | Left behind | 1 of 3; wrong: process: want `99`, got `a 'b' ¦c`; broken: no job | 0 of 1 |",
		"do not trust", "| 1.080 (1.050 to 1.100); at most 1.05: **not held** |\n",
	} {
		must.Not(t, !strings.Contains(page, want), "lacks %q:\n%s", want, page)
	}
	must.Not(t, strings.Contains(page, "fine"), "a check that was right is listed as a complaint:\n%s", page)
}

// What newer runs have replaced goes: from a file, or with it. What is kept stays as it was written.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	run := func(scenario string) runrecord.Run {
		return runrecord.Run{Scenario: scenario, Outcome: runrecord.Right, Checks: []runrecord.Check{{What: "fine", Right: true}}}
	}
	for day, runs := range [][]runrecord.Run{{run("a")}, {run("a"), run("b")}, {run("b")}, {run("a")}} {
		f := runrecord.File{Version: runrecord.Version, Date: time.Date(2026, 3, 1+day, 0, 0, 0, 0, time.UTC),
			Machine: runrecord.Machine{GPU: "Example GPU", GPUs: 1 + day/3}, Runs: runs}
		must.Do(t, f.Write(filepath.Join(dir, strconv.Itoa(day)+runrecord.Suffix)))
	}
	kept := filepath.Join(dir, "2"+runrecord.Suffix)
	before := must.Have(os.ReadFile(kept))(t)
	must.Do(t, pruned(dir))
	var left []string
	for _, f := range must.Have(runrecord.Load(dir))(t) {
		for _, r := range f.Runs {
			left = append(left, filepath.Base(f.Path)[:1]+r.Scenario)
		}
	}
	must.Be(t, "left", strings.Join(left, " "), "1a 2b 3a")
	after := must.Have(os.ReadFile(kept))(t)
	must.Not(t, !bytes.Equal(before, after), "a record of which nothing was replaced was written again")
}
