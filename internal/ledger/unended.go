package ledger

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/settle"
)

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
			over = append(over, Unfinished{Run: r, Why: "the node has booted since", Over: r.Began()})
		case by != nil:
			over = append(over, Unfinished{Run: r, Why: "its job began again", Over: by.Began()})
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
		if later && o.EndSeen() && !n.mayShare(o) && slices.ContainsFunc(r.Devices, o.gotClean) {
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
	given := slices.ContainsFunc(r.Devices,
		func(o Assigned) bool { return o.Device.ID == d.Device.ID && o.Device.ID != "" })
	reading, seen := r.Start.Snapshot.Reading(d.Device.ID)
	return given && seen && r.Start.Curves[d.Device.ID].State == settle.Clean && reading.ProcessesUnknown == "" &&
		len(reading.Processes) == 0
}
