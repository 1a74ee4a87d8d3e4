package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/fakegpu"
)

func TestTrusted(t *testing.T) {
	at := func(gi, ci uint32) place { return place{gi, ci} }
	of := func(gi uint32) device {
		return device{Device: gpu.Device{ID: "MIG-1", Parent: "GPU-1"}, at: at(gi, 0)}
	}
	shared := of(1)
	shared.shared = true
	whole := device{Device: gpu.Device{ID: "GPU-1"}}
	one := func(pid uint32, used uint64) []entry {
		return []entry{{pid: 1, at: noInstance}, {pid, used, noInstance}}
	}
	tests := map[string]struct {
		device  device
		entries []entry
		total   gpu.Figure
		kept    int
		why     string
	}{
		"a process":            {whole, one(100, 5), gpu.Bytes(5), 2, ""},
		"no memory":            {whole, one(2, 0), gpu.Bytes(5), 2, ""},
		"memory not available": {whole, one(2, notAvailable), gpu.Bytes(5), 2, ""},
		"total unknown":        {whole, one(2, 1<<40), gpu.Unknown("why"), 2, ""},
		"pid 0":                {whole, one(0, 5), gpu.Bytes(5), 0, "process 0 of at most 100"},
		"pid above the limit":  {whole, one(101, 5), gpu.Bytes(5), 0, "process 101 of at most 100"},
		"pid of all ones":      {whole, one(^uint32(0), 0), gpu.Bytes(5), 0, "of at most 100"},
		"more than there is":   {whole, one(2, 6), gpu.Bytes(5), 0, "process 2 with 6 bytes of 5"},
		"more than can be":     {whole, one(2, 1<<60), gpu.Unknown("why"), 0, "process 2 with"},
		"the same line twice":  {whole, one(1, 0), gpu.Bytes(5), 2, ""},
		"twice, contradicting": {whole, one(1, 4), gpu.Bytes(5), 0, "process 1 twice, with 0 and 4 bytes"},
		"on two instances":     {whole, []entry{{1, 2, at(1, 0)}, {1, 3, at(2, 0)}}, gpu.Bytes(5), 2, ""},
		"on no such instance":  {whole, []entry{{1, 2, at(526, 0)}}, gpu.Bytes(5), 0, "on MIG instance 526/0"},

		"the instance's own":              {of(1), []entry{{1, 2, at(1, 0)}}, gpu.Bytes(5), 1, ""},
		"a sibling's":                     {of(1), []entry{{1, 2, at(1, 0)}, {2, 9, at(2, 0)}}, gpu.Bytes(5), 1, ""},
		"a sibling's alone":               {of(1), []entry{{2, 2, at(2, 0)}}, gpu.Bytes(5), 0, ""},
		"a sibling's, impossible":         {of(1), []entry{{0, 2, at(2, 0)}}, gpu.Bytes(5), 0, "process 0"},
		"a process on both":               {of(1), []entry{{1, 2, at(1, 0)}, {1, 9, at(2, 0)}}, gpu.Bytes(5), 1, ""},
		"of no instance":                  {of(1), one(2, 2), gpu.Bytes(5), 0, "no telling on which MIG instance process 1 is"},
		"of no compute instance":          {of(1), []entry{{1, 2, at(1, nowhere)}}, gpu.Bytes(5), 1, ""},
		"place of the instance not known": {of(nowhere), []entry{{1, 2, at(1, 0)}}, gpu.Bytes(5), 0, "no telling"},
		"nobody there, place not known":   {of(nowhere), nil, gpu.Bytes(5), 0, ""},
		"compute sibling":                 {shared, []entry{{1, 2, at(1, 0)}, {2, 2, at(1, 1)}}, gpu.Bytes(5), 1, ""},
		"compute sibling, or not":         {shared, []entry{{1, 2, at(1, nowhere)}}, gpu.Bytes(5), 0, "no telling"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, why := tt.device.trusted(tt.entries, 100, tt.total)
			if len(got) != tt.kept || !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") {
				t.Errorf("got %v, %q, want %d, %q", got, why, tt.kept, tt.why)
			}
		})
	}
}

func TestOverbooked(t *testing.T) {
	share := gpu.Process{PID: 1, Memory: gpu.Bytes(90)}
	four := []gpu.Process{share, share, share, share}
	if why := overbooked(four, gpu.Bytes(100)); why != "" {
		t.Errorf("four processes that share memory: %s", why)
	}
	if why := overbooked(append(four, share), gpu.Bytes(100)); !strings.Contains(why, "list not trusted: 5 processes with 450 bytes of 100") {
		t.Errorf("got %q", why)
	}
	if why := overbooked(append(four, share), gpu.Unknown("why")); why != "" {
		t.Errorf("total unknown: %s", why)
	}
}

func TestWritesLongEntries(t *testing.T) {
	for driver, want := range map[string]bool{
		"535.43.02": true, "535.54.03": true, "535.86.05": true, "535.86.10": true,
		"535.98": false, "535.104.05": false, "535.42": false, "530.54.03": false, "580.54.03": false,
		"": false, "535": false, "535.x": false, "5354.54": false,
	} {
		if got := writesLongEntries(driver); got != want {
			t.Errorf("%q: got %v", driver, got)
		}
	}
}

// A driver of the broken releases lists one process, of which nothing shows that the entry is too long, or several.
func TestDriverThatWritesLongEntries(t *testing.T) {
	world := world(t, fakegpu.GPUs(1), fakegpu.With("process_stride_v3", "32"), fakegpu.With("driver_version", "535.54.03"),
		fakegpu.With("nvml_version", "12.535.54.03"))
	read := func(t *testing.T, library string) gpu.Reading {
		t.Helper()
		return reading(t, look(t, request(library)), world.UUID(0))
	}
	unknown := func(t *testing.T, r gpu.Reading) {
		t.Helper()
		if len(r.Processes) != 0 || !strings.Contains(r.ProcessesUnknown, "535.54.03") || r.Memory.Used != gpu.Bytes(0) {
			t.Errorf("got %s", text(t, r))
		}
	}
	without, err := world.NVMLWithout("nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses_v2",
		"nvmlDeviceGetMPSComputeRunningProcesses_v2")
	must(t, err)
	for name, list := range map[string]string{"one": "100:7", "three": "100:7 101:8 102:9", "none": ""} {
		t.Run(name, func(t *testing.T) {
			must(t, world.Set("gpu0.list", list))
			r := read(t, world.NVML())
			if want := len(strings.Fields(list)); len(r.Processes) != want || r.ProcessesUnknown != "" {
				t.Errorf("by version 2: got %s, want %d processes", text(t, r), want)
			}
			unknown(t, read(t, without))
		})
	}
	t.Run("version 2 bad too", func(t *testing.T) {
		must(t, world.Set("gpu0.list", "100:7 101:8 102:9"))
		must(t, world.Set("process_stride", "32"))
		unknown(t, read(t, world.NVML()))
	})
	t.Run("an earlier driver of the branch", func(t *testing.T) { // which is taken at its word
		must(t, world.Set("driver_version", "535.42"))
		must(t, world.Set("gpu0.list", "100:7"))
		if r := read(t, without); len(r.Processes) != 1 || r.Processes[0].Memory != gpu.Bytes(7<<20) {
			t.Errorf("got %s", text(t, r))
		}
	})
}

func TestPIDLimit(t *testing.T) {
	for content, want := range map[string]uint32{
		"32768\n": 32768, "4194304\n": pidLimitMax, "": pidLimitMax, "0": pidLimitMax, "99999999": pidLimitMax, "many": pidLimitMax,
	} {
		path := filepath.Join(t.TempDir(), "pid_max")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := pidLimit(path); got != want {
			t.Errorf("%q: got %d, want %d", content, got, want)
		}
	}
	if got := pidLimit("/absent"); got != pidLimitMax {
		t.Errorf("no file: got %d", got)
	}
}
