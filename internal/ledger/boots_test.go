package ledger

import (
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// State that is kept over a boot has runs of two: of one job id the later boot's is the one that runs, whatever the
// boot times say, and no run of the boot before is live.
func TestRunsOfTwoBoots(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	run := func(id slurm.JobID, boot string, up time.Duration, wall time.Time) Run {
		return Run{Key: boot, Job: slurm.Job{ID: id}, Epoch: gpu.Epoch{Boot: boot}, Start: &End{At: up, Wall: wall}}
	}
	before, other := run(7, "first", 90*time.Hour, noon), run(8, "first", 91*time.Hour, noon)
	now := run(7, "second", time.Minute, noon.Add(time.Hour))
	all := []Run{before, now, other}
	if got, which := Match(all, slurm.Job{ID: 7}); got.Key != "second" || which != OpenRun {
		t.Errorf("%s %+v", which, got)
	}
	for _, r := range []Run{before, other} {
		if by := r.Superseded(all); by == nil || by.Began() != time.Minute {
			t.Errorf("job %d: over by %v", r.Job.ID, by)
		}
	}
	if now.Superseded(all) != nil {
		t.Error("the run of this boot is over")
	}
	over := changed(before, func(r *Run) { r.Ends = []End{{At: 95 * time.Hour, Wall: noon.Add(time.Minute)}} })
	if over.Superseded(all) != nil {
		t.Error("a run that has ended ends a second time")
	}
	// a start that could not read the boot: by boot time, as within one
	unread := run(7, "", time.Hour, noon.Add(2*time.Hour))
	if unread.Superseded([]Run{now}) != nil {
		t.Error("over")
	}
	if now.Superseded([]Run{unread}) == nil {
		t.Error("not over")
	}
}
