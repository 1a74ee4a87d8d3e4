package stage

import (
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/config"
	"bookend/internal/slurm"
)

// onCardsTime is for one search of the node's processes: 20 000 with 50 descriptors each took 0.9 s.
const onCardsTime = 1500 * time.Millisecond

// Holdings searches for the processes that have a device node of the driver open now. It waits for at most 1.5 s.
func Holdings(cfg config.Config) attrib.Scan {
	request := holdersRequest{Proc: cfg.Paths.Proc, Dev: cfg.Paths.Dev, Budget: onCardsTime - scanReserve}
	scan, err := ask[attrib.Scan](opHolders, request, onCardsTime)
	if err != nil {
		return attrib.Scan{Partial: err.Error()}
	}
	return scan
}

// JobsOnCards are the jobs whose processes, by their cgroups, have a GPU's device node open now; what cannot be told is no
// trouble of the hooks'.
func JobsOnCards(cfg config.Config) []slurm.Owner {
	var jobs []slurm.Owner
	for _, h := range Holdings(cfg).Holdings {
		job := slurm.Owner{ID: h.Cgroup.ID, SLUID: h.Cgroup.SLUID}
		if len(h.Minors) > 0 && !h.Gone && job.Found() && !slices.Contains(jobs, job) {
			jobs = append(jobs, job)
		}
	}
	return jobs
}
