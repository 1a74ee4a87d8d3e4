package ledger

import (
	"cmp"
	"slices"

	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// sawClient keeps the least of Client that two samples in a row show: one alone may have read memory and processes at
// two moments.
func (g *Recorded) sawClient(r gpu.Reading) {
	now, last := client(r), g.Beyond.Client
	if both := max(now, last); now > 0 && last > 0 {
		g.Client = min(both, cmp.Or(g.Client, both))
	}
	g.Beyond.Client = now
}

// client is what the driver holds for each process of a reading beyond the listed figures, 0 if it does not tell.
func client(r gpu.Reading) uint64 {
	bytes, unknown := finding.Unexplained(r, finding.Limits{}, finding.Baseline{})
	n := uint64(len(r.Processes))
	if unknown != "" || r.ProcessesUnknown != "" || n == 0 || bytes/n > finding.MaxBaseline {
		return 0
	}
	return bytes / n
}

// Clients are, for each model of GPU, the least that the recordings of jobs under a version of the driver show of what
// it holds for a process beyond the process's figure. A job can make its own figure larger, and no other job's.
func Clients(runs []Run, driver string) map[string]uint64 {
	least := map[string]uint64{}
	for _, r := range runs {
		for _, e := range r.Ends {
			if e.Recording == nil || driver == "" || r.EpochOf(e).Driver != driver {
				continue
			}
			for _, g := range e.Recording.GPUs {
				i := slices.IndexFunc(r.Devices, func(d Assigned) bool { return d.Device.ID == g.ID })
				if i < 0 || g.Client == 0 {
					continue
				}
				model := r.Devices[i].Device.Name
				least[model] = min(g.Client, cmp.Or(least[model], g.Client))
			}
		}
	}
	return least
}
