package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"bookend/test/gpu/record"
)

// TestPages holds the published tables to the committed records.
func TestPages(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	all, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range all {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not what the records say (%v): go run ./test/gpu/accuracy", path, err)
		}
	}
}

var sample = record.File{
	Version: record.Version, Date: time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC),
	Machine: record.Machine{GPU: "Example GPU", GPUs: 2, Driver: "1.2", Kernel: "6", System: "Linux", Slurm: "slurm 22.05", Track: "v2", Bookend: "1"},
}

func TestAccuracyShowsWhatWasWrong(t *testing.T) {
	f := sample
	orphan := record.Job{
		ID: 7, Start: &record.End{Curves: []record.Curve{{State: "clean"}}},
		End: &record.End{
			Exit: 10, Curves: []record.Curve{{State: "flat", Settled: 0.2}, {State: "flat", Settled: 0.4, Span: 3.6}},
			Findings: []record.Finding{{
				Code: "BKD-ORPHAN", PID: 99, Bytes: 21 << 30, Job: 7, Evidence: "exclusive", Classes: []string{"orphan"},
				Candidates: []record.Candidate{{PID: 98, Classes: []string{"exported"}}, {PID: 99}},
			}},
		},
		Hooks: []record.Hook{{Program: "bookend-prolog", Seconds: 0.031}, {Program: "bookend-epilog", Seconds: 4.5}},
	}
	f.Runs = []record.Run{
		{Scenario: "left", Title: "Left behind", Truth: "It is there.", Number: 1, Mode: "enforce", Outcome: record.Right,
			Holder: &record.Holder{Held: 20 << 30}, Jobs: []record.Job{orphan}, Checks: []record.Check{{Right: true}}},
		{Scenario: "left", Title: "Left behind", Truth: "It is there.", Number: 2, Mode: "enforce", Outcome: record.Wrong,
			Checks: []record.Check{{What: "process", Want: "99", Got: "a `b`\n|c"}, {What: "fine", Right: true}}},
		{Scenario: "left", Title: "Left behind", Truth: "It is there.", Number: 3, Outcome: record.Broken, Problem: "no job"},
	}
	page := accuracy([]record.File{f}, "")
	for _, want := range []string{
		"| [Left behind](#left-behind) | It is there. | 1 of 3, 1 wrong, 1 broken | end: BKD-ORPHAN: drain, exit 10 *or* nothing | " +
			"job by exclusive; process is orphan; 2 may hold it: exported *or* - | 0.4 s, watched 3.6 s |\n",
		"2 × Example GPU",
		"| A1 | enforce | right | clean | BKD-ORPHAN process 99 of job 7 (exclusive): drain, exit 10 | 20480 MiB | 21504 MiB | 0.4 s | 0.03 s | 4.50 s |\n",
		"A2 is wrong:\n* process: want `99`, got `a 'b' ¦c`\n",
		"A3 is broken:\n* no job\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "fine") {
		t.Errorf("a check that was right is listed as a complaint:\n%s", page)
	}
}

// A control that the judge found right is a fault of the judge, and the page must say so.
func TestAccuracyShowsControls(t *testing.T) {
	f := sample
	one := record.Run{Scenario: "left", Title: "Left behind", Number: 1, Outcome: record.Right, Checks: []record.Check{{Right: true}}}
	caught, missed := one, one
	caught.Control, caught.Outcome = "look: {holders: false}", record.Wrong
	caught.Checks = []record.Check{{What: "may hold it", Want: "[1]", Got: "[]"}}
	missed.Control = "thresholds: {}"
	f.Runs = []record.Run{one, caught, missed}
	page := accuracy([]record.File{f}, "")
	for _, want := range []string{
		"| [Left behind](#left-behind) |  | 1 of 1 |",
		"| A1 | [Left behind](#left-behind) | `look: {holders: false}` | yes | may hold it: want `[1]`, got `[]` |\n",
		"| A1 | [Left behind](#left-behind) | `thresholds: {}` | **no: it is called right** | - |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("lacks %q:\n%s", want, page)
		}
	}
}

func TestPerformanceComparesWithNvidiaSmi(t *testing.T) {
	f := sample
	f.Timings = &record.Timings{Rounds: 3, Idle: true, Programs: []record.Timing{
		{Name: "bookend-prolog", What: "start", Millis: []float64{9, 30, 12}},
		{Name: yardstick + "=index", What: "query", Millis: []float64{10, 8, 9}},
	}}
	page := performance([]record.File{f}, nil, nil, nil)
	if want := "| bookend-prolog | start | 12.0 ms | 9.0 ms | 30.0 ms | 1.33 |\n"; !strings.Contains(page, want) {
		t.Errorf("lacks %q:\n%s", want, page)
	}
	f.Timings.Idle = false
	if page := performance([]record.File{f}, nil, nil, nil); !strings.Contains(page, "do not trust") {
		t.Errorf("does not warn of cards in use:\n%s", page)
	}
}

func TestNoRecords(t *testing.T) {
	for _, page := range []string{accuracy(nil, ""), performance(nil, nil, nil, nil), accuracy([]record.File{}, ""), performance([]record.File{sample}, []string{"1 search"}, []string{"1 script"}, []string{"1 output"})} {
		if !strings.HasSuffix(page, noRecords) {
			t.Errorf("does not say that there is no record:\n%s", page)
		}
	}
}

// What health checks saw and found stands in the scenario's line and in a table of its own.
func TestAccuracyShowsHealthChecks(t *testing.T) {
	f := sample
	f.Runs = []record.Run{{
		Scenario: "between", Title: "Between jobs", Truth: "It is there.", Number: 1, Mode: "observe", Outcome: record.Right, Checks: []record.Check{{Right: true}},
		HealthChecks: []record.NodeCheck{
			{When: "idle", Seconds: 0.061},
			{When: "left", Seconds: 1.7, Seen: []record.Occupant{{PID: 99, Bytes: 20 << 30}}, Drain: "left alone: x | y",
				Findings: []record.Finding{{Code: "BKD-ORPHAN", PID: 99, Job: 7, Evidence: "exclusive"}}},
			{When: "failed", Seconds: 0.1, Exit: 30},
		},
	}, {Scenario: "idle", Title: "Idle", Number: 1, Outcome: record.Right, Checks: []record.Check{{Right: true}}, HealthChecks: []record.NodeCheck{{When: "idle"}}}}
	page := accuracy([]record.File{f}, "")
	for _, want := range []string{
		"| It is there. | 1 of 1 | health check: BKD-ORPHAN |",
		"| [Idle](#idle) |  | 1 of 1 | health check: clean |",
		"| A1 | idle | 61 ms | - | clean | - |\n",
		"| A1 | left | 1700 ms | process 99 with 20480 MiB | BKD-ORPHAN process 99 of job 7 (exclusive) | left alone: x ¦ y |\n",
		"| A1 | failed | 100 ms | - | exit 30 | - |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("lacks %q:\n%s", want, page)
		}
	}
}
