package judge

import (
	"maps"
	"slices"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// teardown is longer than the driver was measured to take for the memory of a process that has ended, 0.1 to 0.4 s.
// Of memory that nobody is listed for nothing else tells that its holder, or a probe, has just ended.
const teardown = 500 * time.Millisecond

// confirm looks again after /proc was read, since what was listed may have ended meanwhile: then its memory is on its
// way back. To be sure, a listed PID that was gone already, or may be of a job that has just ended, has to stay listed on
// its card for the whole flat time after that; what other cards showed before still counts.
func (o Order) confirm(e Eyes, side *finding.Side, looks []gpu.Snapshot, least time.Duration) {
	again := o.Rule
	again.Max = least
	var s second
	if o.Sure {
		if s.anew = o.leaving(*side); len(s.anew) > 0 {
			again.Max = o.Rule.Max
		}
	}
	then := side.Snapshot
	s.looks = e.Watch(o.Cards, again)
	s.search = search{before: then, looks: s.looks}
	if o.Sure && len(s.looks) > 0 {
		if repeated := o.searchAgain(e, side, s.looks[len(s.looks)-1]); len(repeated.looks) > 0 {
			s.search, s.looks = repeated, append(s.looks, repeated.looks...)
		}
	}
	s.all = slices.Concat(looks, s.looks)
	if len(s.looks) > 0 {
		side.Snapshot = s.looks[len(s.looks)-1]
	}
	s.ended, s.same = o.endedSince(e, *side, then)
	o.judgeAgain(side, s)
	side.Stayed = nil
	if len(s.looks) > 0 {
		o.outdate(side, s.search, least)
		side.Stayed = o.stayedAgain(*side, s)
	}
}

// second is what was seen since /proc was read.
type second struct {
	all, looks []gpu.Snapshot // with those before, and without
	search     search
	anew       map[gpu.ID]bool // the GPUs on which the listed have the whole flat time again
	ended      map[gpu.ID]bool // those on which a process has ended
	same       map[int]bool    // the PIDs of those that have not
}

// judgeAgain judges every card anew: what the last look says of one must not be read with the old verdict.
func (o Order) judgeAgain(side *finding.Side, s second) {
	for _, c := range o.Cards {
		id := c.Device.ID
		curve, since := side.Curves[id], s.all
		if s.anew[id] {
			since = s.looks
		}
		if len(s.looks) > 0 {
			curve = settle.JudgeDevice(o.Rule, c.Device, since)
		}
		if curve.State == settle.Flat && (len(s.looks) == 0 || s.ended[id]) {
			curve.State, curve.Steady = settle.Moving, false // nobody can say that it is still so
		}
		side.Curves[id] = curve
	}
}

// stayedAgain finds what stayed on GPUs that do not settle, and what of it may be ending.
func (o Order) stayedAgain(side finding.Side, s second) map[gpu.ID][]settle.Stay {
	all, later := o.stayed(side, s.all), o.stayed(side, s.looks)
	for id, list := range all {
		list = slices.DeleteFunc(list, func(p settle.Stay) bool { return p.PID != 0 && !s.same[p.PID] })
		for i, p := range list {
			short := !slices.ContainsFunc(later[id], func(q settle.Stay) bool { return q.PID == p.PID })
			facts := side.Processes[p.PID]
			watched := (facts.Gone || o.unbacked(facts)) && s.anew[id]
			list[i].Ending = watched && short || (facts.Gone || p.PID == 0) && s.ended[id] ||
				p.PID == 0 && o.appeared(s.search, id)
		}
		all[id] = list
	}
	return all
}

// search is what was seen around a search for holders: the last look before it, and those after it.
type search struct {
	before gpu.Snapshot
	looks  []gpu.Snapshot
}

// lasted is how long it was watched after the search.
func (s search) lasted() time.Duration { return s.looks[len(s.looks)-1].At - s.looks[0].At }

// searchAgain searches once more where a process that the first search found has ended, and watches for the driver's
// teardown: what is there after that is not of those that ended, and who holds it was found. Else whoever starts
// short-lived programs that open the driver hides what stays. It has no looks where the first search stands.
func (o Order) searchAgain(e Eyes, side *finding.Side, before gpu.Snapshot) search {
	if !o.anyEnded(e, *side) {
		return search{}
	}
	scan, rule := e.Holders(teardown), o.Rule
	rule.Max = min(teardown, rule.Max)
	s := search{before: before, looks: e.Watch(o.Cards, rule)}
	if scan != nil && scan.Partial == "" && len(s.looks) > 0 {
		side.Scan = scan
	}
	return s
}

// anyEnded reports that one of those that the search found has ended since.
func (o Order) anyEnded(e Eyes, side finding.Side) bool {
	var found []int
	for _, h := range holdings(side) {
		found = append(found, h.PID)
	}
	now := e.Processes(found)
	return slices.ContainsFunc(holdings(side), func(h finding.Holding) bool {
		p := now[h.PID]
		return p.Why == "" && h.Why == "" && (p.Gone || p.Start != h.Start)
	})
}

// unbacked reports a process whose environment names another job, of which /proc showed no step. That may be a job
// without GPUs, and so without a record, which has just ended: its processes go within the flat time.
func (o Order) unbacked(p finding.Process) bool {
	another := p.EnvJobID != 0 && p.EnvJobID != o.Job.ID && p.EnvJobID != o.Job.HetJobID
	return another && p.EnvJobHere == "" && p.Why == "" && !p.Gone && !p.Cgroup.Found() && p.Cgroup.Conflict == ""
}

// leaving are the GPUs with a process that is gone or may soon go. One that the search found counts as well.
func (o Order) leaving(side finding.Side) map[gpu.ID]bool {
	all := o.having(side, func(p finding.Process) bool { return isGone(p) || o.unbacked(p) })
	for _, h := range holdings(side) {
		for _, c := range o.Cards {
			if o.unbacked(h.Process) && o.concerns(h, c, side) {
				all[c.Device.ID] = true
			}
		}
	}
	return all
}

// outdate notes that the search does not tell who holds what is there: memory that no process is listed for appeared
// after it, or it was not watched long enough for the memory of one that ended just before it to be given back.
func (o Order) outdate(side *finding.Side, s search, least time.Duration) {
	if side.Scan == nil || side.Scan.Partial != "" {
		return
	}
	why := ""
	if s.lasted() < least {
		why = "too little time to see the memory of one that had just ended given back"
	}
	for _, c := range o.Cards {
		if side.Curves[c.Device.ID].State != settle.Moving && o.more(s.before, side.Snapshot, c) {
			why = "memory appeared after the search"
		}
	}
	if why != "" {
		scan := *side.Scan
		scan.Partial = why
		side.Scan = &scan
	}
}

// appeared reports that on a GPU that does not settle memory which no process is listed for appeared after the search:
// it may have taken the place of what was there before.
func (o Order) appeared(s search, id gpu.ID) bool {
	return slices.ContainsFunc(o.Cards, func(c finding.Card) bool {
		return c.Device.ID == id && slices.ContainsFunc(s.looks, func(look gpu.Snapshot) bool { return o.more(s.before, look, c) })
	})
}

// more reports that a card has more memory that nobody is listed for than before.
func (o Order) more(before, now gpu.Snapshot, c finding.Card) bool {
	then, unknown := o.rest(before, c)
	bytes, _ := o.rest(now, c)
	return bytes > then+finding.AsMuch || unknown != "" && bytes > 0
}

// endedSince names the cards on which a process ended since /proc was read, or can no longer be read: for a moment the
// driver lists the memory of one that ended still. Who was found to have a card open counts as who is listed: with the
// last of them the memory goes. Of those listed it returns which are the same as then. What /proc said of a PID is
// forgotten if the PID may be another process's by now; then is the look before /proc was read.
func (o Order) endedSince(e Eyes, side finding.Side, then gpu.Snapshot) (ended map[gpu.ID]bool, still map[int]bool) {
	asked := pids(side.Snapshot)
	for _, h := range holdings(side) {
		if !slices.Contains(asked, h.PID) {
			asked = append(asked, h.PID)
		}
	}
	now := e.Processes(asked)
	same := func(before finding.Process) bool {
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
			_, was := earlier.Process(p.PID)
			leaving := after.Gone && was // its memory is on its way back
			if before.Start != 0 && after.Why == "" && after.Start != before.Start && !leaving {
				side.Processes[p.PID] = finding.Process{PID: p.PID, Why: "its PID may be another process's by now"}
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
func (o Order) concerns(h finding.Holding, c finding.Card, side finding.Side) bool {
	if h.Has(c.Device) {
		return true
	}
	bytes, _ := o.rest(side.Snapshot, c)
	return bytes >= o.Limits.Report
}

// rest is the memory of a card that nobody is listed for, or why it cannot be told.
func (o Order) rest(s gpu.Snapshot, c finding.Card) (bytes uint64, unknown string) {
	r, _ := s.Reading(c.Device.ID)
	return finding.Unexplained(r, o.Limits, o.Baselines[c.Device.ID])
}

func holdings(side finding.Side) []finding.Holding {
	if side.Scan == nil {
		return nil
	}
	return side.Scan.Holdings
}
