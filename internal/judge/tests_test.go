package judge

import (
	"encoding/json"
	"flag"
	"fmt"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/compare"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

const (
	card0 gpu.ID = "GPU-0"
	bus0         = gpu.BusID("0000:1b:00.0")
)

var (
	epoch = gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	idle  = record.Assigned{Device: gpu.Device{ID: card0, BusID: bus0}}
)

func TestWhen(t *testing.T) {
	for at, want := range map[config.ProbeAt][2]bool{
		config.ProbeNever: {false, false}, config.ProbeProlog: {true, false}, config.ProbeEpilog: {false, true},
		config.ProbeBoth: {true, true},
	} {
		for i, phase := range []slurm.Context{slurm.Prolog, slurm.Epilog} {
			if got := WhenTested(at, phase); got != want[i] {
				t.Errorf("%s, %s: %v", at, phase, got)
			}
		}
		if WhenTested(at, slurm.TaskEpilog) {
			t.Errorf("%s: a task hook tests", at)
		}
	}
}

// scene returns a start or end at which the GPU was clean, after changes.
func scene(change func(*compare.Input, *gpu.Reading)) compare.Input {
	r := gpu.Reading{Device: idle.Device, Memory: gpu.Memory{Total: gpu.Bytes(80 << 30), Used: gpu.Bytes(0)}}
	s := compare.Input{
		Cards: []record.Assigned{idle}, Limits: record.Limits{Report: 32 << 20, PerClient: 9 << 20},
		Now: record.Side{Curves: map[gpu.ID]record.Curve{card0: {State: record.Clean}},
			Processes: map[int]record.Process{}},
	}
	if change != nil {
		change(&s, &r)
	}
	s.Now.Snapshot.Readings = append(s.Now.Snapshot.Readings, r)
	return s
}

// with70 puts a process on the GPU that its baseline knows as a service that started at this second.
func with70(second int, kinds ...gpu.Kind) func(*compare.Input, *gpu.Reading) {
	return func(s *compare.Input, r *gpu.Reading) {
		r.Memory.Used = gpu.Bytes(15 << 20)
		r.Processes = []gpu.Process{{PID: 70, Memory: gpu.Bytes(6 << 20), Kinds: kinds}}
		s.Now.Processes[70] = record.Process{PID: 70, Start: time.Duration(second) * time.Second}
		s.Baselines = map[gpu.ID]record.Baseline{card0: {GPU: card0,
			Residents: []record.Resident{{PID: 70, Start: 7 * time.Second}}}}
	}
}

// A GPU is busy by its memory, by its curve, and by process 70 unless its baseline has that process with its start.
func TestBusy(t *testing.T) {
	golden.Lines(t, *update, "testdata/busy.txt", func(given string) string {
		b := struct {
			Second  int
			Kinds   []gpu.Kind
			Curve   record.Curve
			Reading gpu.Reading
		}{Curve: record.Curve{State: record.Clean}}
		b.Reading.Memory.Used = gpu.Bytes(0)
		must.Do(t, json.Unmarshal([]byte(given), &b))
		return Busy(scene(func(s *compare.Input, r *gpu.Reading) {
			s.Now.Curves[card0] = b.Curve
			r.ProcessesUnknown = b.Reading.ProcessesUnknown
			if r.Memory.Used = b.Reading.Memory.Used; b.Second > 0 {
				with70(b.Second, b.Kinds...)(s, r)
			}
		}), idle)
	})
}

// What a hook knows, and why it must not test; nothing where it may.
func TestPlan(t *testing.T) {
	golden.Lines(t, *update, "testdata/plans.txt", func(given string) string {
		c := TestCase{Scene: scene(nil)}
		must.Do(t, json.Unmarshal([]byte(given), &c))
		test, skipped := c.Plan([]record.Assigned{idle})
		if len(test)+len(skipped) != 1 {
			t.Errorf("%s: tested %+v, skipped %+v", given, test, skipped)
		}
		if len(skipped) == 0 {
			return ""
		}
		if p := skipped[0]; p.Result != gpu.ProbeSkipped || p.Device != card0 || p.Free.Known() {
			t.Errorf("%s: %+v", given, p)
		}
		return skipped[0].Why
	})
	busy := TestCase{Scene: scene(with70(8))}
	if test, skipped := busy.Plan([]record.Assigned{idle}); len(test) > 0 || len(skipped) != 1 {
		t.Errorf("busy: tested %+v", test)
	}
}

// What was tested an hour after the boot and what is known an hour later, and whether the test is trusted.
func TestHolds(t *testing.T) {
	on := func(now compare.Input, given string) string {
		var c struct {
			Test record.TestRecord
			Now  SinceTest
		}
		c.Test = record.TestRecord{Probe: gpu.Probe{Device: card0, Result: gpu.ProbeOK, At: time.Hour}, Epoch: epoch,
			Kernel: gpu.KernelMark{Seq: 50, At: 1}}
		c.Now = SinceTest{At: 2 * time.Hour, Epoch: epoch, Kernel: &gpu.KernelLog{}, Scene: now, Card: idle, MaxAge: TestMaxAge}
		must.Do(t, json.Unmarshal([]byte(given), &c))
		return fmt.Sprint(c.Now.Trusts(c.Test))
	}
	golden.Lines(t, *update, "testdata/trusted.txt", func(given string) string { return on(scene(nil), given) })
	if on(scene(with70(8)), "{}") == "true" {
		t.Error("somebody is on it")
	}
}

// What a job's end knows an hour after the test that its start trusted, and whether it tests again.
func TestWorn(t *testing.T) {
	golden.Lines(t, *update, "testdata/worn.txt", func(given string) string {
		var c struct {
			Test record.TestRecord
			Now  AtEnd
			Slow bool
		}
		tested := gpu.Probe{Device: card0, Result: gpu.ProbeOK, At: time.Hour}
		c.Test = record.TestRecord{Probe: tested, Epoch: epoch, Kernel: gpu.KernelMark{Seq: 50, At: 1}}
		now := scene(nil)
		c.Now = AtEnd{SinceTest: SinceTest{At: 2 * time.Hour, Epoch: epoch, Kernel: &gpu.KernelLog{}, Card: idle,
			MaxAge: 3 * time.Hour}, Start: tested, Job: slurm.ExitStatus{Known: true},
			AfterJobs: 10}
		must.Do(t, json.Unmarshal([]byte(given), &c))
		if c.Slow {
			now.Now.Curves = map[gpu.ID]record.Curve{card0: {State: record.Clean, Settled: 2 * time.Second}}
		}
		c.Now.Scene = now
		return fmt.Sprint(c.Now.Outdates(c.Test))
	})
}

func failed(call string, number int, name string) *gpu.CallError {
	return &gpu.CallError{Call: call, Code: number, Name: name, Meaning: "it means this.", Remedy: "do that."}
}

func broken(e *gpu.CallError) gpu.Probe {
	return gpu.Probe{Device: card0, Result: gpu.ProbeBroken, Error: e, Why: "the reason"}
}

// A test allocation leads to a finding and may be made again. A GPU tested alone differs from one of several.
func TestOutcomes(t *testing.T) {
	golden.Lines(t, *update, "testdata/outcomes.txt", func(given string) string {
		o := TestResult{Probe: gpu.Probe{Device: card0}}
		must.Do(t, json.Unmarshal([]byte(given), &o))
		said := fmt.Sprintf("again: %v, %v", o.Retry(false), o.Retry(true))
		for _, f := range FoundByTests([]record.Assigned{idle}, []TestResult{o}) {
			said += ", finding: " + string(must.Have(json.Marshal(f))(t))
		}
		return said
	})
}

// When a test also writes and reads a GPU's memory: after a sign of a fault of this GPU, and as often as the site says.
func TestPatternDue(t *testing.T) {
	const hour = time.Hour
	made := func(ago time.Duration) gpu.Probe {
		return gpu.Probe{Result: gpu.ProbeOK, Pattern: &gpu.Pattern{At: 100*hour - ago, Bytes: 1 << 30}}
	}
	found := func(c catalog.Code, xid int, id gpu.ID) record.Finding {
		return record.Finding{Code: c, Xid: xid, GPU: id}
	}
	for name, tt := range map[string]struct {
		found record.Finding
		last  gpu.Probe
		every time.Duration
		want  bool
	}{
		"nothing":                        {},
		"a leftover":                     {found: found(catalog.Residue, 0, card0)},
		"memory errors":                  {found: found(catalog.ECC, 0, card0), last: made(hour), want: true},
		"another GPU's":                  {found: found(catalog.ECC, 0, "GPU-1")},
		"a program's Xid":                {found: found(catalog.Xid, 31, card0)},
		"a contained memory error":       {found: found(catalog.Xid, 94, card0), want: true},
		"a bad test":                     {last: gpu.Probe{Result: gpu.ProbeBroken}, want: true},
		"a remap":                        {found: found(catalog.RemapPending, 0, card0), want: true},
		"a remap, tested today":          {found: found(catalog.RemapPending, 0, card0), last: made(hour)},
		"a remap, tested yesterday":      {found: found(catalog.RemapPending, 0, card0), last: made(25 * hour), want: true},
		"each week, a remap, yesterday":  {found(catalog.RemapPending, 0, card0), made(25 * hour), 168 * hour, true},
		"each day, never":                {every: 24 * hour, want: true},
		"each day, yesterday":            {last: made(24 * hour), every: 24 * hour, want: true},
		"each day, today":                {last: made(23 * hour), every: 24 * hour},
		"each day, not finished":         {last: gpu.Probe{Pattern: &gpu.Pattern{At: 99 * hour}}, every: 24 * hour, want: true},
		"each day, not finished now":     {last: gpu.Probe{Pattern: &gpu.Pattern{At: 100*hour - 1}}, every: 24 * hour},
		"each day, from before the boot": {last: made(-hour), every: 24 * hour, want: true},
	} {
		found := []record.Finding{tt.found}
		if got := PatternDue(card0, found, tt.last, tt.every, 100*hour); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// Errors that the test's own surroundings lead to prove nothing of the GPU.
func TestOwnSurroundings(t *testing.T) {
	for _, number := range gpu.NVIDIA.Surroundings {
		o := TestResult{Probe: broken(failed("cuInit", number, "X")), Seen: 2}
		if got := FoundByTests([]record.Assigned{idle}, []TestResult{o}); len(got) != 1 || len(got[0].Doubts) != 1 {
			t.Errorf("%d: %+v", number, got)
		}
	}
}

// Two processes that agree are surer than one; where they do not, the later one is believed, but not for certain.
func TestAgain(t *testing.T) {
	first := TestResult{Probe: broken(failed("cuInit", 999, "X")), Seen: 1}
	ok := gpu.Probe{Device: card0, Result: gpu.ProbeOK}
	for name, tt := range map[string]struct {
		second gpu.Probe
		want   gpu.ProbeResult
		seen   int
	}{
		"the same":   {broken(failed("cuInit", 999, "X")), gpu.ProbeBroken, 2},
		"a crash":    {broken(nil), gpu.ProbeBroken, 1},
		"well again": {ok, gpu.ProbeOK, 1},
		"no answer":  {SkippedTest(card0, "hung"), gpu.ProbeBroken, 1},
	} {
		if got := first.Again(tt.second); got.Result != tt.want || got.Seen != tt.seen {
			t.Errorf("%s: %+v", name, got)
		}
	}
	wrong := TestResult{Probe: gpu.Probe{Device: card0, Result: gpu.ProbeWrong}, Seen: 1}
	for second, seen := range map[gpu.ProbeResult]int{
		gpu.ProbeOK: 1, gpu.ProbeSkipped: 1, gpu.ProbeBroken: 1, gpu.ProbeWrong: 2,
	} {
		if got := wrong.Again(gpu.Probe{Device: card0, Result: second}); got.Result != gpu.ProbeWrong || got.Seen != seen {
			t.Errorf("wrong bits, then %s: %+v", second, got)
		}
	}
	if got := first.Again(SkippedTest(card0, "hung")); got.Error == nil || got.Error.Code != 999 {
		t.Errorf("no answer is no news: %+v", got)
	}
}

var update = flag.Bool("update", false, "rewrite testdata")

// A slow pattern test is found once, by the hook that made it, and drains nothing.
func TestSlowMemory(t *testing.T) {
	o := TestResult{Probe: gpu.Probe{Device: card0, Result: gpu.ProbeOK, Pattern: &gpu.Pattern{Bytes: 1 << 30, Slow: "1.0 GiB read in 9 ms"}}}
	found := FoundByTests([]record.Assigned{idle}, []TestResult{o})
	must.Not(t, len(found) != 1 || found[0].Code != catalog.SlowMemory || found[0].GPU != card0, "got %+v", found)
	e, _ := catalog.Lookup(found[0].Code)
	must.Not(t, e.NeverDrains() == "", "it can drain")
	o.Earlier = time.Unix(1, 0)
	must.Be(t, "of an earlier hook's test", len(FoundByTests([]record.Assigned{idle}, []TestResult{o})), 0)
}
