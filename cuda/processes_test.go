package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const noInstance = ^uint64(0)

func TestMerge(t *testing.T) {
	one := func(kind gpu.Kind, entries ...entry) list { return list{kind, entries} }
	known, unknown := gpu.Bytes, figure(notAvailable)
	tests := map[string]struct {
		lists []list
		want  []gpu.Process
	}{
		"none": {nil, []gpu.Process{}},
		"sorted by pid": {
			[]list{one(gpu.Compute, entry{9, 1, noInstance}, entry{3, 2, noInstance}), one(gpu.Graphics, entry{5, 4, noInstance})},
			[]gpu.Process{
				{PID: 3, Memory: known(2), Kinds: []gpu.Kind{gpu.Compute}},
				{PID: 5, Memory: known(4), Kinds: []gpu.Kind{gpu.Graphics}},
				{PID: 9, Memory: known(1), Kinds: []gpu.Kind{gpu.Compute}},
			},
		},
		"an MPS client counts once": {
			[]list{one(gpu.Compute, entry{9, 10, noInstance}), one(gpu.MPS, entry{9, 10, noInstance})},
			[]gpu.Process{{PID: 9, Memory: known(10), Kinds: []gpu.Kind{gpu.Compute, gpu.MPS}}},
		},
		"the list that knows the memory holds": {
			[]list{one(gpu.Compute, entry{9, notAvailable, noInstance}), one(gpu.MPS, entry{9, 10, noInstance})},
			[]gpu.Process{{PID: 9, Memory: known(10), Kinds: []gpu.Kind{gpu.Compute, gpu.MPS}}},
		},
		"instances add up": {
			[]list{one(gpu.Compute, entry{9, 10, 1}, entry{9, 20, 2})},
			[]gpu.Process{{PID: 9, Memory: known(30), Kinds: []gpu.Kind{gpu.Compute}}},
		},
		"an unknown part makes an unknown whole": {
			[]list{one(gpu.Compute, entry{9, 10, 1}, entry{9, notAvailable, 2})},
			[]gpu.Process{{PID: 9, Memory: unknown, Kinds: []gpu.Kind{gpu.Compute}}},
		},
		"the same line twice": {
			[]list{one(gpu.Compute, entry{9, 10, 1}, entry{9, 10, 1})},
			[]gpu.Process{{PID: 9, Memory: known(10), Kinds: []gpu.Kind{gpu.Compute}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, want := text(t, merge(tt.lists)), text(t, tt.want); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestImplausible(t *testing.T) {
	tests := map[string]struct {
		entry   entry
		total   gpu.Figure
		trusted bool
	}{
		"a process":            {entry{pid: 100, used: 5}, gpu.Bytes(5), true},
		"no memory":            {entry{pid: 1}, gpu.Bytes(5), true},
		"memory not available": {entry{pid: 1, used: notAvailable}, gpu.Bytes(5), true},
		"total unknown":        {entry{pid: 1, used: 1 << 40}, gpu.Unknown("why"), true},
		"pid 0":                {entry{pid: 0, used: 5}, gpu.Bytes(5), false},
		"pid above the limit":  {entry{pid: 101, used: 5}, gpu.Bytes(5), false},
		"pid of all ones":      {entry{pid: ^uint32(0)}, gpu.Bytes(5), false},
		"more than there is":   {entry{pid: 1, used: 6}, gpu.Bytes(5), false},
		"more than can be":     {entry{pid: 1, used: 1 << 60}, gpu.Unknown("why"), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if why := implausible([]entry{{pid: 1}, tt.entry}, 100, tt.total); (why == "") != tt.trusted {
				t.Errorf("got %q, want trusted %v", why, tt.trusted)
			}
		})
	}
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
		9: gpu.FaultNoDriver, 12: gpu.FaultNoDriver, 18: gpu.FaultMismatch, 6: gpu.FaultNoDevice, 28: gpu.FaultNoDevice,
		15: gpu.FaultLost, 16: gpu.FaultReset, 13: gpu.FaultNoSymbol, 4: gpu.FaultForbidden, 17: gpu.FaultForbidden,
		999: gpu.FaultDriver, 2: gpu.FaultDriver, 27: gpu.FaultDriver, -1: gpu.FaultDriver,
	} {
		if got := faultCode(ret); got != want {
			t.Errorf("return code %d: got %s, want %s", ret, got, want)
		}
	}
}

func TestPanicInParallelIsAnError(t *testing.T) {
	results, err := inParallel(3, func(i int) int {
		if i == 1 {
			panic("broken")
		}
		return i
	})
	if err == nil || !strings.Contains(err.Error(), "broken") || results != nil {
		t.Errorf("got %v, %v", results, err)
	}
}
