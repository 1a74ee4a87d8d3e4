package settle

import (
	"slices"

	"bookend/internal/gpu"
)

// Stay is a process that every look shows, with the least that any of them saw it hold.
type Stay struct {
	gpu.Process
	Falling bool // it held more before than at the last look: it is giving memory back
	most    uint64
}

// Stayed lists the processes that every one of these looks shows on a device, where the looks are enough to call
// something flat. What the total does meanwhile does not matter: something else on the GPU may move for ever. A PID
// names one process only with its start time, which the caller has to compare.
func Stayed(rule gpu.WatchRule, d gpu.Device, looks []gpu.Snapshot) []Stay {
	var stayed []Stay
	for i, r := range Readings(rule, d, looks) {
		if r.ProcessesUnknown != "" {
			return nil
		}
		if i == 0 {
			for _, p := range r.Processes {
				stayed = append(stayed, Stay{Process: p, most: p.Memory.Bytes})
			}
			continue
		}
		stayed = still(stayed, r.Processes)
	}
	return stayed
}

// Readings are what each of these looks read of a device; none where one of them did not, or where they are too few or
// too far apart for what they have in common to be called lasting.
func Readings(rule gpu.WatchRule, d gpu.Device, looks []gpu.Snapshot) (all []gpu.Reading) {
	if !observed(rule.Flat, looks) {
		return nil
	}
	for _, s := range looks {
		l := lookAt(s, d)
		if l.missing != "" {
			return nil
		}
		all = append(all, l.reading)
	}
	return all
}

// still keeps the processes that the next look shows too. A figure that any look could not read is unknown.
func still(stayed []Stay, next []gpu.Process) (both []Stay) {
	for _, p := range stayed {
		i := slices.IndexFunc(next, func(q gpu.Process) bool { return q.PID == p.PID })
		if i < 0 {
			continue
		}
		now := next[i].Memory
		if p.Memory.Known() && (!now.Known() || now.Bytes < p.Memory.Bytes) {
			p.Memory = now
		}
		p.Falling = now.Known() && now.Bytes+tolerance < p.most
		p.most = max(p.most, now.Bytes)
		both = append(both, p)
	}
	return both
}
