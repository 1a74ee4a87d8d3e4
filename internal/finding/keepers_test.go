package finding

import (
	"fmt"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Which processes outside of jobs are a doubt against all memory without a process, by the rule that judges an end.
func TestKeepers(t *testing.T) {
	zero, one := 0, 1
	cards := []Card{{Device: gpu.Device{ID: "GPU-0", Minor: &zero}}, {Device: gpu.Device{ID: "GPU-1", Minor: &one}}}
	exporter := attrib.Holding{Process: attrib.Process{PID: 50, Start: at(10), Name: "dcgm-exporter"}, Control: true}
	edited := func(edit func(*attrib.Holding)) attrib.Holding { h := exporter; edit(&h); return h }
	for name, tt := range map[string]struct {
		h    attrib.Holding
		want bool
	}{
		"root's, the driver alone":          {exporter, true},
		"root's, in a container":            {edited(func(h *attrib.Holding) { h.Container = "docker:9f" }), true},
		"root's, all GPUs":                  {edited(func(h *attrib.Holding) { h.Minors = []int{0, 1} }), true},
		"a user's, the driver alone":        {edited(func(h *attrib.Holding) { h.UID = alice }), false},
		"a user's, one GPU":                 {edited(func(h *attrib.Holding) { h.UID, h.Minors = alice, []int{1} }), true},
		"a service":                         {edited(func(h *attrib.Holding) { h.Service = "nvidia-dcgm.service" }), false},
		"MPS":                               {edited(func(h *attrib.Holding) { h.Exe = "/usr/bin/nvidia-cuda-mps-control" }), false},
		"a job's":                           {edited(func(h *attrib.Holding) { h.Cgroup = slurm.Owner{ID: 7} }), false},
		"a job's, by its environment":       {edited(func(h *attrib.Holding) { h.EnvJobID = 7 }), false},
		"one that could not be looked into": {edited(func(h *attrib.Holding) { h.Why = "denied" }), false},
		"Bookend's own":                     {edited(func(h *attrib.Holding) { h.Exe = "/libexec/bookend-gpu" }), false},
	} {
		got := Keepers([]attrib.Holding{tt.h}, "/libexec/bookend-gpu", cards, Limits{Report: 32 * mib, Drain: 512 * mib, PerClient: 9 * mib})
		if len(got) > 1 || (len(got) == 1) != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	instance := []Card{{Device: gpu.Device{ID: "MIG-0", Parent: "GPU-0", Minor: &zero}}}
	if got := Keepers([]attrib.Holding{exporter}, "", instance, Limits{}); len(got) > 0 {
		t.Errorf("a GPU that drains for nothing as it is: %s", fmt.Sprint(got))
	}
}
