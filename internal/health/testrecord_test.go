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
		"clean":                      {nil, ""},
		"flat with what is expected": {at(settle.Flat), ""},
		"a little memory": {func(_ *finding.Scene, r *gpu.Reading) { r.Memory.Used = gpu.Bytes(31 << 20) },
			""},
		"a service of the node": {with70(7), ""},
		"moving":                {at(settle.Moving), "not at rest"},
		"never judged":          {at(""), "not at rest"},
		"unread": {func(s *finding.Scene, _ *gpu.Reading) {
			s.Now.Curves[card0] = settle.Curve{State: settle.Unknown, Why: "lost"}
		}, "could not be read"},
		"no reading": {func(_ *finding.Scene, r *gpu.Reading) { r.Device.ID = "GPU-9" },
			"could not be read"},
		"list unknown": {func(_ *finding.Scene, r *gpu.Reading) { r.ProcessesUnknown = "old" },
			"who is on it"},
		"a service's PID, reused": {with70(8), "a process is on it"},
		"a service through MPS":   {with70(7, gpu.MPS), "MPS"},
		"memory of no one's": {func(_ *finding.Scene, r *gpu.Reading) { r.Memory.Used = gpu.Bytes(32 << 20) },
			"in use"},
		"memory unknown": {func(_ *finding.Scene, r *gpu.Reading) { r.Memory.Used = gpu.Unknown("old") },
			"could not be told: old"},
		"a driver with its own share": {func(_ *finding.Scene, r *gpu.Reading) { r.Memory.UsedHasReserved = true },
			"could not be told"},
		"a process of the job": {func(s *finding.Scene, r *gpu.Reading) {
			r.Processes = []gpu.Process{{PID: 71, Memory: gpu.Bytes(0)}}
		}, "a process is on it"},
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
		"perhaps given to one":        {live(attrib.Record{Job: 7, Unplaced: true}), "another live job"},
		"given to a job that is over": {live(attrib.Record{Job: 7, GPUs: []gpu.ID{card0}, End: 1}), ""},
		"a live job elsewhere":        {live(attrib.Record{Job: 7, GPUs: []gpu.ID{"GPU-1"}}), ""},
		"busy":                        {TestCase{Scene: scene(with70(8))}, "a process is on it"},
		"a fault of the GPU":          {found(code.Lost, card0), "BKD-LOST"},
		"a reset is called for":       {found(code.Recovery, card0), "BKD-RECOVERY"},
		"a fault of another GPU":      {found(code.Lost, "GPU-1"), ""},
		"the driver has hung":         {found(code.Hang, ""), "BKD-HANG"},
		"the driver is old":           {found(code.Old, ""), ""},
		"a note on the GPU":           {found(code.Ended, card0), ""},
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

func TestPlanOfInstancesAndNamelessCards(t *testing.T) {
	instance := idle
	instance.Device.Parent = "GPU-P"
	if test, _ := (TestCase{Scene: scene(nil)}).Plan([]finding.Card{instance}); len(test) != 0 {
		t.Errorf("a MIG instance: %+v", test)
	}
	if test, skipped := (TestCase{Scene: scene(nil)}).Plan([]finding.Card{{}}); len(test) != 0 || len(skipped) != 1 {
		t.Errorf("a GPU without id: %+v %+v", test, skipped)
	}
}

func TestKnown(t *testing.T) {
	c := TestCase{Scene: scene(with70(7))}
	if got := c.Known([]finding.Card{idle, idle}); len(got) != 1 || got[0] != 70 {
		t.Errorf("got %v", got)
	}
	if got := c.Known(nil); len(got) != 0 {
		t.Errorf("of no GPU: %v", got)
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
		"just young enough":           {func(_ *TestRecord, n *SinceTest) { n.At = 25 * time.Hour }, ""},
		"too old":                     {func(_ *TestRecord, n *SinceTest) { n.At = 25*time.Hour + 1 }, "older than 24h"},
		"of the future":               {func(_ *TestRecord, n *SinceTest) { n.At = 0 }, "older"},
		"an Xid":                      {func(_ *TestRecord, n *SinceTest) { n.Kernel = xid(51, bus0) }, "Xid 79"},
		"an Xid of no one knows what": {func(_ *TestRecord, n *SinceTest) { n.Kernel = xid(51, "") }, "Xid 79"},
		"an Xid before":               {func(_ *TestRecord, n *SinceTest) { n.Kernel = xid(50, bus0) }, ""},
		"an Xid of another GPU":       {func(_ *TestRecord, n *SinceTest) { n.Kernel = xid(51, "0000:3d:00.0") }, ""},
		"log not read":                {func(_ *TestRecord, n *SinceTest) { n.Kernel = nil }, "not read"},
		"log not read then": {func(r *TestRecord, _ *SinceTest) { r.Kernel = gpu.KernelMark{} },
			"not read at that time"},
		"log unreadable": {func(_ *TestRecord, n *SinceTest) { n.Kernel = &gpu.KernelLog{Unknown: "EPERM"} },
			"could not be read"},
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
