package operation

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
	job, none, run := slurm.Owner{ID: 10}, slurm.Owner{}, slurm.Owner{ID: 10, SLUID: "sA"}
	scope := slurm.Owner{SLUID: "sA"} // a run's cgroup that does not tell the id
	for name, tt := range map[string]struct {
		owner    slurm.Owner
		was, now attrib.Process
		want     bool
	}{
		"in the job's cgroup":                              {job, in(job), in(job), true},
		"in the run's cgroup":                              {run, in(scope), in(scope), true},
		"in a run's cgroup, of which only the id is known": {job, in(run), in(run), true},
		"seen there before":                                {job, in(none), in(none), true},
		"seen there before, and back in it":                {job, in(none), in(job), true},
		"out of the job's cgroup since":                    {job, in(job), in(none), false},
		"in another job's cgroup since":                    {job, in(job), in(slurm.Owner{ID: 11}), false},
		"in another run's cgroup since":                    {run, in(scope), in(slurm.Owner{ID: 10, SLUID: "sB"}), false},
		"seen before, now another job's":                   {job, in(none), in(slurm.Owner{ID: 11}), false},
		"a run of which the id is unknown":                 {scope, in(scope), in(slurm.Owner{Step: "0"}), false},
		"in two jobs' cgroups":                             {job, in(none), in(slurm.Owner{Conflict: "cgroups name two jobs"}), false},
		"not to be read":                                   {job, in(none), attrib.Process{PID: 70, Start: start, Why: "permission denied"}, false},
		"its PID reused":                                   {job, in(job), attrib.Process{PID: 70, Start: start + attrib.Tick, Cgroup: job}, false},
		"another process":                                  {job, in(job), attrib.Process{PID: 71, Start: start, Cgroup: job}, false},
	} {
		r := CleanupRequest{Owner: tt.owner, Processes: []attrib.Process{another, tt.was}}
		if got := r.proves(tt.now); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
