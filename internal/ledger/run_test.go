package ledger

import (
	"testing"
	"time"

	"bookend/internal/slurm"
)

// A job is named as its user knows it, everywhere the same.
func TestJobName(t *testing.T) {
	run := func(id, leader slurm.JobID, array slurm.ArrayTask) Run {
		return Run{Job: slurm.Job{ID: id, HetJobID: leader}, Display: Display{Array: array}}
	}
	for want, r := range map[string]Run{
		"1": run(1, 0, slurm.ArrayTask{}), "102_7": run(103, 0, slurm.ArrayTask{Master: 102, Task: 7}),
		"104+1": run(105, 104, slurm.ArrayTask{}), "104+0": run(104, 104, slurm.ArrayTask{}),
	} {
		if got := r.JobName(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// An epilog finds its run by SLUID, else by start time, else the newest one of the job id.
func TestMatch(t *testing.T) {
	began := func(unix int64) func(*Run) { return func(r *Run) { r.Job.Start = time.Unix(unix, 0) } }
	by := func(sluid slurm.SLUID) func(*Run) { return func(r *Run) { r.Job.SLUID = sluid } }
	of := func(key string, at time.Duration, change func(*Run), ends ...End) Run {
		r := Run{Key: key, Job: slurm.Job{ID: 7, UID: 1001}, Start: &End{At: at}, Ends: ends}
		if change != nil {
			change(&r)
		}
		return r
	}
	for name, tt := range map[string]struct {
		runs  []Run
		job   func(*Run)
		key   string
		which Which
	}{
		"no record":           {nil, nil, "", NoRun},
		"of other jobs alone": {[]Run{of("a", 1, func(r *Run) { r.Job.ID = 8 })}, nil, "", NoRun},
		"another job's first": {[]Run{of("a", 9, func(r *Run) { r.Job.ID = 8 }), of("b", 1, nil)}, nil, "b",
			OpenRun},
		"the newest": {[]Run{of("a", 1, nil), of("b", 2, nil), of("c", 1, nil)}, nil, "b",
			OpenRun},
		"by SLUID": {[]Run{of("a", 1, by("sA")), of("b", 2, by("sB"))}, by("sA"), "a", OpenRun},
		"by start time": {[]Run{of("a", 1, began(100)), of("b", 2, began(200))}, began(100), "a",
			OpenRun},
		"a sure one before a newer one": {[]Run{of("a", 1, began(100)), of("b", 2, nil)}, began(100), "a", OpenRun},
		"of another start alone":        {[]Run{of("a", 1, began(100))}, began(200), "", NoRun},
		"Slurm does not say which":      {[]Run{of("a", 1, began(100)), of("b", 2, began(200))}, nil, "b", OpenRun},
		"closed by its epilog":          {[]Run{of("a", 1, nil, End{At: 3})}, nil, "a", ClosedRun},
		"a newer closed one, if it is it": {[]Run{of("a", 1, began(100)), of("b", 2, began(200), End{At: 3})},
			began(200), "b", ClosedRun},
	} {
		hook := of("", 0, tt.job).Job
		if got, which := Match(tt.runs, hook); got.Key != tt.key || which != tt.which {
			t.Errorf("%s: run %q, %s", name, got.Key, which)
		}
	}
}
