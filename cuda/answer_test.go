package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/backendkit"
	"bookend/internal/gpu"
	"bookend/internal/protocol"
	"bookend/test/fakegpu"
	"bookend/test/must"
)

func TestIdleNode(t *testing.T) {
	w := world(t, "", fakegpu.Minors(2, 0, 3, 1))
	req := request(w.NVML())
	req.Op = protocol.Watch
	req.Watch = gpu.WatchRule{Max: 10 * time.Second, Flat: 5 * time.Second, SlackBytes: 32 << 20}
	all := looks(t, req)
	if len(all) != 1 {
		t.Errorf("watched clean GPUs for %d looks, want 1", len(all))
	}
	s := all[0]
	if s.At <= 0 || s.Driver.Version != "580.159.04" || s.Driver.Library != "13.580.159.04" {
		t.Errorf("got at %v, driver %+v", s.At, s.Driver)
	}
	if len(s.Readings) != 4 || len(s.Faults) != 0 {
		t.Fatalf("got %d readings, faults %v", len(s.Readings), s.Faults)
	}
	minors := []int{2, 0, 3, 1}
	for i, r := range s.Readings {
		d := r.Device
		if d.ID != gpu.ID(w.UUID(i)) || d.BusID != gpu.BusID(w.BusID(i)) || d.Name != "NVIDIA H200" ||
			d.Vendor != "nvidia" ||
			d.Minor == nil || *d.Minor != minors[i] {
			t.Errorf("GPU %d is %s", i, text(t, d))
		}
		const total, reserved = 143771 << 20, 615 << 20
		want := gpu.Memory{Total: gpu.Bytes(total), Reserved: gpu.Bytes(reserved), Used: gpu.Bytes(0),
			Free: gpu.Bytes(total - reserved)}
		if r.Memory != want {
			t.Errorf("GPU %d has memory %s", i, text(t, r.Memory))
		}
		if len(r.Processes) != 0 || r.ProcessesUnknown != "" {
			t.Errorf("GPU %d has processes %v, unknown %q", i, r.Processes, r.ProcessesUnknown)
		}
	}
}

func TestHelloNamesTheProgram(t *testing.T) {
	got := answerTo(request(world(t, "").NVML())).Hello
	if got == nil || *got != (protocol.Hello{Backend: "nvidia", Version: "test"}) {
		t.Errorf("got %+v", got)
	}
	out, err := exec.Command(program, "--version").Output()
	if err != nil || string(out) != "bookend-gpu test\n" {
		t.Errorf("--version: %q, %v", out, err)
	}
	if err := exec.Command(program, "--all").Run(); err == nil {
		t.Error("an unknown argument is accepted")
	}
}

// Attaching a card costs time and may hang: the others must stay untouched.
func TestOnlyTheCardsAskedForAreTouched(t *testing.T) {
	w := world(t, "")
	for _, other := range []string{"on.any.gpu0", "on.any.gpu3"} {
		must.Do(t, w.Set(other, "hang"))
	}
	req := request(w.NVML())
	req.All = false
	req.Devices = []gpu.Device{
		{ID: gpu.ID(w.UUID(2)), BusID: gpu.BusID(w.BusID(2))},
		{BusID: gpu.BusID(w.BusID(1))},
		{ID: gpu.ID(w.UUID(1))}, // once more, in other words
	}
	s := look(t, req)
	if len(s.Readings) != 2 || s.Readings[0].Device.ID != gpu.ID(w.UUID(2)) ||
		s.Readings[1].Device.ID != gpu.ID(w.UUID(1)) {
		t.Errorf("got %s", text(t, s.Readings))
	}
}

// One process starts NVML once, attaches all of the GPUs at the same time, reads one while another still attaches, and
// asks for their health at the same time: else these calls wait for each other, and the alarm ends the process.
func TestGPUsAreAskedInOnePass(t *testing.T) {
	for name, rules := range map[string]string{
		"attached together":         "on.nvmlDeviceGetHandleByPciBusId_v2=meet 8",
		"attached together, of all": "on.nvmlDeviceGetHandleByIndex_v2=meet 8",
		"read while one attaches": "on.nvmlDeviceGetHandleByPciBusId_v2.gpu7=meet 2, " +
			"on.nvmlDeviceGetMPSComputeRunningProcesses_v3.gpu0=meet 2 times 1",
		"read together": "on.nvmlDeviceGetMemoryInfo_v2=meet 8",
		"their health":  "on.nvmlDeviceGetTotalEccErrors=meet 8",
		"third session": "on.nvmlInit_v2=exit 9 after 2",
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t, "gpus=8, "+rules)
			req := request(w.NVML())
			req.Health, req.All = true, strings.HasSuffix(name, "all")
			for i := range 8 {
				if !req.All {
					req.Devices = append(req.Devices, gpu.Device{BusID: gpu.BusID(w.BusID(i))})
				}
			}
			a := answerTo(req)
			if len(a.Snapshots) != 1 || len(a.Snapshots[0].Readings) != 8 || req.Health && len(a.Health) != 8 {
				t.Errorf("%d looks, health of %d GPUs, troubles %v", len(a.Snapshots), len(a.Health), a.Troubles)
			}
		})
	}
}

func TestProcesses(t *testing.T) {
	w := world(t, "")
	plain := start(t, w, "alloc", "--gpu", "1", "--mib", "1000")
	client := start(t, w, "alloc", "--gpu", "1", "--mib", "500", "--list", "mps")
	r := reading(t, look(t, request(w.NVML())), w.UUID(1))
	used := must.Have(w.Used(1))(t)
	if r.Memory.Used != gpu.Bytes(used) {
		t.Errorf("got used %+v, want %d", r.Memory.Used, used)
	}
	want := map[int][]gpu.Kind{plain.PID: {gpu.Compute}, client.PID: {gpu.Compute, gpu.MPS}}
	sum := uint64(0)
	for _, p := range r.Processes {
		sum += p.Memory.Bytes
		if !slices.Equal(p.Kinds, want[p.PID]) || !p.Memory.Known() {
			t.Errorf("got %s, want kinds %v", text(t, p), want[p.PID])
		}
	}
	const hidden = 9 << 20 // of each client
	if len(r.Processes) != 2 || sum != used-2*hidden {
		t.Errorf("got %d processes with %d bytes, want 2 with %d", len(r.Processes), sum, used-2*hidden)
	}
}

func TestWatchEndsBeforeItsAlarm(t *testing.T) {
	w := world(t, "gpu0.extra_mib=5000")
	req := request(w.NVML())
	req.Op, req.DeadlineMillis = protocol.Watch, 8000
	req.Watch = gpu.WatchRule{Max: time.Minute, Flat: time.Minute}
	if all := looks(t, req); len(all) < 3 {
		t.Errorf("got %d looks", len(all))
	}
}

// go-nvml's functions must be resolved when called: at start, a driver that lacks one of them would be fatal.
func TestProgramIsLinkedLazilyAndNeedsLittle(t *testing.T) {
	f := must.Have(elf.Open(program))(t)
	defer f.Close()
	for tag, bit := range map[elf.DynTag]uint64{elf.DT_FLAGS: uint64(elf.DF_BIND_NOW),
		elf.DT_FLAGS_1: uint64(elf.DF_1_NOW)} {
		values := must.Have(f.DynValue(tag))(t)
		for _, v := range values {
			if v&bit != 0 {
				t.Errorf("%v has %#x: bound at start", tag, v)
			}
		}
	}
	needed := must.Have(f.ImportedLibraries())(t)
	for _, library := range needed {
		if !slices.Contains([]string{"libc.so.6", "libdl.so.2", "libpthread.so.0"}, library) {
			t.Errorf("needs %s", library)
		}
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	relative := request("libnvidia-ml.so.1")
	tests := map[string]struct{ input, stderr, stdout string }{
		"garbage":          {"hello\n", "garbage", ""},
		"relative library": {line(t, relative), "not an absolute path", "hello"},
		// The hook has to see which version there is.
		"another version": {`{"bookend":2}` + "\n", "wrong version", `"kind":"hello"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := startByHand(t, tt.input)
			if end := p.wait(t); end.ExitCode() != backendkit.Refused {
				t.Errorf("ended with %v", end)
			}
			if !strings.Contains(p.stderr.String(), tt.stderr) || !strings.Contains(p.stdout.String(), tt.stdout) ||
				tt.stdout == "" && p.stdout.Len() > 0 {
				t.Errorf("got stderr %q, stdout %q", &p.stderr, &p.stdout)
			}
		})
	}
}

// A driver that does not answer leaves two ways out: the program's own alarm, and the end of its stdin.
func TestHang(t *testing.T) {
	w := world(t, "on.nvmlInit_v2=hang")
	soon, late := request(w.NVML()), request(w.NVML())
	soon.DeadlineMillis = 200
	byAlarm := func(t *testing.T, p *byHand) {
		if status := p.wait(t).Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGALRM {
			t.Errorf("ended with %v", p.cmd.ProcessState)
		}
		if !strings.Contains(p.stdout.String(), `"kind":"hello"`) {
			t.Errorf("said %q before", &p.stdout)
		}
	}
	t.Run("alarm", func(t *testing.T) { byAlarm(t, startByHand(t, line(t, soon))) })
	t.Run("alarm blocked by the parent", func(t *testing.T) {
		byAlarm(t, startByHand(t, line(t, soon), "/usr/bin/env", "--block-signal=ALRM"))
	})
	t.Run("alarm ignored by the parent", func(t *testing.T) {
		byAlarm(t, startByHand(t, line(t, soon), "/usr/bin/env", "--ignore-signal=ALRM"))
	})
	t.Run("stdin closed", func(t *testing.T) {
		p := startByHand(t, line(t, late))
		must.Do(t, p.stdin.Close())
		if end := p.wait(t); end.ExitCode() != backendkit.Stopped {
			t.Errorf("ended with %v", end)
		}
	})
	t.Run("second request", func(t *testing.T) {
		p := startByHand(t, line(t, late))
		_, _ = p.stdin.Write([]byte(line(t, late)))
		if end := p.wait(t); end.ExitCode() != backendkit.Stopped && end.ExitCode() != backendkit.Refused { // both came at once
			t.Errorf("ended with %v", end)
		}
	})
}

func TestNoLibrary(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "libnvidia-ml.so.1")
	must.Do(t, os.WriteFile(bad, []byte("not a library, however long this text may be made"), 0o755))
	for path, want := range map[string]gpu.FaultCode{filepath.Join(dir, "absent.so"): gpu.FaultNoLibrary,
		bad: gpu.FaultForbidden} {
		a := answerTo(request(path))
		if len(a.Troubles) > 0 || !a.Complete || len(a.Faults) != 1 || a.Faults[0].Code != want ||
			!strings.Contains(a.Faults[0].Detail, path) {
			t.Errorf("%s: got faults %v, troubles %v", path, a.Faults, a.Troubles)
		}
	}
}
