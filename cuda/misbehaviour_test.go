package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/golden"
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
	golden.Lines(t, *update, "testdata/bad.txt", func(given string) string {
		w := world(t, given)
		s := look(t, askFor(w, cardOf(w, 0), cardOf(w, 1), cardOf(w, 2), cardOf(w, 3)))
		bad := cardOf(w, 2)
		r, opened := s.Reading(bad.ID)
		if len(s.Faults) == 0 && r.ProcessesUnknown != "" { // of no known kind, and its memory was read
			return "no fault: " + r.ProcessesUnknown
		}
		if len(s.Faults) != 1 || s.Faults[0].Device != bad.ID || s.Faults[0].BusID != bad.BusID ||
			len(s.Readings) < 3 || opened && r.Memory.Used.Known() && r.ProcessesUnknown == "" {
			t.Fatalf("%s: got faults %v, %d readings, %s", given, s.Faults, len(s.Readings), text(t, r))
		}
		return fmt.Sprintf("%s: %s, read: %v", s.Faults[0].Code, s.Faults[0].Detail, opened)
	})
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
	if len(s.Faults) != 0 || r.ProcessesUnknown != "" || r.Device.Minor != nil || r.Parts {
		t.Errorf("got %s", text(t, s))
	}
}

// Lists by the whole program: what cannot be true is not told, and an older version of the call is asked instead.
func TestListsThatCannotBeTrusted(t *testing.T) {
	golden.Lines(t, *update, "testdata/lists.txt", func(given string) string {
		w := world(t, given)
		r := reading(t, look(t, request(w.NVML())), w.UUID(0))
		if r.Memory.Used != gpu.Bytes(0) {
			t.Errorf("%s: got %s", given, text(t, r))
		}
		return text(t, r.Processes) + r.ProcessesUnknown
	})
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
