package answer

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/settle"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

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

func documented(r ledger.Run) Show {
	return NewShow(r.Job.Node, "", []ledger.Run{r}, []ledger.Run{r}, state.Recorded{})
}

// shown is what is told of heir with its end changed.
func shown(change func(r *ledger.Run, end *ledger.End)) string {
	r := heir()
	change(&r, &r.Ends[0])
	var b strings.Builder
	documented(r).Text(&b)
	return b.String()
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

// A GPU that was dirty at the start and is so at the end must not be called clean.
func TestJobOnADirtyCard(t *testing.T) {
	const columns = `  GPU 0  GPU-0  80.0 GiB
                   start                     end
    used           20.0 GiB                  20.0 GiB
    free           0 MiB                     0 MiB
    largest block  not tested                not tested
    processes      1                         1
    watched        flat over 0.0 s (1 look)  no more than at the start after 0.2 s (1 look)
start: `
	const still = ", clean; still there from before: 20.0 GiB\n"
	has(t, shown(func(*ledger.Run, *ledger.End) {}), []string{columns, still}, "clean after")
	has(t, shown(func(r *ledger.Run, _ *ledger.End) { r.Start.Curves[card0] = settle.Curve{State: settle.Clean} }),
		[]string{"clean after 0.2 s (1 look)"}, "still there")
	for _, used := range []gpu.Figure{gpu.Bytes(0), gpu.Unknown("not read")} {
		has(t, shown(func(_ *ledger.Run, e *ledger.End) { e.Snapshot.Readings[0].Memory.Used = used }),
			[]string{", clean\n"}, "still there")
	}
	status := statusText(Node{Name: "n1", Runs: []ledger.Run{heir()}})
	has(t, status, []string{"\n3    0    uid 0  ended 07:35:20  clean; still there from before: 20.0 GiB; at its start: warn (BKD-DIRTY)\n"})
}

// What a record leaves out, or no one saw, is said.
func TestWhatIsMissing(t *testing.T) {
	rest := "left out of the record, which would be too large: candidates 7, holdings 352\n"
	has(t, shown(func(_ *ledger.Run, e *ledger.End) { e.Rest = map[string]int{"holdings": 352, "candidates": 7} }),
		[]string{rest})
	has(t, shown(func(r *ledger.Run, _ *ledger.End) { r.Start, r.Ends = nil, nil }),
		[]string{"start: no record", "no record", "end: not yet"})
	unseen := func(r *ledger.Run, e *ledger.End) { r.Start, e.Unseen = nil, "the node has booted since" }
	has(t, shown(unseen), []string{"end: 2026-11-21 07:35:20, not seen: the node has booted since\n"})
	r := heir()
	unseen(&r, &r.Ends[0])
	has(t, statusText(Node{Runs: []ledger.Run{r}}),
		[]string{"\n3    0    uid 0  began unknown  not seen: the node has booted since\n"})
}

func TestFindings(t *testing.T) {
	index := 0
	own := &finding.Owner{Job: 3, UID: 5, Level: finding.ByExclusive}
	for name, tt := range map[string]struct {
		found finding.Finding
		want  []string
	}{
		"its own process": {
			finding.Finding{Code: code.Orphan, Index: &index, Bytes: gpu.Bytes(1 << 30), Owner: own,
				Holder: &finding.Holder{Process: finding.Process{PID: 70, Name: "train", UID: 5, State: "S",
					Start: 90 * time.Second}}},
			[]string{
				"\n  BKD-ORPHAN GPU 0: process outlived its job [warn]\n    memory:   1.0 GiB\n",
				"    process:  PID 70 (train), uid 5, state S, started 2026-11-21 07:35:10\n",
				"    job:      3 (uid 5), evidence: exclusive (it came while the job had the GPU alone)\n",
			},
		},
		"no process": {finding.Finding{Code: code.Residue, Index: &index, Owner: own},
			[]string{"    job:      3 (uid 5), evidence: exclusive (it came while the job had the GPU alone)\n"}},
		"no GPU": {finding.Finding{Code: code.BadConfig, Observed: "config: \x1b[2J"},
			[]string{"\n  BKD-CONFIG: configuration is not valid [warn]\n", `seen:     config: \x1b[2J`}},
		// A job on a GPU it was not given may be one that no one here knows: then its user is not root for that.
		"a trespasser": {
			finding.Finding{Code: code.Trespass, GPU: "GPU-3", Unknown: "no record",
				Owner:  &finding.Owner{Job: 555, Level: finding.ByCgroup},
				Holder: &finding.Holder{Process: finding.Process{PID: 70, Name: "train", UID: 1001}}},
			[]string{"\n  BKD-TRESPASS GPU-3: job on a GPU it was not given [warn]\n",
				"    job:      555 (uid unknown), evidence: cgroup ("},
		},
		"a trespasser of whom nothing is known": {
			finding.Finding{Code: code.Trespass, GPU: "GPU-9", Unknown: "no record",
				Owner:  &finding.Owner{SLUID: "s0123456789ABC", Level: finding.BySighting},
				Holder: &finding.Holder{Process: finding.Process{PID: 71, Why: "denied"}}},
			[]string{"\n  BKD-TRESPASS GPU-9: job", "    job:      s0123456789ABC (uid unknown), evidence: sighting (",
				"PID 71, unknown: denied"},
		},
		"candidates": {
			finding.Finding{Code: code.Residue, GPU: card0, Searched: true, Candidates: []finding.Holder{{
				Process: finding.Process{PID: 71, UID: 1000, Name: "a) R (b\n", State: "S", Container: "docker:0123"},
				Classes: []finding.Class{finding.Exported, finding.Container}, Open: []string{"nvidiactl"},
				Owner: &finding.Owner{Job: 7, Level: finding.BySighting},
			}}},
			[]string{`maybe:    PID 71 (a) R (b\x0a)`, "uid 1000", "exported container", "in docker:0123",
				"has open nvidiactl, job 7 by sighting",
				"search:   every process of the node was looked into; 1 may hold it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			has(t, shown(func(_ *ledger.Run, e *ledger.End) {
				e.Findings = []finding.Finding{tt.found}
			}), tt.want)
		})
	}
}

// A start may have its test of an earlier hook. Of another GPU nothing is said.
func TestTestAllocations(t *testing.T) {
	broken := &gpu.CallError{Call: "cuInit", Code: 802, Name: "CUDA_ERROR_SYSTEM_NOT_READY",
		Meaning: "not \x1b[2Jready", Remedy: "wait"}
	times := gpu.ProbeTimes{Init: 200 * time.Millisecond, Release: 10 * time.Millisecond}
	for _, tt := range []struct {
		gpu.Probe
		want string
	}{
		{gpu.Probe{Result: gpu.ProbeOK, Free: gpu.Bytes(900 << 20), Largest: gpu.Bytes(898 << 20), Attempts: 2,
			At: 40 * time.Second, Times: times},
			"ok, largest block 898 MiB of 900 MiB free (2 attempts, 210 ms), tested at 2026-11-21 07:34:20"},
		{gpu.Probe{Result: gpu.ProbeBroken, At: 201 * time.Second, Error: broken},
			`broken: cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802); not \x1b[2Jready; wait`},
		{gpu.Probe{Result: gpu.ProbeSkipped, Why: "others may use it"}, "not made: others may use it"},
		{gpu.Probe{Result: gpu.ProbeGap, Free: gpu.Bytes(900 << 20), Largest: gpu.Unknown("x"),
			Attempts: 1},
			"gap, largest block unknown of 900 MiB free (1 attempt, 0 ms)"},
		{gpu.Probe{Result: gpu.ProbeBroken, Why: "the backend crashed"}, "broken: the backend crashed"},
	} {
		tt.Device = card0
		got := shown(func(_ *ledger.Run, e *ledger.End) {
			e.Probes = []gpu.Probe{{Device: "GPU-9", Result: gpu.ProbeOK}, tt.Probe}
		})
		if want := "\n  GPU 0  test allocation: " + tt.want + "\n"; !strings.Contains(got, want) ||
			strings.Count(got, "test allocation") != 1 {
			t.Errorf("lacks %q, or has another:\n%s", want, got)
		}
	}
}

// A look accounts for all memory of a GPU. A test of another epoch says nothing any more.
func TestSnapshot(t *testing.T) {
	minor, at := 0, time.Date(2026, 11, 21, 8, 0, 0, 0, time.Local)
	now := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	old := now
	old.Module = "m0"
	s := gpu.Snapshot{Readings: []gpu.Reading{{
		Device: gpu.Device{ID: card0, BusID: "0000:1b:00.0", Minor: &minor},
		Memory: gpu.Memory{Total: gpu.Bytes(1000 << 20), Reserved: gpu.Bytes(615 << 20), Used: gpu.Bytes(100 << 20),
			Free: gpu.Bytes(285 << 20)},
		Processes: []gpu.Process{{PID: 70, Memory: gpu.Bytes(90 << 20)},
			{PID: Others, Memory: gpu.Bytes(1 << 20)}},
	}}}
	who := map[int]finding.Process{70: {PID: 70, Name: "train", State: "S", Start: time.Second, EnvJobID: 7}}
	ok := gpu.Probe{Device: card0, Result: gpu.ProbeOK, Free: gpu.Bytes(4 << 20), Largest: gpu.Bytes(2 << 20),
		Attempts: 2}
	tests := map[gpu.ID]health.TestRecord{card0: {Probe: ok, Epoch: now, Wall: at},
		"GPU-1": {Probe: health.SkippedTest("GPU-1", "hung"), Epoch: old, Wall: at}}
	var b strings.Builder
	NewSnapshot(s, who, at.Add, tests, now).Text(&b)
	const want = `0000:1b:00.0 nvidia0  GPU-0  100 MiB used, 285 MiB free of 1000 MiB (615 MiB reserved by the driver itself)
  90 MiB  PID 70 (train), uid 0, state S, started 2026-11-21 08:00:01, job 7 by its environment (a hint)
  1 MiB  another user's process
last test of GPU-0, 2026-11-21 08:00:00: test allocation: ok, largest block 2 MiB of 4 MiB free (2 attempts, 0 ms)
last test of GPU-1, 2026-11-21 08:00:00: test allocation: not made: hung; void: the driver was reloaded or the node booted since, or no one can tell
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
