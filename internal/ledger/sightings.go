package ledger

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
)

// LastHealth is the newest condition on record of each GPU of an epoch: counters of another start again at 0. Behind a
// record that was cut short before its condition was kept, the next older one is not the newest.
func LastHealth(runs []Run, epoch gpu.Epoch) map[gpu.ID]gpu.Health {
	last := map[gpu.ID]gpu.Health{}
	for _, e := range endsOf(runs, epoch) { // newest first
		for _, h := range e.Health {
			if _, newer := last[h.Device]; !newer && len(h.Facts) > 0 {
				last[h.Device] = h
			}
		}
		if e.Rest["health"] > 0 || e.Rest[everything] > 0 && len(e.Health) == 0 {
			break
		}
	}
	return last
}

// Sightings are the processes that hooks of other jobs saw on a run's cards between two moments (CLOCK_BOOTTIME),
// oldest first: a lower bound of what was there.
func Sightings(runs []Run, self Run, from, to time.Duration) []diagnosis.Sighting {
	mine := map[gpu.ID]bool{}
	for _, d := range self.Devices {
		mine[d.Device.ID] = true
	}
	var seen []diagnosis.Sighting
	for _, e := range endsOf(runs, self.Epoch) {
		at := e.Snapshot.At // the look itself: what else an end did may have taken seconds
		for _, r := range e.Snapshot.Readings {
			if mine[r.Device.ID] && at > from && at < to {
				seen = append(seen, e.sightedOn(r, at, self)...)
			}
		}
	}
	slices.SortStableFunc(seen, func(a, b diagnosis.Sighting) int { return cmp.Compare(a.At, b.At) })
	return seen
}

// outright reports a process whose user is who its UID says, and that is in no job's cgroup.
func outright(p attrib.Process) bool {
	return p.Why == "" && !p.Gone && !p.Cgroup.Found() && !p.Apart()
}

// sightedOn tells of one card's processes whose they were, where a cgroup did.
func (e End) sightedOn(r gpu.Reading, at time.Duration, self Run) []diagnosis.Sighting {
	var seen []diagnosis.Sighting
	for _, p := range r.Processes {
		s := diagnosis.Sighting{At: at, Device: r.Device.ID, PID: p.PID, Bytes: p.Memory}
		if i := slices.IndexFunc(e.Processes, func(known attrib.Process) bool { return known.PID == p.PID }); i >= 0 {
			s.Owner = e.Processes[i].Cgroup
			s.Own = isOwn(s.Owner, self)
			s.Stranger = outright(e.Processes[i]) && stranger(e.Processes[i].UID, self)
		}
		seen = append(seen, s)
	}
	return seen
}
