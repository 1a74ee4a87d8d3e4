package attribution

import (
	"cmp"
	"slices"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// LastHealth returns the newest recorded value of each fact of a GPU's condition in an epoch: in another, counters
// start at 0 again. A fact is unknown if another run than self may have had the GPU since. The search ends at a record
// that was cut before its condition was kept: what is older may not be the newest.
func LastHealth(runs []record.Run, self record.Run, now Now) map[gpu.ID]gpu.Health {
	last := map[gpu.ID]gpu.Health{}
	for _, e := range endsOf(runs, now.Epoch) { // newest first
		for _, h := range e.Health {
			kept := last[h.Device]
			older := slices.DeleteFunc(slices.Clone(h.Facts), func(f gpu.Fact) bool {
				_, newer := kept.Fact(f.Code)
				return newer
			})
			if len(older) > 0 {
				unread := now.unread(runs, self, h.Device, e.At)
				for _, f := range older {
					f.Unknown = cmp.Or(f.Unknown, unread)
					kept.Facts = append(kept.Facts, f)
				}
			}
			kept.Device = h.Device
			last[h.Device] = kept
		}
		if e.Rest[record.Everything] > 0 && len(e.Health) == 0 {
			break
		}
	}
	return last
}
