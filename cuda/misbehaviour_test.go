package main

import (
	"slices"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/must"
)

func TestInitFails(t *testing.T) {
	w := world(t, "")
	must.Do(t, w.Set("on.nvmlInit_v2", "rc 18"))
	a := answerTo(request(w.NVML()))
	if len(a.Faults) != 1 || a.Faults[0].Code != gpu.FaultMismatch ||
		!strings.HasPrefix(a.Faults[0].Detail, "nvmlInit_v2: ") ||
		!strings.HasSuffix(a.Faults[0].Detail, " (18)") {
		t.Errorf("got %v, want %s", a.Faults, gpu.FaultMismatch)
	}
	if len(a.Troubles) > 0 || len(a.Snapshots) > 0 || !a.Complete {
		t.Errorf("got %d looks, troubles %v", len(a.Snapshots), a.Troubles)
	}
}

// One bad card says so and leaves the others readable; none of its figures becomes 0.
func TestOneBadCard(t *testing.T) {
	tests := map[string]struct {
		rule, value string
		code        gpu.FaultCode
		opened      bool
	}{
		"lost before":          {"on.any.gpu2", "rc 15", gpu.FaultLost, false},
		"lost at its UUID":     {"on.nvmlDeviceGetUUID.gpu2", "rc 15", gpu.FaultLost, false},
		"lost at its memory":   {"on.nvmlDeviceGetMemoryInfo_v2.gpu2", "rc 15", gpu.FaultLost, true},
		"reset required":       {"on.nvmlDeviceGetMemoryInfo_v2.gpu2", "rc 16", gpu.FaultReset, true},
		"forbidden by cgroup":  {"on.nvmlDeviceGetHandleByPciBusId_v2.gpu2", "rc 17", gpu.FaultForbidden, false},
		"lists not allowed":    {"on.nvmlDeviceGetComputeRunningProcesses_v3.gpu2", "rc 4", gpu.FaultForbidden, true},
		"graphics list broken": {"on.nvmlDeviceGetGraphicsRunningProcesses_v3.gpu2", "rc 999", gpu.FaultDriver, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := world(t, tt.rule+"="+tt.value)
			req := request(w.NVML())
			req.All = false
			for i := range 4 {
				req.Devices = append(req.Devices, gpu.Device{ID: gpu.ID(w.UUID(i)), BusID: gpu.BusID(w.BusID(i))})
			}
			s := look(t, req)
			bad := gpu.Fault{Code: tt.code, Device: gpu.ID(w.UUID(2)), BusID: gpu.BusID(w.BusID(2))}
			if len(s.Faults) != 1 || s.Faults[0].Detail == "" {
				t.Fatalf("got faults %v", s.Faults)
			}
			if s.Faults[0].Detail = ""; s.Faults[0] != bad {
				t.Errorf("got fault %+v, want %+v", s.Faults[0], bad)
			}
			r, opened := s.Reading(bad.Device)
			if opened != tt.opened || len(s.Readings) < 3 {
				t.Fatalf("got %d readings, the bad GPU's: %v", len(s.Readings), opened)
			}
			if opened && r.Memory.Used.Known() && r.ProcessesUnknown == "" {
				t.Errorf("everything is known: %s", text(t, r))
			}
		})
	}
}

// What the driver does not offer is unknown, without being anybody's fault.
func TestNotSupported(t *testing.T) {
	w := world(t, "gpus=1, on.nvmlDeviceGetMemoryInfo_v2=rc 3, on.nvmlDeviceGetMPSComputeRunningProcesses_v3=rc 3, "+
		"on.nvmlDeviceGetMinorNumber=rc 3, on.nvmlDeviceGetMigMode=rc 3")
	s := look(t, request(w.NVML()))
	r := reading(t, s, w.UUID(0))
	if m := r.Memory; m.Total.Known() || m.Used.Known() || m.Free.Known() || m.Reserved.Known() {
		t.Errorf("got %s", text(t, m))
	}
	if len(s.Faults) != 0 || r.ProcessesUnknown != "" || r.Device.Minor != nil || *r.NVIDIA.MIGMode {
		t.Errorf("got %s", text(t, s))
	}
}

// Lists by the whole program: what cannot be true is not told, and an older version of the call is asked instead.
func TestListsThatCannotBeTrusted(t *testing.T) {
	const three = "gpu0.list=100:100 101:100 102:100, "
	for name, tt := range map[string]struct {
		world string
		want  int
	}{
		"in the MPS list":           {"gpu0.list=100:100 0:100:mps", 0},
		"longer entries":            {three + "process_stride=32", 0},
		"longer entries, version 3": {three + "process_stride_v3=32", 3},
		"one longer entry":          {"gpu0.list=100:7, process_stride_v3=32", 1},
		"memory not available":      {"gpu0.list=100:-1 101:7", 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t, tt.world)
			r := reading(t, look(t, request(w.NVML())), w.UUID(0))
			untrusted := strings.Contains(r.ProcessesUnknown, "list not trusted")
			if len(r.Processes) != tt.want || untrusted != (tt.want == 0) || r.Memory.Used != gpu.Bytes(0) {
				t.Errorf("got %s, want %d processes", text(t, r), tt.want)
			}
			if tt.want == 1 && r.Processes[0].Memory != gpu.Bytes(7<<20) || tt.want == 2 &&
				r.Processes[0].Memory.Known() {
				t.Errorf("got %s", text(t, r.Processes))
			}
		})
	}
}

// A function the driver lacks must cost its figure, not the program: the linker would end it with 127.
func TestMissingFunctions(t *testing.T) {
	w := world(t, "gpus=1")
	without := func(t *testing.T, symbols ...string) gpu.Snapshot {
		t.Helper()
		library := must.Have(w.NVMLWithout(symbols...))(t)
		return look(t, request(library))
	}
	t.Run("figures", func(t *testing.T) {
		s := without(t, "nvmlErrorString", "nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion",
			"nvmlDeviceGetName",
			"nvmlDeviceGetMinorNumber", "nvmlDeviceGetMigMode", "nvmlDeviceGetPciInfo_v3",
			"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetAddressingMode", "nvmlDeviceGetVirtualizationMode",
			"nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
			"nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses_v3")
		r := reading(t, s, w.UUID(0))
		if r.Memory.Used.Known() || !strings.Contains(r.ProcessesUnknown, "lacks") || r.Device.Minor != nil ||
			r.Device.Name != "" {
			t.Errorf("got %s", text(t, r))
		}
		if !slices.ContainsFunc(s.Faults, func(f gpu.Fault) bool { return f.Code == gpu.FaultNoSymbol }) {
			t.Errorf("got faults %v", s.Faults)
		}
	})
	for _, symbols := range [][]string{
		{"nvmlDeviceGetUUID"}, {"nvmlDeviceGetHandleByIndex_v2"}, {"nvmlDeviceGetCount_v2"},
	} {
		t.Run(symbols[0], func(t *testing.T) {
			library := must.Have(w.NVMLWithout(symbols...))(t)
			a := answerTo(request(library))
			if len(a.Troubles) > 0 || !a.Complete || len(a.Snapshots) != 1 {
				t.Fatalf("got %d looks, troubles %v", len(a.Snapshots), a.Troubles)
			}
			if f := a.Snapshots[0].Faults; len(f) != 1 || f[0].Code != gpu.FaultNoSymbol ||
				!strings.Contains(f[0].Detail, symbols[0]) {
				t.Errorf("got faults %v", f)
			}
		})
	}
}
