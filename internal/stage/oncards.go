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

// JobsOnCards are the jobs whose processes, by their cgroups, have a GPU's device node open now. It waits for at most
// 1.5 s; a search that does not end names no job.
func JobsOnCards(cfg config.Config) []slurm.Owner {
	request := holdersRequest{Proc: cfg.Paths.Proc, Dev: cfg.Paths.Dev, Budget: onCardsTime - scanReserve}
	scan, err := ask[attrib.Scan](opHolders, request, onCardsTime)
	if err != nil {
		return nil // what cannot be told is no trouble of the hooks'
	}
	var jobs []slurm.Owner
	for _, h := range scan.Holdings {
		job := slurm.Owner{ID: h.Cgroup.ID, SLUID: h.Cgroup.SLUID}
		if len(h.Minors) > 0 && !h.Gone && job.Found() && !slices.Contains(jobs, job) {
			jobs = append(jobs, job)
		}
	}
	return jobs
}
