package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/nodefiles"
	"bookend/internal/protocol"
	"bookend/test/build"
	"bookend/test/fakeamd"
	"bookend/test/must"
	"bookend/test/rig"
)

var program string

func TestMain(m *testing.M) { build.Main(m, "bookend-amd", &program) }

const gib = 1 << 30

// The kinds of nodes that there are.
var (
	mi300x = fakeamd.Card{Bus: "0000:26:00.0", Minor: 128, UniqueID: "a1b2c3d4e5f60718", Name: "AMD Instinct MI300X",
		Total: 192 * gib, RAS: "ue: 0\nce: 3"}
	another   = fakeamd.Card{Bus: "0000:46:00.0", Minor: 136, UniqueID: "a1b2c3d4e5f60719", Total: 192 * gib}
	mi300a    = fakeamd.Card{Bus: "0000:01:00.0", Minor: 128, UniqueID: "00000000000000a0", Total: 128 * gib, APU: true}
	cpx       = fakeamd.Card{Bus: "0000:26:00.0", Minor: 128, UniqueID: "a1b2c3d4e5f60718", Total: 192 * gib, Partitions: []int{128, 129, 130}}
	consumer  = fakeamd.Card{Bus: "0000:03:00.0", Minor: 128, Total: 24 * gib}
	graphical = fakeamd.Card{Bus: "0000:03:00.0", Minor: 128, Total: 24 * gib, NoKFD: true}
	// MI250: two dies, each a card of its own.
	dies = []fakeamd.Card{{Bus: "0000:c1:00.0", Minor: 128, UniqueID: "00000000000000d1", Total: 64 * gib},
		{Bus: "0000:c6:00.0", Minor: 129, UniqueID: "00000000000000d2", Total: 64 * gib}}
)

func request(w *fakeamd.World, op protocol.Op) protocol.Request {
	return protocol.Request{Op: op, All: true, DeadlineMillis: 120_000, Health: true,
		Options: protocol.Options{"proc": w.Proc, "sys": w.Sys}}
}

func ask(t *testing.T, r protocol.Request) node.Answer {
	t.Helper()
	a := node.Ask(node.Params{Path: program}, r)
	if len(a.Troubles) > 0 || !a.Complete {
		t.Fatalf("%+v", a)
	}
	return a
}

// said words a look: a line for each device, one for each of its processes, one for each fault.
func said(a node.Answer) string {
	var b strings.Builder
	for _, s := range a.Snapshots {
		for _, r := range s.Readings {
			fmt.Fprintf(&b, "%s %s %s", r.Device.ID, r.Device.Node(), size(r.Memory.Used))
			for _, why := range []string{r.Memory.Unjudged, r.ProcessesUnknown, r.KnownBad} {
				if why != "" {
					fmt.Fprintf(&b, " (%s)", why)
				}
			}
			for _, p := range r.Processes {
				fmt.Fprintf(&b, "; %d %s %s", p.PID, size(p.Memory), p.Kinds[0])
			}
			b.WriteString("\n")
		}
		for _, f := range s.Faults {
			fmt.Fprintf(&b, "%s %s%s: %s\n", f.Code, f.Device, f.BusID, f.Detail)
		}
	}
	for _, f := range a.Faults {
		fmt.Fprintf(&b, "%s: %s\n", f.Code, f.Detail)
	}
	return b.String()
}

func size(f gpu.Figure) string {
	if !f.Known() {
		return "unknown: " + f.Unknown
	}
	return fmt.Sprintf("%d MiB", f.Bytes>>20)
}

func TestLook(t *testing.T) {
	one := []fakeamd.Card{mi300x}
	for name, tt := range map[string]struct {
		cards []fakeamd.Card
		so    func(*fakeamd.World)
		want  string
	}{
		"what the driver keeps": {one, func(w *fakeamd.World) { w.Use(0, 300<<20) }, "GPU-a1b2c3d4e5f60718 renderD128 0 MiB\n"},
		"idle":                  {one, func(*fakeamd.World) {}, "GPU-a1b2c3d4e5f60718 renderD128 0 MiB\n"},
		"two dies": {dies, func(w *fakeamd.World) { w.Use(1, gib); w.Compute(10, 129, gib) },
			"GPU-00000000000000d1 renderD128 0 MiB\nGPU-00000000000000d2 renderD129 1024 MiB; 10 1024 MiB compute\n"},
		"a process": {one, func(w *fakeamd.World) { w.Use(0, 9*gib); w.Compute(10, 128, 8*gib) },
			"GPU-a1b2c3d4e5f60718 renderD128 8704 MiB; 10 8192 MiB compute\n"},
		"two contexts": {one, func(w *fakeamd.World) {
			w.Use(0, 3*gib)
			w.Compute(10, 128, gib)
			w.Second(10, 128, gib)
			w.Third(10, 128, gib)
		},
			"GPU-a1b2c3d4e5f60718 renderD128 3072 MiB; 10 3072 MiB compute\n"},
		"a process on another card": {[]fakeamd.Card{mi300x, another}, func(w *fakeamd.World) {
			w.Use(1, gib)
			w.Compute(10, 136, gib)
			w.Compute(10, 128, 0)
		}, "GPU-a1b2c3d4e5f60718 renderD128 0 MiB\nGPU-a1b2c3d4e5f60719 renderD136 1024 MiB; 10 1024 MiB compute\n"},
		"nothing but an open kfd": {one, func(w *fakeamd.World) { w.Compute(10, 128, 0) }, "GPU-a1b2c3d4e5f60718 renderD128 0 MiB\n"},
		"a queue without memory":  {one, func(w *fakeamd.World) { w.Queue(10, 128) }, "GPU-a1b2c3d4e5f60718 renderD128 0 MiB; 10 0 MiB compute\n"},
		"fdinfo tells more": {one, func(w *fakeamd.World) {
			w.Use(0, 11*gib)
			w.Compute(10, 128, 8*gib)
			w.Open(10, 5, 0, fakeamd.Info(1, 9*gib))
			w.Open(10, 6, 0, fakeamd.Info(1, 9*gib)) // the same opening
			w.Open(10, 7, 0, fakeamd.Info(2, gib))
		}, "GPU-a1b2c3d4e5f60718 renderD128 10752 MiB; 10 10240 MiB compute\n"},
		"fdinfo contradicts": {one, func(w *fakeamd.World) { w.Compute(10, 128, 8*gib); w.Open(10, 5, 0, fakeamd.Info(1, gib)) },
			"GPU-a1b2c3d4e5f60718 renderD128 0 MiB; 10 unknown: KFD counts 8192 MiB, fdinfo 1024 MiB compute\n"},
		"a display server": {[]fakeamd.Card{consumer}, func(w *fakeamd.World) { w.Use(0, gib); w.Open(20, 5, 0, fakeamd.Info(1, gib)) },
			"PCI-0000:03:00.0 renderD128 1024 MiB; 20 1024 MiB graphics\n"},
		"one that is not asked: nothing is unexplained": {[]fakeamd.Card{consumer}, func(w *fakeamd.World) {
			w.Use(0, 16<<20)
			w.Open(20, 5, 0, fakeamd.Info(1, 16<<20))
		}, "PCI-0000:03:00.0 renderD128 0 MiB\n"},
		"an older kernel": {[]fakeamd.Card{consumer}, func(w *fakeamd.World) {
			w.Use(0, gib)
			w.Open(20, 5, 0, "drm-driver:\tamdgpu\ndrm-client-id:\t7\ndrm-pdev:\tBUS\ndrm-memory-vram:\t1048576 KiB\n")
		}, "PCI-0000:03:00.0 renderD128 1024 MiB; 20 1024 MiB graphics\n"},
		"a file of a user's that calls itself so": {[]fakeamd.Card{consumer}, func(w *fakeamd.World) {
			w.Use(0, gib)
			w.Open(20, 5, 0, "")
			w.Open(20, 6, 0, strings.Replace(fakeamd.Info(1, gib), "amdgpu", "mygpu", 1))
		}, "PCI-0000:03:00.0 renderD128 512 MiB\n"},
		"without KFD": {[]fakeamd.Card{graphical}, func(w *fakeamd.World) { w.Use(0, gib); w.Open(20, 5, 0, fakeamd.Info(1, gib)) },
			"PCI-0000:03:00.0 renderD128 1024 MiB; 20 1024 MiB graphics\n"},
		"a dma-buf that nobody is listed for": {one, func(w *fakeamd.World) { w.Use(0, 46*gib) }, "GPU-a1b2c3d4e5f60718 renderD128 46592 MiB\n"},
		"a driver that keeps memory": {one, func(w *fakeamd.World) {
			w.Use(0, gib)
			w.Put("6.16.6\n", "module/amdgpu/version")
		}, "GPU-a1b2c3d4e5f60718 renderD128 512 MiB (" + nodefiles.KnownBadAMD["6.16.6"] + ")\n"},
		"a stale entry": {one, func(w *fakeamd.World) { w.Compute(4711, 128, gib) },
			"GPU-a1b2c3d4e5f60718 renderD128 0 MiB; 4711 unknown: processes count 1024 MiB, the GPU 0 MiB compute\n"},
		"partitions": {[]fakeamd.Card{cpx}, func(w *fakeamd.World) { w.Use(0, 9*gib); w.Compute(10, 129, gib) },
			"GPU-a1b2c3d4e5f60718/renderD128 renderD128 unknown: PART (PART)\n" +
				"GPU-a1b2c3d4e5f60718/renderD129 renderD129 unknown: PART (PART); 10 1024 MiB compute\n" +
				"GPU-a1b2c3d4e5f60718/renderD130 renderD130 unknown: PART (PART)\n"},
		"memory of the host's": {[]fakeamd.Card{mi300a}, func(w *fakeamd.World) { w.Use(0, 9*gib) },
			"GPU-00000000000000a0 renderD128 8704 MiB (the GPU shares the host's memory (APU))\n"},
		"more than there is": {one, func(w *fakeamd.World) { w.Use(0, 200*gib) },
			"GPU-a1b2c3d4e5f60718 renderD128 unknown: USED\ndriver_error GPU-a1b2c3d4e5f607180000:26:00.0: USED\n"},
		"no figure": {one, func(w *fakeamd.World) { w.Put("\n", "bus/pci/devices/0000:26:00.0/mem_info_vram_used") },
			"GPU-a1b2c3d4e5f60718 renderD128 unknown: EMPTY\ndriver_error GPU-a1b2c3d4e5f607180000:26:00.0: EMPTY\n"},
		"a figure of KFD's that is none": {one, func(w *fakeamd.World) {
			w.Compute(10, 128, gib)
			w.Put("?", "class/kfd/kfd/proc/10/vram_40128")
		}, "GPU-a1b2c3d4e5f60718 renderD128 0 MiB (KFD)\n"},
		"no module": {one, func(w *fakeamd.World) { w.Without("module/amdgpu") }, "no_driver: the module amdgpu is not loaded\n"},
		"no card":   {nil, func(*fakeamd.World) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := fakeamd.New(t.TempDir(), tt.cards...)
			tt.so(w)
			got := said(ask(t, request(w, protocol.Snapshot)))
			device := w.Sys + "/bus/pci/devices/0000:26:00.0/mem_info_vram_used"
			got = strings.NewReplacer(partitionWhy, "PART", fmt.Sprintf("mem_info_vram_used: %d bytes of %d", 200*gib, 192*gib), "USED",
				fmt.Sprintf("read %q: \"\" is not a number", device), "EMPTY",
				fmt.Sprintf("read KFD's process 10: read %q: \"?\" is not a number", w.Sys+"/class/kfd/kfd/proc/10/vram_40128"), "KFD",
			).Replace(got)
			if got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

const partitionWhy = "a partition: its driver tells the memory of the whole GPU alone"

// A device is asked for by its id, or by its place where no id is known; one that is not there is a fault.
func TestAskedFor(t *testing.T) {
	w := fakeamd.New(t.TempDir(), mi300x, another)
	r := request(w, protocol.Snapshot)
	r.All, r.Devices = false, []gpu.Device{{ID: "GPU-a1b2c3d4e5f60719"}, {BusID: "0000:26:00.0"}, {ID: "GPU-0", BusID: "0000:99:00.0"}}
	want := "GPU-a1b2c3d4e5f60719 renderD136 0 MiB\nGPU-a1b2c3d4e5f60718 renderD128 0 MiB\n" +
		"no_device GPU-00000:99:00.0: the driver has no such GPU\n"
	if got := said(ask(t, r)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// The entry of a process goes before its memory does: a watch sees both go, and ends.
func TestWatch(t *testing.T) {
	w := fakeamd.New(t.TempDir(), mi300x)
	w.Use(0, 9*gib)
	w.Compute(10, 128, 9*gib)
	r := request(w, protocol.Watch)
	r.Watch = gpu.WatchRule{Max: 100 * time.Second, Flat: 50 * time.Second, SlackBytes: 32 << 20}
	reads := must.Have(rig.WatchOpenings(filepath.Join(w.Sys, "bus/pci/devices", mi300x.Bus, "mem_info_vram_used")))(t)
	defer reads.Close()
	go func() {
		for _, change := range []func(){func() { w.Gone(10) }, func() { w.Use(0, 0) }} {
			_ = errors.Join(reads.Next(time.Minute), reads.Next(time.Minute)) // the look before is over
			change()
		}
	}()
	looks := ask(t, r).Snapshots
	last := looks[len(looks)-1].Readings[0]
	if len(looks) < 3 || looks[0].Readings[0].Memory.Used.Bytes != 9*gib || last.Memory.Used.Bytes != 0 || len(last.Processes) > 0 {
		t.Errorf("%d looks, the last %+v", len(looks), last)
	}
}

func TestCondition(t *testing.T) {
	for text, want := range map[string]gpu.Fact{
		"":              {},
		"ue: 0\nce: 3":  {Value: "0"},
		"ue: 12\nce: 3": {Value: "12"},
		"broken":        {Unknown: `"broken"`},
	} {
		c := mi300x
		c.RAS = text
		h := ask(t, request(fakeamd.New(t.TempDir(), c), protocol.Snapshot)).Health
		if text == "" {
			if len(h) != 1 || len(h[0].Facts) > 0 {
				t.Errorf("without RAS: %+v", h)
			}
			continue
		}
		want.Code, want.Source = gpu.ECCUncorrected, "ras/umc_err_count"
		if len(h) != 1 || len(h[0].Facts) != 1 || h[0].Facts[0] != want {
			t.Errorf("%q: got %+v, want %+v", text, h, want)
		}
	}
}

// A recording goes on until it is stopped.
func TestOtherRequests(t *testing.T) {
	r := request(fakeamd.New(t.TempDir(), mi300x), protocol.Record)
	r.Watch = gpu.WatchRule{Every: 100 * time.Millisecond}
	stop, n := make(chan struct{}), 0
	a := node.Ask(node.Params{Path: program, Stop: stop, OnLook: func(s gpu.Snapshot) {
		if n++; n == 3 {
			close(stop)
		}
	}}, r)
	if n < 3 || len(a.Troubles) > 0 {
		t.Errorf("%d looks, then %+v", n, a.Troubles)
	}
	r.Options = nil
	if a := node.Ask(node.Params{Path: program}, r); len(a.Troubles) == 0 {
		t.Error("it looked without roots")
	}
}
