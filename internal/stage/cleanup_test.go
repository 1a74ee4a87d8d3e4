package stage

import (
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/slurm"
)

// Before a process is ended it is proven again to be the one that was judged, and still the ended job's.
func TestProves(t *testing.T) {
	const start = 150 * time.Second
	in := func(o slurm.Owner) attrib.Process { return attrib.Process{PID: 70, Start: start, Cgroup: o} }
	another := attrib.Process{PID: 69, Start: start}
	for name, tt := range map[string]struct {
		owner    slurm.Owner
		was, now attrib.Process
		want     bool
	}{
		"in the job's cgroup":                              {slurm.Owner{ID: 10}, in(slurm.Owner{ID: 10}), in(slurm.Owner{ID: 10}), true},
		"in the run's cgroup":                              {slurm.Owner{ID: 10, SLUID: "sA"}, in(slurm.Owner{SLUID: "sA"}), in(slurm.Owner{SLUID: "sA"}), true},
		"in a run's cgroup, of which only the id is known": {slurm.Owner{ID: 10}, in(slurm.Owner{ID: 10, SLUID: "sA"}), in(slurm.Owner{ID: 10, SLUID: "sA"}), true},
		"seen there before":                                {slurm.Owner{ID: 10}, in(slurm.Owner{}), in(slurm.Owner{}), true},
		"seen there before, and back in it":                {slurm.Owner{ID: 10}, in(slurm.Owner{}), in(slurm.Owner{ID: 10}), true},
		"out of the job's cgroup since":                    {slurm.Owner{ID: 10}, in(slurm.Owner{ID: 10}), in(slurm.Owner{}), false},
		"in another job's cgroup since":                    {slurm.Owner{ID: 10}, in(slurm.Owner{ID: 10}), in(slurm.Owner{ID: 11}), false},
		"in another run's cgroup since":                    {slurm.Owner{ID: 10, SLUID: "sA"}, in(slurm.Owner{SLUID: "sA"}), in(slurm.Owner{ID: 10, SLUID: "sB"}), false},
		"seen before, now another job's":                   {slurm.Owner{ID: 10}, in(slurm.Owner{}), in(slurm.Owner{ID: 11}), false},
		"a run of which the id is unknown":                 {slurm.Owner{SLUID: "sA"}, in(slurm.Owner{SLUID: "sA"}), in(slurm.Owner{Step: "0"}), false},
		"in two jobs' cgroups":                             {slurm.Owner{ID: 10}, in(slurm.Owner{}), in(slurm.Owner{Conflict: "cgroups name two jobs"}), false},
		"not to be read":                                   {slurm.Owner{ID: 10}, in(slurm.Owner{}), attrib.Process{PID: 70, Start: start, Why: "permission denied"}, false},
		"its PID reused":                                   {slurm.Owner{ID: 10}, in(slurm.Owner{ID: 10}), attrib.Process{PID: 70, Start: start + attrib.Tick, Cgroup: slurm.Owner{ID: 10}}, false},
		"another process":                                  {slurm.Owner{ID: 10}, in(slurm.Owner{ID: 10}), attrib.Process{PID: 71, Start: start, Cgroup: slurm.Owner{ID: 10}}, false},
	} {
		r := cleanupRequest{Owner: tt.owner, Processes: []attrib.Process{another, tt.was}}
		if got := r.proves(tt.now); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
