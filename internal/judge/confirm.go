package judge

import (
	"maps"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// teardown is longer than the driver was measured to take for the memory of a process that has ended, 0.1 to 0.4 s.
// Of memory that nobody is listed for nothing else tells that its holder, or a probe, has just ended.
const teardown = 500 * time.Millisecond

// confirm looks again after /proc was read, since what was listed may have ended meanwhile: then its memory is on its
// way back. To be sure, a listed PID that was gone already has to stay listed on its card for the whole flat time after
// that; what other cards showed before still counts.
func (o Order) confirm(e Eyes, side *finding.Side, looks []gpu.Snapshot, least time.Duration) {
	again := o.Rule
	again.Max = least
	anew := map[gpu.ID]bool{}
	if o.Sure {
		if anew = o.gone(*side); len(anew) > 0 {
			again.Max = o.Rule.Max
		}
	}
	more := e.Watch(o.Cards, again)
	all := slices.Concat(looks, more)
	since := func(id gpu.ID) []gpu.Snapshot {
		if anew[id] {
			return more
		}
		return all
	}
	then := side.Snapshot
	if len(more) > 0 {
		o.outdate(side, more[len(more)-1])
		side.Snapshot = more[len(more)-1]
	}
	ended, same := o.endedSince(e, *side, then)
	for _, c := range o.Cards {
		id := c.Device.ID
		curve := side.Curves[id]
		if len(more) > 0 { // every card: what the new look says of one must not be read with the old verdict
			curve = settle.JudgeDevice(o.Rule, c.Device, since(id))
		}
		if curve.State == settle.Flat && (len(more) == 0 || ended[id]) {
			curve.State, curve.Steady = settle.Moving, false // nobody can say that it is still so
		}
		side.Curves[id] = curve
	}
	side.Stayed = nil
	if len(more) == 0 {
		return
	}
	side.Stayed = o.stayed(*side, since)
	for id, list := range side.Stayed {
		side.Stayed[id] = slices.DeleteFunc(list, func(p settle.Stay) bool { return !same[p.PID] })
	}
}

// outdate notes that memory which nobody is listed for appeared after the search for holders: who came with it was not
// looked into.
func (o Order) outdate(side *finding.Side, last gpu.Snapshot) {
	if side.Scan == nil || side.Scan.Partial != "" {
		return
	}
	for _, c := range o.Cards {
		r, _ := side.Snapshot.Reading(c.Device.ID)
		searched, unknown := finding.Unexplained(r, o.Limits, o.Baselines[c.Device.ID])
		r, _ = last.Reading(c.Device.ID)
		bytes, _ := finding.Unexplained(r, o.Limits, o.Baselines[c.Device.ID])
		if bytes > searched+finding.AsMuch || unknown != "" && bytes > 0 {
			scan := *side.Scan
			scan.Partial = "memory appeared after the search"
			side.Scan = &scan
			return
		}
	}
}

// endedSince names the cards on which a process ended since /proc was read, or can no longer be read: for a moment the
// driver lists the memory of one that ended still. Who was found to have a card open counts as who is listed: with the
// last of them the memory goes. Of those listed it returns which are the same as then. What /proc said of a PID is
// forgotten if the PID may be another process's by now; then is the look before /proc was read.
func (o Order) endedSince(e Eyes, side finding.Side, then gpu.Snapshot) (ended map[gpu.ID]bool, still map[int]bool) {
	asked := pids(finding.Side{Snapshot: side.Snapshot})
	for _, h := range holdings(side) {
		if !slices.Contains(asked, h.PID) {
			asked = append(asked, h.PID)
		}
	}
	now := e.Processes(asked)
	same := func(before attrib.Process) bool {
		after := now[before.PID]
		return after.Why == "" && after.Gone == before.Gone && after.Start == before.Start
	}
	ended, still = map[gpu.ID]bool{}, map[int]bool{}
	read := maps.Clone(side.Processes) // a process may be listed on several GPUs
	for _, r := range side.Snapshot.Readings {
		for _, p := range r.Processes {
			before := read[p.PID]
			still[p.PID] = same(before)
			ended[r.Device.ID] = ended[r.Device.ID] || before.Why == "" && !same(before)
			after := now[p.PID]
			earlier, _ := then.Reading(r.Device.ID)
			leaving := after.Gone && listed(earlier, p.PID) >= 0 // its memory is on its way back
			if before.Start != 0 && after.Why == "" && after.Start != before.Start && !leaving {
				side.Processes[p.PID] = attrib.Process{PID: p.PID, Why: "its PID may be another process's by now"}
			}
		}
	}
	for _, h := range holdings(side) {
		for _, c := range o.Cards {
			ended[c.Device.ID] = ended[c.Device.ID] || o.concerns(h, c, side) && !same(h.Process)
		}
	}
	return ended, still
}

// concerns reports whether a process may hold something on the card: it has the card open, or there is memory that
// nobody is listed for. A handle on that needs no more than the driver, which who has another card open has too.
func (o Order) concerns(h attrib.Holding, c finding.Card, side finding.Side) bool {
	if c.Device.Minor == nil || slices.Contains(h.Minors, *c.Device.Minor) {
		return true
	}
	r, _ := side.Snapshot.Reading(c.Device.ID)
	bytes, _ := finding.Unexplained(r, o.Limits, o.Baselines[c.Device.ID])
	return bytes >= o.Limits.Report
}

func holdings(side finding.Side) []attrib.Holding {
	if side.Scan == nil {
		return nil
	}
	return side.Scan.Holdings
}
