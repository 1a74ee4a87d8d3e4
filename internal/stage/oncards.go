package stage

import (
	"errors"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/slurm"
)

// onCardsTime is for one search of the node's processes: 20 000 with 50 descriptors each took 0.9 s.
const onCardsTime = 1500 * time.Millisecond

// Holdings searches for the processes that have a device node of the driver open now. It waits for at most 1.5 s, leaves
// alone what hooks got stuck at, and puts a child that gets stuck itself on record for them.
func Holdings(r Readers) attrib.Scan {
	skip, blocked := hung(opHolders, r.stuck())
	if blocked {
		return attrib.Scan{Partial: errStuck.Error()}
	}
	request := holdersRequest{Proc: r.Config.Paths.Proc, Dev: r.Config.Paths.Dev, Budget: onCardsTime - scanReserve, Skip: skip}
	scan, err := ask[attrib.Scan](opHolders, request, onCardsTime)
	unkept := r.keep(opHolders, err, scan.Hung)
	var failed *childError
	if errors.As(err, &failed) && failed.answered {
		err = nil // what it found stands
	}
	if err = errors.Join(err, unkept); err != nil {
		scan.Partial = err.Error()
	}
	return scan
}

// JobsOnCards are the jobs whose processes, by their cgroups, have a GPU's device node open now; what cannot be told is no
// trouble of the hooks'.
func JobsOnCards(r Readers) []slurm.Owner {
	var jobs []slurm.Owner
	for _, h := range Holdings(r).Holdings {
		job := slurm.Owner{ID: h.Cgroup.ID, SLUID: h.Cgroup.SLUID}
		if len(h.Minors) > 0 && !h.Gone && job.Found() && !slices.Contains(jobs, job) {
			jobs = append(jobs, job)
		}
	}
	return jobs
}
