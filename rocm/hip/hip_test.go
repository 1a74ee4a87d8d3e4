package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/protocol"
	"bookend/test/build"
	"bookend/test/fakeamd"
	"bookend/test/must"
)

var program string

func TestMain(m *testing.M) { build.Main(m, "bookend-hip", &program) }

const gib = 1 << 30

var (
	cards = []fakeamd.Card{
		{Bus: "0000:26:00.0", Minor: 128, UniqueID: "a1b2c3d4e5f60718", Total: 192 * gib},
		{Bus: "0000:46:00.0", Minor: 136, UniqueID: "a1b2c3d4e5f60719", Total: 192 * gib},
	}
	first  = gpu.Device{ID: "GPU-a1b2c3d4e5f60718", BusID: "0000:26:00.0"}
	second = gpu.Device{ID: "GPU-a1b2c3d4e5f60719", BusID: "0000:46:00.0"}
)

// request asks for test allocations on a node whose HIP library does so.
func request(t *testing.T, w *fakeamd.World, devices []gpu.Device, lines ...string) protocol.Request {
	t.Helper()
	locks := map[gpu.ID]string{}
	for i, d := range devices {
		locks[d.ID] = filepath.Join(t.TempDir(), fmt.Sprint(i))
	}
	return protocol.Request{
		Op: protocol.Probe, Devices: devices, DeadlineMillis: 120_000,
		Probe:   gpu.ProbeRule{Gap: 64 << 20, Locks: locks, LockWait: 100 * time.Millisecond},
		Options: protocol.Options{"proc": w.Proc, "sys": w.Sys, "hip_library": must.Have(w.HIP(lines...))(t)},
	}
}

func TestHIP(t *testing.T) {
	one := []gpu.Device{first}
	for name, tt := range map[string]struct {
		devices []gpu.Device
		lines   []string
		so      func(*fakeamd.World)
		want    string // result and words of each
	}{
		"idle":     {one, nil, nil, "ok 196606 MiB: "},
		"of two":   {[]gpu.Device{second, first}, nil, func(w *fakeamd.World) { w.Use(1, gib) }, "ok 196606 MiB: ok 195582 MiB: "},
		"in use":   {one, nil, func(w *fakeamd.World) { w.Use(0, 46*gib) }, "ok 149502 MiB: "},
		"in parts": {one, []string{fmt.Sprintf("largest %d", 100*gib)}, nil, "gap 102400 MiB: "},
		"no block": {one, []string{"largest 0"}, nil, "blocked 0 MiB: hipMemCreate: hipErrorOutOfMemory (2)"},
		"a failure": {one, []string{"fails hipMemCreate 999"}, nil,
			"broken 0 MiB: hipMemCreate: hipErrorUnknown (999)"},
		"it does not start": {one, []string{"fails hipInit 100"}, nil, "broken 0 MiB: hipInit: hipErrorNoDevice (100)"},
		"it hangs at its start": {one, []string{"hangs hipInit"}, nil,
			"skipped 0 MiB: HIP did not start within"},
		"a process is there": {one, nil, func(w *fakeamd.World) { w.Compute(10, 128, gib) },
			"skipped 0 MiB: another process is on the GPU: 10"},
		"a process of DRM": {one, nil, func(w *fakeamd.World) { w.Open(10, 5, 0, fakeamd.Info(1, 1<<20)) },
			"skipped 0 MiB: another process is on the GPU: 10"},
		"not by hipMemCreate": {one, []string{"fails hipMemCreate 801"}, nil,
			"skipped 0 MiB: its memory cannot be had without a context"},
		"a partition": {[]gpu.Device{{ID: first.ID + "/renderD129", BusID: first.BusID}}, nil, nil,
			"skipped 0 MiB: partitions are not tested"},
		"without an id": {[]gpu.Device{{ID: "PCI-0000:26:00.0", BusID: first.BusID}}, nil, nil,
			"skipped 0 MiB: the GPU has no unique id"},
		"gone": {[]gpu.Device{{ID: "GPU-0", BusID: "0000:26:00.0"}}, nil, nil,
			"skipped 0 MiB: the driver has no such GPU"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fakeamd.New(t.TempDir(), cards...)
			if tt.so != nil {
				tt.so(w)
			}
			r := request(t, w, tt.devices, tt.lines...)
			if slices.Contains(tt.lines, "hangs hipInit") { // until there is no time left
				r.DeadlineMillis = 3000
			}
			a := node.Ask(node.Params{Path: program}, r)
			got := ""
			for _, p := range a.Probes {
				got += fmt.Sprintf("%s %d MiB: %s", p.Result, p.Largest.Bytes>>20, p.Why)
			}
			if !strings.HasPrefix(got, tt.want) || len(a.Troubles) > 0 || !a.Complete {
				t.Errorf("got %q, want %q: %+v", got, tt.want, a)
			}
			calls := w.Calls()
			gave := slices.Contains(calls, "hipMemRelease")
			if took := strings.HasPrefix(tt.want, "ok") || strings.HasPrefix(tt.want, "gap"); took != gave {
				t.Errorf("%v", calls)
			}
		})
	}
}

// ROCm sees the devices that were asked for and no others, whatever this process was given. What hangs with memory in
// its hands ends with its alarm.
func TestHIPAlone(t *testing.T) {
	w := fakeamd.New(t.TempDir(), cards...)
	t.Setenv("ROCR_VISIBLE_DEVICES", "0")
	node.Ask(node.Params{Path: program}, request(t, w, []gpu.Device{second}))
	if calls := w.Calls(); len(calls) < 2 || calls[1] != string(second.ID) {
		t.Errorf("%v", calls)
	}
	r := request(t, w, []gpu.Device{first}, "hangs hipMemRelease")
	r.DeadlineMillis = 1000
	if a := node.Ask(node.Params{Path: program}, r); a.Complete || len(a.Troubles) == 0 || a.Abandoned != nil {
		t.Errorf("%+v", a)
	}
	r.Op, r.All = protocol.Snapshot, true
	if a := node.Ask(node.Params{Path: program}, r); len(a.Troubles) == 0 {
		t.Error("it served a snapshot")
	}
}
