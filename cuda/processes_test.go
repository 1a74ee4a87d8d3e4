package main

import (
	"encoding/json"
	"strings"
	"testing"

	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

var noInstance = place{nowhere, nowhere}

func TestMerge(t *testing.T) {
	one := func(kind gpu.Kind, entries ...entry) list { return list{kind, entries} }
	known, unknown := gpu.Bytes, figure(notAvailable)
	tests := map[string]struct {
		lists []list
		want  []gpu.Process
	}{
		"none": {nil, []gpu.Process{}},
		"sorted by pid": {
			[]list{one(gpu.Compute, entry{9, 1, noInstance}, entry{3, 2, noInstance}),
				one(gpu.Graphics, entry{5, 4, noInstance})},
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
			[]list{one(gpu.Compute, entry{9, 10, place{1, 0}}, entry{9, 20, place{2, 0}})},
			[]gpu.Process{{PID: 9, Memory: known(30), Kinds: []gpu.Kind{gpu.Compute}}},
		},
		"an unknown part makes an unknown whole": {
			[]list{one(gpu.Compute, entry{9, 10, place{1, 0}}, entry{9, notAvailable, place{2, 0}})},
			[]gpu.Process{{PID: 9, Memory: unknown, Kinds: []gpu.Kind{gpu.Compute}}},
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
	results, err := inParallel(3, nil, func(i int) int {
		if i == 1 {
			panic("broken")
		}
		return i
	})
	if err == nil || !strings.Contains(err.Error(), "broken") || results != nil {
		t.Errorf("got %v, %v", results, err)
	}
}
