package health

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

const (
	card0 gpu.ID = "GPU-0"
	bus0         = gpu.BusID("0000:1b:00.0")
)

var (
	epoch = gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	idle  = finding.Card{Device: gpu.Device{ID: card0, BusID: bus0}}
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

// scene is a start or end at which the card was seen clean, after changes.
func scene(change func(*finding.Scene, *gpu.Reading)) finding.Scene {
	r := gpu.Reading{Device: idle.Device, Memory: gpu.Memory{Total: gpu.Bytes(80 << 30), Used: gpu.Bytes(0)}}
	s := finding.Scene{
		Cards: []finding.Card{idle}, Limits: finding.Limits{Report: 32 << 20, PerClient: 9 << 20},
		Now: finding.Side{Curves: map[gpu.ID]settle.Curve{card0: {State: settle.Clean}},
			Processes: map[int]attrib.Process{}},
	}
	if change != nil {
		change(&s, &r)
	}
	s.Now.Snapshot.Readings = append(s.Now.Snapshot.Readings, r)
	return s
}

// with70 puts a process on the card that the baseline knows as a service started at this second.
func with70(second int, kinds ...gpu.Kind) func(*finding.Scene, *gpu.Reading) {
	return func(s *finding.Scene, r *gpu.Reading) {
		r.Memory.Used = gpu.Bytes(15 << 20)
		r.Processes = []gpu.Process{{PID: 70, Memory: gpu.Bytes(6 << 20), Kinds: kinds}}
		s.Now.Processes[70] = attrib.Process{PID: 70, Start: time.Duration(second) * time.Second}
		s.Baselines = map[gpu.ID]finding.Baseline{card0: {GPU: card0,
			Residents: []finding.Resident{{PID: 70, Start: 7 * time.Second}}}}
	}
}

func TestBusy(t *testing.T) {
	at := func(state settle.State) func(*finding.Scene, *gpu.Reading) {
		return func(s *finding.Scene, _ *gpu.Reading) { s.Now.Curves[card0] = settle.Curve{State: state} }
	}
	for name, tt := range map[string]struct {
		change func(*finding.Scene, *gpu.Reading)
		want   string // part of the reason, empty for none
	}{
		"clean": {nil, ""},
		"a little memory": {func(_ *finding.Scene, r *gpu.Reading) { r.Memory.Used = gpu.Bytes(31 << 20) },
			""},
		"a service of the node": {with70(7), ""},
		"never judged":          {at(""), "not at rest"},
		"unread": {func(s *finding.Scene, _ *gpu.Reading) {
			s.Now.Curves[card0] = settle.Curve{State: settle.Unknown, Why: "lost"}
		}, "could not be read"},
		"list unknown": {func(_ *finding.Scene, r *gpu.Reading) { r.ProcessesUnknown = "old" },
			"who is on it"},
		"a service's PID, reused": {with70(8), "a process is on it"},
		"a service through MPS":   {with70(7, gpu.MPS), "MPS"},
		"memory of no one's": {func(_ *finding.Scene, r *gpu.Reading) { r.Memory.Used = gpu.Bytes(32 << 20) },
			"in use"},
		"a driver with its own share": {func(_ *finding.Scene, r *gpu.Reading) { r.Memory.UsedHasReserved = true },
			"could not be told"},
		// What the start already showed counts as clean at the end, and is somebody's all the same.
		"clean beside what was there before": {func(_ *finding.Scene, r *gpu.Reading) {
			r.Memory.Used = gpu.Bytes(20 << 30)
		}, "in use"},
	} {
		got := Busy(scene(tt.change), idle)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestPlan(t *testing.T) {
	on := func(change func(*TestCase)) TestCase {
		c := TestCase{Scene: scene(nil)}
		change(&c)
		return c
	}
	found := func(c code.Code, id gpu.ID) TestCase {
		return on(func(k *TestCase) { k.Found = []finding.Finding{{Code: c, GPU: id}} })
	}
	live := func(r attrib.Record) TestCase { return on(func(c *TestCase) { c.Scene.Others = []attrib.Record{r} }) }
	for name, tt := range map[string]struct {
		c    TestCase
		want string
	}{
		"alone":          {on(func(*TestCase) {}), ""},
		"inside the job": {on(func(c *TestCase) { c.InJob = true }), "inside the job"},
		"a second end":   {on(func(c *TestCase) { c.Again = true }), "another hook"},
		"shards":         {on(func(c *TestCase) { c.Scene.Shared = "shards" }), "others may use it: shards"},
		"perhaps shards": {on(func(c *TestCase) { c.Scene.SharedUnknown = "no gres.conf" }),
			"could not be told: no gres.conf"},
		"given to a live job":         {live(attrib.Record{Job: 7, GPUs: []gpu.ID{card0}}), "another live job"},
		"given to a job that is over": {live(attrib.Record{Job: 7, GPUs: []gpu.ID{card0}, End: 1}), ""},
		"busy":                        {TestCase{Scene: scene(with70(8))}, "a process is on it"},
		"a fault of the GPU":          {found(code.Lost, card0), "BKD-LOST"},
		"a reset is called for":       {found(code.Recovery, card0), "BKD-RECOVERY"},
		"the driver has hung":         {found(code.Hang, ""), "BKD-HANG"},
		"the driver is old":           {found(code.Old, ""), ""},
		"a fault of Bookend's own":    {found(code.StateWrite, ""), ""},
	} {
		test, skipped := tt.c.Plan([]finding.Card{idle})
		switch {
		case tt.want == "" && (len(test) != 1 || len(skipped) != 0):
			t.Errorf("%s: not tested: %+v", name, skipped)
		case tt.want != "" && (len(test) != 0 || len(skipped) != 1 || skipped[0].Result != gpu.ProbeSkipped ||
			skipped[0].Device != card0 ||
			skipped[0].Free.Known() || !strings.Contains(skipped[0].Why, tt.want)):
			t.Errorf("%s: tested %+v, skipped %+v", name, test, skipped)
		}
	}
}

func TestTrusted(t *testing.T) {
	good := TestRecord{Probe: gpu.Probe{Device: card0, Result: gpu.ProbeOK, At: time.Hour}, Epoch: epoch,
		Kernel: gpu.KernelMark{Seq: 50, At: 1}}
	xid := func(seq uint64, bus gpu.BusID) *gpu.KernelLog {
		return &gpu.KernelLog{Xids: []gpu.Xid{{KernelMark: gpu.KernelMark{Seq: seq}, BusID: bus, Code: 79}}}
	}
	for name, tt := range map[string]struct {
		change func(*TestRecord, *SinceTest)
		want   string
	}{
		"nothing has changed": {func(*TestRecord, *SinceTest) {}, ""},
		"bad news":            {func(r *TestRecord, _ *SinceTest) { r.Probe.Result = gpu.ProbeBroken }, ""},
		"nothing tested":      {func(r *TestRecord, _ *SinceTest) { r.Probe.Result = gpu.ProbeSkipped }, "no result"},
		"reloaded":            {func(_ *TestRecord, n *SinceTest) { n.Epoch.Module = "m2" }, "reloaded"},
		"epoch unknown": {func(r *TestRecord, n *SinceTest) { r.Epoch, n.Epoch = gpu.Epoch{}, gpu.Epoch{} },
			"reloaded"},
		"too old":                     {func(_ *TestRecord, n *SinceTest) { n.At = 25*time.Hour + 1 }, "older than 24h"},
		"an Xid":                      {func(_ *TestRecord, n *SinceTest) { n.Kernel = xid(51, bus0) }, "Xid 79"},
		"an Xid of no one knows what": {func(_ *TestRecord, n *SinceTest) { n.Kernel = xid(51, "") }, "Xid 79"},
		"an Xid before":               {func(_ *TestRecord, n *SinceTest) { n.Kernel = xid(50, bus0) }, ""},
		"an Xid of another GPU":       {func(_ *TestRecord, n *SinceTest) { n.Kernel = xid(51, "0000:3d:00.0") }, ""},
		"log not read then": {func(r *TestRecord, _ *SinceTest) { r.Kernel = gpu.KernelMark{} },
			"not read at that time"},
		"log overwritten":   {func(_ *TestRecord, n *SinceTest) { n.Kernel = &gpu.KernelLog{Lost: true} }, "missing"},
		"somebody is on it": {func(_ *TestRecord, n *SinceTest) { n.Scene = scene(with70(8)) }, "a process"},
	} {
		r, n := good, SinceTest{At: 2 * time.Hour, Epoch: epoch, Kernel: &gpu.KernelLog{},
			Scene: scene(nil), Card: idle}
		tt.change(&r, &n)
		ok, why := r.Trusted(n)
		if ok != (tt.want == "") || ok != (why == "") || !strings.Contains(why, tt.want) {
			t.Errorf("%s: %v, %q, want %q", name, ok, why, tt.want)
		}
	}
}

func failed(call string, number int, name string) *gpu.CallError {
	return &gpu.CallError{Call: call, Code: number, Name: name, Meaning: "it means this.", Remedy: "do that."}
}

func broken(e *gpu.CallError) gpu.Probe {
	return gpu.Probe{Device: card0, Result: gpu.ProbeBroken, Error: e, Why: "the reason"}
}

func TestWhatTestsFind(t *testing.T) {
	earlier := time.Date(2026, 11, 21, 12, 3, 0, 0, time.UTC)
	full := gpu.Probe{Device: card0, Result: gpu.ProbeBlocked, Free: gpu.Bytes(9 << 30),
		Error: failed("cuMemCreate", 2, "CUDA_ERROR_OUT_OF_MEMORY")}
	for name, tt := range map[string]struct {
		o      Outcome
		card   finding.Card
		code   code.Code // empty: no finding
		says   string
		doubts int
	}{
		"ok":      {Outcome{Probe: gpu.Probe{Device: card0, Result: gpu.ProbeOK}}, idle, "", "", 0},
		"skipped": {Outcome{Probe: SkippedTest(card0, "shared")}, idle, "", "", 0},
		"gap": {
			Outcome{Probe: gpu.Probe{Device: card0, Result: gpu.ProbeGap, Free: gpu.Bytes(900 << 20),
				Largest: gpu.Bytes(100 << 20), Attempts: 22}, Seen: 1},
			idle, code.Gap, "900 MiB free, but at most 100 MiB in one block, after 22 attempts", 0,
		},
		"blocked, by two": {Outcome{Probe: full, Seen: 2}, idle, code.Blocked,
			"none of 9.0 GiB free could be allocated: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2)", 0},
		"blocked by a mode": {Outcome{Probe: gpu.Probe{Device: card0, Result: gpu.ProbeBlocked, Why: "mode",
			Free: gpu.Unknown("x")}, Seen: 2}, idle, code.Blocked, "mode", 1},
		"broken, by two": {
			Outcome{Probe: broken(failed("cuInit", 802, "CUDA_ERROR_SYSTEM_NOT_READY")), Seen: 2}, idle, code.Broken,
			"cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802); the reason; it means this; do that", 0,
		},
		"broken, by one": {Outcome{Probe: broken(failed("cuInit", 802, "X")), Seen: 1}, idle, code.Broken,
			"cuInit", 1},
		"no library": {Outcome{Probe: broken(failed("dlopen", 0, "no CUDA library")), Seen: 2}, idle,
			code.Broken, "dlopen: no CUDA library; the reason", 1},
		"a crash, twice": {Outcome{Probe: broken(nil), Seen: 2}, idle, code.Broken, "the reason", 1},
		"an earlier hook's": {Outcome{Probe: broken(failed("cuInit", 999, "X")), Seen: 2, Earlier: earlier}, idle,
			code.Broken, "tested at 2026-11-21 12:03:00 UTC", 1},
	} {
		got := FoundByTests([]finding.Card{tt.card}, []Outcome{tt.o})
		if tt.code == "" {
			if len(got) != 0 {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Code != tt.code || got[0].GPU != card0 || got[0].Index == nil ||
			!strings.Contains(got[0].Observed, tt.says) ||
			len(got[0].Doubts) != tt.doubts || got[0].Expected == "" || got[0].Unknown != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Errors that the test's own surroundings lead to prove nothing of the GPU.
func TestOwnSurroundings(t *testing.T) {
	for _, number := range gpu.NVIDIA.Surroundings {
		o := Outcome{Probe: broken(failed("cuInit", number, "X")), Seen: 2}
		if got := FoundByTests([]finding.Card{idle}, []Outcome{o}); len(got) != 1 || len(got[0].Doubts) != 1 {
			t.Errorf("%d: %+v", number, got)
		}
	}
}

func TestGapIsMemory(t *testing.T) {
	p := gpu.Probe{Device: card0, Result: gpu.ProbeGap, Free: gpu.Bytes(900 << 20), Largest: gpu.Bytes(100 << 20)}
	if f := FoundByTests([]finding.Card{idle}, []Outcome{{Probe: p}}); f[0].Bytes != gpu.Bytes(800<<20) {
		t.Errorf("%+v", f[0].Bytes)
	}
	p.Largest = gpu.Unknown("not read")
	if f := FoundByTests([]finding.Card{idle}, []Outcome{{Probe: p}}); f[0].Bytes.Known() ||
		!strings.Contains(f[0].Observed, "an unknown amount") {
		t.Errorf("%+v", f[0])
	}
}

// Two processes that agree are surer than one; where they do not, the later one is believed, but not for certain.
func TestAgain(t *testing.T) {
	first := Outcome{Probe: broken(failed("cuInit", 999, "X")), Seen: 1}
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
	if got := first.Again(SkippedTest(card0, "hung")); got.Error == nil || got.Error.Code != 999 {
		t.Errorf("no answer is no news: %+v", got)
	}
}

// A card that was not tested for another's sake is tested alone; one that may not be tested is not asked for again.
func TestRetry(t *testing.T) {
	started := SkippedTest(card0, "CUDA does not show it")
	started.Times.Init = time.Millisecond
	for name, tt := range map[string]struct {
		p           gpu.Probe
		alone, with bool
	}{
		"broken":           {broken(nil), true, true},
		"ok":               {gpu.Probe{Result: gpu.ProbeOK}, false, false},
		"gap":              {gpu.Probe{Result: gpu.ProbeGap}, false, false},
		"not to be tested": {SkippedTest(card0, "mode"), false, false},
		"not seen":         {started, false, true},
	} {
		o := Outcome{Probe: tt.p}
		if o.Retry(false) != tt.alone || o.Retry(true) != tt.with {
			t.Errorf("%s: alone %v, with others %v", name, o.Retry(false), o.Retry(true))
		}
	}
}
