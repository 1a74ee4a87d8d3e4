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
		if r.Job.ID != job.ID || r.Job.UID != job.UID || compare(r.Job, job) == other {
			continue
		}
		if best == nil || better(*r, *best, job) {
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

// likeness says whether two hooks' jobs of one id are one run.
type likeness int

const (
	other likeness = iota
	perhaps
	same
)

func compare(a, b slurm.Job) likeness {
	equal := false
	switch {
	case a.SLUID != "" && b.SLUID != "":
		equal = a.SLUID == b.SLUID
	case !a.Start.IsZero() && !b.Start.IsZero():
		equal = a.Start.Unix() == b.Start.Unix()
	default:
		return perhaps
	}
	if equal {
		return same
	}
	return other
}

// better prefers the surer likeness, then the run that began later: of an older one that is still open, only the
// epilog is missing.
func better(a, b Run, job slurm.Job) bool {
	if la, lb := compare(a.Job, job), compare(b.Job, job); la != lb {
		return la > lb
	}
	return a.after(b)
}

// Sure reports that a record is of this very run, by its SLUID or start time, and not only of its job id.
func (r Run) Sure(job slurm.Job) bool { return r.Job.ID == job.ID && compare(r.Job, job) == same }

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
