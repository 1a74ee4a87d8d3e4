package main

import (
	"testing"

	"bookend/internal/gpu"
	"bookend/test/fakegpu"
)

func TestMemoryThatIsNotJudged(t *testing.T) {
	with := fakegpu.With
	noMode := with("on.nvmlDeviceGetAddressingMode", "rc 3")
	tests := map[string]struct {
		options []fakegpu.Option
		want    string
	}{
		"a card":                       {nil, ""},
		"a card with HMM":              {[]fakegpu.Option{with("gpu0.addressing_mode", "1")}, ""},
		"a NUMA node":                  {[]fakegpu.Option{with("gpu0.addressing_mode", "2")}, isNUMA},
		"a Grace Hopper, no mode told": {[]fakegpu.Option{with("gpu0.name", "NVIDIA GH200 480GB"), noMode}, isNUMA},
		"no mode told":                 {[]fakegpu.Option{noMode}, ""},
		"a vGPU":                       {[]fakegpu.Option{with("gpu0.virtualization_mode", "2")}, isVGPU},
		"a Grace Hopper, not a node":   {[]fakegpu.Option{with("gpu0.name", "NVIDIA GH200 480GB")}, ""},
		"passed through to a guest":    {[]fakegpu.Option{with("gpu0.virtualization_mode", "1")}, ""},
		"an instance of a NUMA node": {[]fakegpu.Option{with("gpu0.addressing_mode", "2"),
			fakegpu.Instance(0, 1, 1, 0, 9000),
			with("on.nvmlDeviceGetVirtualizationMode", "rc 3")}, isNUMA},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := world(t, append([]fakegpu.Option{fakegpu.GPUs(2), with("gpu0.extra_mib", "70")}, tt.options...)...)
			s := look(t, request(w.NVML()))
			id := w.UUID(0)
			if in := w.InstanceUUID(0, 1); in != "" {
				id = in
			} else if used := reading(t, s, id).Memory.Used; used != gpu.Bytes(70<<20) {
				t.Errorf("got used %+v", used)
			}
			if got := reading(t, s, id).Memory.Unjudged; got != tt.want || len(s.Faults) > 0 {
				t.Errorf("got %q, want %q; faults %v", got, tt.want, s.Faults)
			}
			if other := reading(t, s, w.UUID(1)).Memory.Unjudged; other != "" {
				t.Errorf("the other card is unjudged: %q", other)
			}
		})
	}
	t.Run("neither function there", func(t *testing.T) {
		w := world(t, fakegpu.GPUs(2), with("gpu0.name", "NVIDIA GB200"))
		library, err := w.NVMLWithout("nvmlDeviceGetAddressingMode", "nvmlDeviceGetVirtualizationMode")
		must(t, err)
		s := look(t, request(library))
		if a, b := reading(t, s, w.UUID(0)).Memory.Unjudged, reading(t, s, w.UUID(1)).Memory.Unjudged; a != isNUMA ||
			b != "" {
			t.Errorf("got %q and %q", a, b)
		}
	})
}

func TestNamesGrace(t *testing.T) {
	for name, want := range map[string]bool{
		"NVIDIA GH200 480GB": true, "GH200 480GB": true, "NVIDIA GB10": true, "NVIDIA GB100": false,
		"NVIDIA H200": false, "": false,
		"NVIDIA RTX GH200": false, "Tesla V100-SXM2-16GB": false,
	} {
		if got := namesGrace(name); got != want {
			t.Errorf("%q: got %v", name, got)
		}
	}
}
