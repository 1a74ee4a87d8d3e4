package main

import (
	"encoding/json"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/golden"
	"bookend/test/must"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func text(t *testing.T, v any) string {
	t.Helper()
	b := must.Have(json.Marshal(v))(t)
	return string(b)
}

func TestMerge(t *testing.T) {
	all := merge([]gpu.Process{}, gpu.Compute, []entry{{pid: 9, used: 10}, {pid: 3, used: notAvailable}})
	all = merge(all, gpu.Graphics, []entry{{pid: 5, used: 4}})
	all = merge(all, gpu.MPS, []entry{{pid: 9, used: 10}, {pid: 3, used: 2}})
	want := []gpu.Process{
		{PID: 3, Memory: gpu.Bytes(2), Kinds: []gpu.Kind{gpu.Compute, gpu.MPS}},
		{PID: 5, Memory: gpu.Bytes(4), Kinds: []gpu.Kind{gpu.Graphics}},
		{PID: 9, Memory: gpu.Bytes(10), Kinds: []gpu.Kind{gpu.Compute, gpu.MPS}}, // a client of MPS counts once
	}
	if got, want := text(t, all), text(t, want); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTrusted(t *testing.T) {
	of := func(instance uint32) device {
		return device{Device: gpu.Device{ID: "MIG-1", Parent: "GPU-1"}, instance: instance}
	}
	shared, whole := of(1), device{Device: gpu.Device{ID: "GPU-1"}}
	shared.shared = true
	one := func(pid uint32, used uint64) []entry { return []entry{{1, 0, nowhere}, {pid, used, nowhere}} }
	tests := map[string]struct {
		device  device
		entries []entry
		total   gpu.Figure
		kept    int
		why     string
	}{
		"a process":            {whole, one(100, 5), gpu.Bytes(5), 2, ""},
		"memory not available": {whole, one(2, notAvailable), gpu.Bytes(5), 2, ""},
		"total unknown":        {whole, one(2, 1<<40), gpu.Unknown("why"), 2, ""},
		"pid 0":                {whole, one(0, 5), gpu.Bytes(5), 0, "process 0 of at most 4194304"},
		"pid above the limit":  {whole, one(1<<22+1, 5), gpu.Bytes(5), 0, "process 4194305 of at most"},
		"more than there is":   {whole, one(2, 6), gpu.Bytes(5), 0, "process 2 with 6 bytes of 5"},
		"more than can be":     {whole, one(2, 1<<60), gpu.Unknown("why"), 0, "process 2 with"},
		"the same line twice":  {whole, one(1, 0), gpu.Bytes(5), 1, ""},
		"twice, contradicting": {whole, one(1, 4), gpu.Bytes(5), 0, "process 1 twice, with 0 and 4 bytes"},

		"the instance's own":              {of(1), []entry{{1, 2, 1}}, gpu.Bytes(5), 1, ""},
		"a sibling's":                     {of(1), []entry{{1, 2, 1}, {2, 9, 2}, {1, 9, 2}}, gpu.Bytes(5), 1, ""},
		"a sibling's, impossible":         {of(1), []entry{{0, 2, 2}}, gpu.Bytes(5), 0, "process 0"},
		"of no instance":                  {of(1), one(2, 2), gpu.Bytes(5), 0, "no telling on which MIG instance process 1 is"},
		"place of the instance not known": {of(nowhere), []entry{{1, 2, 1}}, gpu.Bytes(5), 0, "no telling"},
		"no one there, place not known":   {of(nowhere), nil, gpu.Bytes(5), 0, ""},
		"its GPU instance is shared":      {shared, []entry{{1, 2, 1}}, gpu.Bytes(5), 0, "no telling"},
	}
	for name, tt := range tests {
		got, why := tt.device.trusted(tt.entries, tt.total)
		if len(got) != tt.kept || !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") {
			t.Errorf("%s: got %v, %q, want %d, %q", name, got, why, tt.kept, tt.why)
		}
	}
}

func TestImpossibleMemory(t *testing.T) {
	if why := impossible(100, 60, 40, 0); why != "" {
		t.Errorf("refused: %s", why)
	}
	for _, parts := range [][]uint64{{0, 0}, {100, 101}, {1 << 51, 5}, {^uint64(0), 1}} {
		if why := impossible(parts[0], parts[1:]...); why == "" {
			t.Errorf("%v accepted", parts)
		}
	}
}

func TestFaultCodes(t *testing.T) {
	for ret, want := range map[nvml.Return]gpu.FaultCode{
		9: gpu.FaultNoDriver, 12: gpu.FaultNoLibrary, 18: gpu.FaultMismatch, 6: gpu.FaultNoDevice, 28: gpu.FaultNoDevice,
		15: gpu.FaultLost, 16: gpu.FaultReset, 13: gpu.FaultNoSymbol, 4: gpu.FaultForbidden, 17: gpu.FaultForbidden,
		2: gpu.FaultForbidden, 20: gpu.FaultForbidden, 23: gpu.FaultForbidden, 25: gpu.FaultForbidden,
		999: gpu.FaultDriver, 777: gpu.FaultDriver, 27: gpu.FaultDriver, -1: gpu.FaultDriver,
	} {
		if got := faultCode(ret); got != want {
			t.Errorf("return code %d: got %s, want %s", ret, got, want)
		}
	}
}

// What cannot be judged by its memory says so.
func TestMemoryThatIsNotJudged(t *testing.T) {
	golden.Lines(t, *update, "testdata/unjudged.txt", func(given string) string {
		w := world(t, "gpus=1, gpu0.extra_mib=70, "+given)
		s := look(t, request(w.NVML()))
		m := reading(t, s, w.UUID(0)).Memory
		if m.Used != gpu.Bytes(70<<20) || len(s.Faults) > 0 {
			t.Errorf("got %s; faults %v", text(t, m), s.Faults)
		}
		return m.Unjudged
	})
}
