package answer

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/settle"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/golden"
	"bookend/test/must"
)

// TestMain shows all times in one time zone, wherever the tests run.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

const card0 = gpu.ID("GPU-0")

// heir is a job that got a GPU with 20 GiB of somebody else's on it and gave it back so.
func heir() ledger.Run {
	device := gpu.Device{ID: card0}
	seen := func(s settle.State, v finding.Verdict) ledger.End {
		return ledger.End{
			At: 100 * time.Second, Wall: time.Date(2026, 11, 21, 7, 35, 20, 0, time.Local),
			Snapshot: gpu.Snapshot{Readings: []gpu.Reading{{
				Device: device, Memory: gpu.Memory{Used: gpu.Bytes(20 << 30), Total: gpu.Bytes(80 << 30)},
				Processes: []gpu.Process{{PID: 70}},
			}}},
			Curves:  map[gpu.ID]settle.Curve{card0: {State: s, Looks: 1, Settled: 200 * time.Millisecond}},
			Verdict: v,
		}
	}
	start := seen(settle.Flat, finding.Verdict{Action: config.Warn, Code: "BKD-DIRTY"})
	return ledger.Run{
		Job: slurm.Job{ID: 3, Node: "n1"}, Devices: []ledger.Assigned{{Index: 0, Device: device}},
		Start: &start, Ends: []ledger.End{seen(settle.Clean, finding.Verdict{})},
	}
}

func has(t *testing.T, got string, want []string, not ...string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(got, text) {
			t.Errorf("lacks %q:\n%s", text, got)
		}
	}
	for _, text := range append(not, "\x1b") {
		if strings.Contains(got, text) {
			t.Errorf("has %q:\n%s", text, got)
		}
	}
}

// TestShow holds what is shown of a run, with heir's record changed, to testdata/show.txtar: the whole of the first, then
// the lines that the first has not.
func TestShow(t *testing.T) {
	first := ""
	golden.Archive(t, *update, "testdata/show.txtar", func(given string) string {
		r := heir()
		change := struct {
			Job        *slurm.Job  `json:"job"`
			Start, End *ledger.End // merged into what is there
		}{&r.Job, r.Start, &r.Ends[0]}
		must.Do(t, json.Unmarshal([]byte(given), &change))
		if r.Start = change.Start; change.End == nil {
			r.Ends = nil
		}
		var b strings.Builder
		NewShow("n1", "3", []ledger.Run{r}, []ledger.Run{r}, state.Recorded{}).Text(&b)
		first = cmp.Or(first, b.String())
		if b.String() == first {
			return first
		}
		more := slices.DeleteFunc(strings.SplitAfter(b.String(), "\n"),
			func(l string) bool { return strings.Contains(first, l) })
		return strings.Join(more, "")
	})
}

// A look accounts for all memory of a GPU. A test of another epoch says nothing any more.
func TestSnapshot(t *testing.T) {
	minor, at := 0, time.Date(2026, 11, 21, 8, 0, 0, 0, time.Local)
	now := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	old := now
	old.Module = "m0"
	s := gpu.Snapshot{At: 1, Readings: []gpu.Reading{{
		Device: gpu.Device{ID: card0, BusID: "0000:1b:00.0", Minor: &minor},
		Memory: gpu.Memory{Total: gpu.Bytes(1000 << 20), Reserved: gpu.Bytes(615 << 20), Used: gpu.Bytes(100 << 20),
			Free: gpu.Bytes(285 << 20)},
		Processes: []gpu.Process{{PID: 70, Memory: gpu.Bytes(90 << 20)}, {PID: 71, Memory: gpu.Bytes(1 << 20)}},
	}}}
	who := map[int]attrib.Process{70: {PID: 70, Name: "train", State: "S", Start: time.Second, EnvJobID: 7}}
	ok := gpu.Probe{Device: card0, Result: gpu.ProbeOK, Free: gpu.Bytes(4 << 20), Largest: gpu.Bytes(2 << 20),
		Attempts: 2}
	tests := map[gpu.ID]health.TestRecord{card0: {Probe: ok, Epoch: now, Wall: at},
		"GPU-1": {Probe: health.SkippedTest("GPU-1", "hung"), Epoch: old, Wall: at}}
	var b strings.Builder
	NewSnapshot(Scene{Now: s, Who: who, At: at.Add, Epoch: now}, tests, "").Text(&b)
	const want = `0000:1b:00.0 nvidia0  GPU-0  100 MiB used, 285 MiB free of 1000 MiB (615 MiB reserved by the driver itself)
  90 MiB  PID 70 (train), uid 0, state S, started 2026-11-21 08:00:01, job 7 by its environment (a hint)
  1 MiB  PID 71, unknown: no one looked
last test of GPU-0, 2026-11-21 08:00:00: test allocation: ok, largest block 2 MiB of 4 MiB free (2 attempts, 0 ms)
last test of GPU-1, 2026-11-21 08:00:00: test allocation: not made: hung; void: the driver was reloaded or the node booted since, or no one can tell
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
