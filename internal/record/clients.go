package record

import (
	"cmp"
	"slices"

	"bookend/internal/gpu"
)

// sawClient keeps the smallest Client that two successive samples show: one alone may have read memory and processes at
// different moments.
func (g *GPURecording) sawClient(r gpu.Reading) {
	now, last := client(r), g.Beyond.Client
	if both := max(now, last); now > 0 && last > 0 {
		g.Client = min(both, cmp.Or(g.Client, both))
	}
	g.Beyond.Client = now
}

// client returns what the driver holds per process of a reading beyond the listed figures, 0 if that is unknown.
func client(r gpu.Reading) uint64 {
	bytes, unknown := Unexplained(r, Limits{}, Baseline{})
	n := uint64(len(r.Processes))
	if unknown != "" || r.ProcessesUnknown != "" || n == 0 || bytes/n > MaxBaseline {
		return 0
	}
	return bytes / n
}

// Clients returns, by GPU model, the least memory that the driver holds for a process beyond the process's figure, in
// the recordings of jobs under one driver version. A job can increase its own figure, but no other job's.
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
