package main

import (
	"strings"
	"testing"

	"bookend/test/gpu/record"
)

func lacks(t *testing.T, page string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(page, want) {
			t.Errorf("lacks %q:\n%s", want, page)
		}
	}
}

func TestAccuracyTellsWhy(t *testing.T) {
	f := sample
	failed := func(answer string) record.Run {
		d := &record.Diagnosis{Asked: "it | failed", Causes: []record.Cause{
			{Name: "others", Answer: "no", Evidence: "none"}, {Name: "own", Answer: answer, Evidence: "had it all"}, {Name: "fault", Answer: "cannot tell"},
		}}
		return record.Run{Scenario: "oom", Title: "Out of memory", Truth: "By itself.", Number: 1, Outcome: record.Right,
			Checks: []record.Check{{Right: true}}, Jobs: []record.Job{{State: "FAILED", End: &record.End{Diagnosis: d}}}}
	}
	f.Runs = []record.Run{failed("yes"), failed("yes"), failed("no")}
	lacks(t, accuracy([]record.File{f}, ""),
		"| [Out of memory](#out-of-memory) | By itself. | 3 of 3 | own *or* - | fault | others *or* others, own | - |\n",
		"A1 asks because it ¦ failed:\n", "| own | yes | had it all |\n", "| fault | cannot tell | - |\n")
	f.Runs = []record.Run{{Scenario: "fine", Title: "Fine", Outcome: record.Right, Checks: []record.Check{{Right: true}}}}
	if page := accuracy([]record.File{f}, ""); strings.Contains(page, "## Why out of memory") {
		t.Errorf("tells why of a job that did not fail:\n%s", page)
	}
}

func TestAccuracyTellsOfTests(t *testing.T) {
	f := sample
	idle := record.Probe{GPU: "GPU-a", Result: "ok", Free: 1000 << 20, Largest: 998 << 20, Attempts: 1, Init: 200, Search: 1, Release: 45}
	other := idle
	other.Largest, other.Init = 997<<20, 220
	skipped := record.Probe{Result: "skipped", Why: "another process is on the card: 77"}
	hole := record.Test{What: "holes", Chunk: 64 << 10, Kept: 500 << 20, Probe: record.Probe{Result: "ok", Free: 3 << 20}}
	f.Runs = []record.Run{{
		Scenario: "probe", Title: "Test", Number: 1, Outcome: record.Right, Checks: []record.Check{{Right: true}},
		Jobs:  []record.Job{{End: &record.End{Probes: []record.Probe{idle}, Health: []record.Health{{GPU: "GPU-a", Facts: []record.Fact{{Code: "ecc", Value: "0"}, {Code: "bar1", Unknown: "no"}}, Accounting: "off"}}}}},
		Tests: []record.Test{{What: "idle", Probe: idle}, {What: "idle", Probe: other}, {What: "busy", Probe: skipped}, hole},
	}}
	lacks(t, accuracy([]record.File{f}, ""),
		"| A | by the epilog | 1 | ok | 1000 MiB | 998 MiB | 2 MiB | 1 | 200 ms | 1 ms | 45 ms |\n",
		"| A | idle | 2 | ok | 1000 MiB | 997 to 998 MiB | 2 to 3 MiB | 1 | 210 ms | 1 ms | 45 ms |\n",
		"| A | busy | 1 | skipped: another process is on the card | - |",
		"| A | 64 KiB | 500 MiB | 3 MiB | 0 MiB | 3 MiB |\n",
		"| A | GPU-a | ecc 0, bar1 unknown: no | off |\n")
}

func TestPerformanceTellsTheRatio(t *testing.T) {
	f := sample
	f.Command = "gpu-lane --only probe"
	f.Timings = &record.Timings{Rounds: 3, Idle: true, Pairs: []record.Pair{{
		Name: "test", What: "a against b", Limit: 1.15, Ours: record.Timing{Millis: []float64{110, 105, 108}}, Bare: record.Timing{Millis: []float64{100, 100, 100}},
	}}}
	lacks(t, performance([]record.File{f}, nil, nil, nil), "| test: a against b | 108.0 ms | 100.0 ms | 1.080 | 1.050 | 1.100 | at most 1.15: held |\n", "`gpu-lane --only probe`")
	f.Timings.Pairs[0].Limit = 1.05
	lacks(t, performance([]record.File{f}, nil, nil, nil), "at most 1.05: **not held**")
}
