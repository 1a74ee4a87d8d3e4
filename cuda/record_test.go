package main

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/protocol"
	"bookend/test/fakegpu"
	"bookend/test/must"
)

// recording is a recording at work: its looks, and what came of it once it has ended.
type recording struct {
	looks chan gpu.Snapshot
	stop  chan struct{}
	ended chan node.Answer
	pid   int
}

func record(t *testing.T, w *fakegpu.World, devices ...gpu.Device) *recording {
	t.Helper()
	r := &recording{looks: make(chan gpu.Snapshot, 1000), stop: make(chan struct{}), ended: make(chan node.Answer, 1)}
	born := make(chan int, 1)
	req := request(w.NVML())
	req.Op, req.All, req.Devices, req.Watch = protocol.Record, false, devices, gpu.WatchRule{Every: 100 * time.Millisecond}
	go func() {
		r.ended <- node.Ask(node.Params{Path: program, Stop: r.stop,
			Started: func(pid int, _ uint64) { born <- pid },
			OnLook:  func(s gpu.Snapshot) { r.looks <- s }}, req)
	}()
	r.pid = <-born
	return r
}

func (r *recording) until(t *testing.T, what string, is func(gpu.Reading) bool) gpu.Reading {
	t.Helper()
	for deadline := time.After(2 * time.Minute); ; {
		select {
		case s := <-r.looks:
			if len(s.Readings) == 1 && is(s.Readings[0]) {
				return s.Readings[0]
			}
		case a := <-r.ended:
			t.Fatalf("ended before %s: %+v", what, a)
		case <-deadline:
			t.Fatalf("no look with %s", what)
		}
	}
}

func first(w *fakegpu.World) gpu.Device { return gpu.Device{ID: gpu.ID(w.UUID(0))} }

// Its looks follow what is on the GPU, until it is told to stop; others' GPUs are not touched.
func TestRecord(t *testing.T) {
	w := world(t, "gpus=2, gpu0.busy=71")
	r := record(t, w, first(w))
	idle := r.until(t, "an idle GPU", func(r gpu.Reading) bool { return len(r.Processes) == 0 })
	if idle.Device.ID != gpu.ID(w.UUID(0)) || idle.Busy == nil || *idle.Busy != (gpu.Busy{GPU: 71, Memory: 35}) {
		t.Errorf("%+v", idle)
	}
	p := start(t, w, "alloc", "--mib", "4096")
	r.until(t, "the process", func(r gpu.Reading) bool {
		return len(r.Processes) == 1 && r.Processes[0].PID == p.PID && r.Memory.Used.Bytes>>20 >= 4096
	})
	p.End()
	r.until(t, "its end", func(r gpu.Reading) bool { return len(r.Processes) == 0 && r.Memory.Used.Bytes == 0 })
	// Nothing else changes: the other lists are read again all the same.
	if err := w.Set("gpu0.list", "4711:0:graphics"); err != nil {
		t.Fatal(err)
	}
	r.until(t, "a graphics process", func(r gpu.Reading) bool { return len(r.Processes) == 1 })
	close(r.stop)
	if a := <-r.ended; a.Abandoned != nil || a.Panic != nil || len(a.Troubles) > 0 {
		t.Errorf("%+v", a)
	}
}

// What the driver reports of its GPUs as it happens comes with the next sample: not what came before, not of other GPUs,
// and not twice. A GPU or driver without such events is recorded without them.
func TestRecordEvents(t *testing.T) {
	w := world(t, "gpus=4, gpu0.events=8:13, gpu2.event_types=0, gpu3.mig=1, on.nvmlDeviceGetHandleByPciBusId_v2.gpu0=rc 999 times 1")
	r := record(t, w, cardOf(w, 0), cardOf(w, 1), cardOf(w, 2), cardOf(w, 3))
	next := func(is func(gpu.Snapshot) bool) (s gpu.Snapshot) {
		for s = <-r.looks; !is(s); s = <-r.looks {
		}
		return s
	}
	if s := next(func(s gpu.Snapshot) bool { return len(s.Readings) == 4 }); len(s.Events) > 0 {
		t.Errorf("before anything happened: %+v", s.Events)
	}
	for key, value := range map[string]string{"gpu0.events": "8:13 8:79 1:0 0x8000:1", "gpu1.events": "8:0 0x4000:0",
		"gpu2.events": "8:48", "gpu3.events": "8:48"} {
		must.Do(t, w.Set(key, value))
	}
	var all []gpu.Event
	for len(all) < 4 {
		all = append(all, next(func(s gpu.Snapshot) bool { return len(s.Events) > 0 }).Events...)
	}
	a, b := gpu.ID(w.UUID(0)), gpu.ID(w.UUID(1))
	want := []gpu.Event{{Device: a, Code: 79}, {Device: a, Code: gpu.EventRecovery}, {Device: b, Code: gpu.UnknownXid},
		{Device: b, Code: gpu.EventUnavailable}}
	for _, e := range want {
		if !slices.Contains(all, e) || len(all) != len(want) {
			t.Fatalf("%+v, want %+v", all, want)
		}
	}
	for _, rule := range []string{"rc 15", "crash"} { // it is asked once more, and never again
		must.Do(t, w.Set("on.nvmlEventSetWait_v2", rule))
		set := child.SystemClock().Boot()
		next(func(s gpu.Snapshot) bool { return s.At > set })
		next(func(gpu.Snapshot) bool { return true })
	}
	close(r.stop)
	if a := <-r.ended; len(a.Troubles) > 0 {
		t.Errorf("%+v", a)
	}
}

// Without persistence mode it ends with the last process, so that the driver can unload.
func TestRecordLetsGo(t *testing.T) {
	w := world(t, "gpus=1, gpu0.persistence=0")
	p := start(t, w, "alloc", "--mib", "64")
	r := record(t, w, first(w))
	r.until(t, "the process", func(r gpu.Reading) bool { return len(r.Processes) == 1 })
	p.End()
	select {
	case a := <-r.ended:
		if len(a.Troubles) > 0 {
			t.Errorf("%+v", a.Troubles)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it goes on")
	}
}

// A backend that dies, or says what cannot be, ends the recording with that.
func TestRecordFails(t *testing.T) {
	w := world(t, "")
	r := record(t, w, first(w))
	r.until(t, "a GPU", func(gpu.Reading) bool { return true })
	if err := syscall.Kill(r.pid, syscall.SIGSEGV); err != nil {
		t.Fatal(err)
	}
	if a := <-r.ended; len(a.Troubles) != 1 || a.Troubles[0].Code != catalog.BackendCrash {
		t.Errorf("%+v", a.Troubles)
	}
	liar := t.TempDir() + "/liar"
	if err := os.WriteFile(liar, []byte("#!/bin/sh\necho '{\"bookend\":1,\"kind\":\"snapshot\"}'\nsleep 100\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	req := request(w.NVML())
	req.Op, req.Watch = protocol.Record, gpu.WatchRule{Every: time.Second}
	a := node.Ask(node.Params{Path: liar, OnLook: func(gpu.Snapshot) {}}, req)
	if len(a.Troubles) != 1 || a.Troubles[0].Code != catalog.BackendGarbage {
		t.Errorf("%+v", a.Troubles)
	}
}
