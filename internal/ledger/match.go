package ledger

import (
	"slices"
	"time"

	"bookend/internal/slurm"
)

// Which says what Match found.
type Which string

// What a job's epilog may find.
const (
	OpenRun   Which = "open"   // its prolog's record
	ClosedRun Which = "closed" // a record that an epilog of this run has closed already
	NoRun     Which = "none"   // no prolog, or its record was lost
)

// Match picks, among the records of one job id, the run that an epilog is for: by SLUID, else by start time, where
// both know it; else the newest, which is the only one that can be running. A record of another user is another job's.
func Match(runs []Run, job slurm.Job) (Run, Which) {
	var best *Run
	for i := range runs {
		r := &runs[i]
		sure, other := compare(r.Job, job)
		if r.Job.ID != job.ID || r.Job.UID != job.UID || other {
			continue
		}
		// The surer likeness, then the run that began later: of an older one that is still open, only the epilog is
		// missing.
		if best == nil || sure && !best.Sure(job) || sure == best.Sure(job) && r.after(*best) {
			best = r
		}
	}
	switch {
	case best == nil:
		return Run{}, NoRun
	case best.EndSeen(): // one that was settled without an end is open to it
		return *best, ClosedRun
	}
	return *best, OpenRun
}

// compare says whether two hooks' jobs of one id are one run for sure, or another; neither where they do not tell.
func compare(a, b slurm.Job) (sure, other bool) {
	switch {
	case a.SLUID != "" && b.SLUID != "":
		sure = a.SLUID == b.SLUID
	case !a.Start.IsZero() && !b.Start.IsZero():
		sure = a.Start.Unix() == b.Start.Unix()
	default:
		return false, false
	}
	return sure, !sure
}

// Sure reports that a record is of this very run, by its SLUID or start time, and not only of its job id.
func (r Run) Sure(job slurm.Job) bool {
	sure, _ := compare(r.Job, job)
	return sure && r.Job.ID == job.ID
}

// Mistakable reports that the end which is told of may be another run's of the job id: Slurm does not say which run
// it is for (slurm.TellsStart), and one that was closed less than within before now may have an epilog that comes
// twice.
func (r Run) Mistakable(runs []Run, job slurm.Job, now, within time.Duration) bool {
	if r.Closed() || r.Sure(job) {
		return false
	}
	return slices.ContainsFunc(runs, func(o Run) bool {
		if o.Job.ID != job.ID || o.Job.UID != job.UID || !o.Closed() || o.Key == r.Key || o.Epoch.Boot != r.Epoch.Boot {
			return false
		}
		ended := o.Ends[len(o.Ends)-1].At
		return ended <= now && now-ended < within
	})
}
