package main

import (
	"strings"
	"testing"

	"bookend/internal/gpu"
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
		"memory not available": {whole, one(2, notAvailable), gpu.Bytes(5), 2, ""},
		"total unknown":        {whole, one(2, 1<<40), gpu.Unknown("why"), 2, ""},
		"pid 0":                {whole, one(0, 5), gpu.Bytes(5), 0, "process 0 of at most 4194304"},
		"pid above the limit":  {whole, one(1<<22+1, 5), gpu.Bytes(5), 0, "process 4194305 of at most"},
		"more than there is":   {whole, one(2, 6), gpu.Bytes(5), 0, "process 2 with 6 bytes of 5"},
		"more than can be":     {whole, one(2, 1<<60), gpu.Unknown("why"), 0, "process 2 with"},
		"the same line twice":  {whole, one(1, 0), gpu.Bytes(5), 1, ""},
		"twice, contradicting": {whole, one(1, 4), gpu.Bytes(5), 0, "process 1 twice, with 0 and 4 bytes"},
		"on two instances":     {whole, []entry{{1, 2, at(1, 0)}, {1, 3, at(2, 0)}}, gpu.Bytes(5), 2, ""},
		"on no such instance":  {whole, []entry{{1, 2, at(526, 0)}}, gpu.Bytes(5), 0, "on MIG instance 526/0"},

		"the instance's own":      {of(1), []entry{{1, 2, at(1, 0)}}, gpu.Bytes(5), 1, ""},
		"a sibling's":             {of(1), []entry{{1, 2, at(1, 0)}, {2, 9, at(2, 0)}}, gpu.Bytes(5), 1, ""},
		"a sibling's, impossible": {of(1), []entry{{0, 2, at(2, 0)}}, gpu.Bytes(5), 0, "process 0"},
		"a process on both":       {of(1), []entry{{1, 2, at(1, 0)}, {1, 9, at(2, 0)}}, gpu.Bytes(5), 1, ""},
		"of no instance": {of(1), one(2, 2), gpu.Bytes(5), 0,
			"no telling on which MIG instance process 1 is"},
		"of no compute instance":          {of(1), []entry{{1, 2, at(1, nowhere)}}, gpu.Bytes(5), 1, ""},
		"place of the instance not known": {of(nowhere), []entry{{1, 2, at(1, 0)}}, gpu.Bytes(5), 0, "no telling"},
		"nobody there, place not known":   {of(nowhere), nil, gpu.Bytes(5), 0, ""},
		"compute sibling":                 {shared, []entry{{1, 2, at(1, 0)}, {2, 2, at(1, 1)}}, gpu.Bytes(5), 1, ""},
		"compute sibling, or not":         {shared, []entry{{1, 2, at(1, nowhere)}}, gpu.Bytes(5), 0, "no telling"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, why := tt.device.trusted(tt.entries, tt.total)
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
	if why := overbooked(append(four, share), gpu.Bytes(100)); !strings.Contains(why,
		"list not trusted: 5 processes with 450 bytes of 100") {
		t.Errorf("got %q", why)
	}
	if why := overbooked(append(four, share), gpu.Unknown("why")); why != "" {
		t.Errorf("total unknown: %s", why)
	}
}
