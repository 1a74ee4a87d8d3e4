package finding

import (
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/slurm"
)

// Which processes outside of jobs and services keep the driver open.
func TestKeepers(t *testing.T) {
	exporter := attrib.Holding{Process: attrib.Process{PID: 50, Start: at(10), Name: "dcgm-exporter"}, Control: true}
	edited := func(edit func(*attrib.Holding)) attrib.Holding { h := exporter; edit(&h); return h }
	known := func(o slurm.Owner) bool { return o.ID == 7 }
	for name, tt := range map[string]struct {
		h            attrib.Holding
		want, unread bool
	}{
		"root's, the driver alone":          {exporter, true, false},
		"a user's, the driver alone":        {edited(func(h *attrib.Holding) { h.UID = alice }), true, false},
		"a service":                         {edited(func(h *attrib.Holding) { h.Service = "nvidia-dcgm.service" }), false, false},
		"MPS":                               {edited(func(h *attrib.Holding) { h.Exe = "/usr/bin/nvidia-cuda-mps-control" }), false, false},
		"a job's":                           {edited(func(h *attrib.Holding) { h.Cgroup = slurm.Owner{ID: 7} }), false, false},
		"a job's that is not on record":     {edited(func(h *attrib.Holding) { h.Cgroup = slurm.Owner{ID: 8} }), true, false},
		"of two jobs":                       {edited(func(h *attrib.Holding) { h.Cgroup.Conflict = "two jobs" }), false, true},
		"one that could not be looked into": {edited(func(h *attrib.Holding) { h.Why = "denied" }), false, true},
		"Bookend's own":                     {edited(func(h *attrib.Holding) { h.Exe = "/libexec/bookend-gpu" }), false, false},
	} {
		got, unread := Keepers([]attrib.Holding{tt.h}, "/libexec/bookend-gpu", known)
		if len(got) > 1 || (len(got) == 1) != tt.want || (unread == 1) != tt.unread {
			t.Errorf("%s: %+v, %d unread", name, got, unread)
		}
	}
}
