package ledger

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/settle"
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
	case best.Epilog() != nil: // one that was settled without an end is open to it
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

// Node is what a node knows of itself, for judging runs whose end nobody saw.
type Node struct {
	Epoch  gpu.Epoch
	Shared []string // partitions that hand one card to several jobs
	// Exclusive reports that no card is given out in parts, for certain. It is asked only where it matters.
	Exclusive func() bool
}

// Unfinished is an open run that is over: its epilog never came.
type Unfinished struct {
	Run
	Why      string
	Presumed bool          // likely, and not proven
	Over     time.Duration // since when, CLOCK_BOOTTIME of the run's own boot
}

// Unended finds the open runs that are over: of an earlier boot, of a job id that began anew, or whose card was given
// to a later job, which got it clean and has ended. Nobody asks Slurm. That they are over blames nobody.
func Unended(runs []Run, n Node) (over []Unfinished) {
	for _, r := range runs {
		if r.Closed() {
			continue
		}
		by := r.Superseded(runs)
		switch {
		case r.Epoch.Boot != "" && n.Epoch.Boot != "" && r.Epoch.Boot != n.Epoch.Boot:
			over = append(over, Unfinished{Run: r, Why: "the node has booted since", Over: r.First().At})
		case by != nil:
			over = append(over, Unfinished{Run: r, Why: "its job began again", Over: by.First().At})
		default:
			if o := n.follower(r, runs); o != nil && n.Exclusive() {
				over = append(over, Unfinished{Run: r, Why: fmt.Sprintf("job %d was given its GPU", o.Job.ID),
					Presumed: true, Over: o.Start.At})
			}
		}
	}
	return over
}

// follower is a job that was given one of a run's cards later, alone and clean, and whose end was seen. Slurm gives a
// card that a job has to no other, suspended or not, unless it is shared by right.
func (n Node) follower(r Run, runs []Run) *Run {
	if r.Start == nil || n.mayShare(r) {
		return nil
	}
	for i, o := range runs {
		later := o.Job.ID != r.Job.ID && o.Start != nil && o.Start.At > r.Start.At && o.Epoch.Same(r.Epoch)
		if later && o.Epilog() != nil && !n.mayShare(o) && slices.ContainsFunc(r.Devices, o.gotClean) {
			return &runs[i]
		}
	}
	return nil
}

func (n Node) mayShare(r Run) bool {
	return r.Job.MPSPercent != "" || slices.Contains(n.Shared, r.Job.Partition)
}

// gotClean reports that a run was given a card with nobody on it.
func (r Run) gotClean(d Assigned) bool {
	reading, seen := r.Start.Snapshot.Reading(d.Device.ID)
	return r.had(d.Device.ID) && seen && r.Start.Curves[d.Device.ID].State == settle.Clean &&
		reading.ProcessesUnknown == "" && len(reading.Processes) == 0
}
