package judge

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"bookend/internal/compare"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/settle"
)

// teardown exceeds the time that the driver was measured to take to free the memory of an ended process, 0.1 to 0.4 s.
// For memory without a listed process, nothing else shows that its holder, or a probe, has just ended.
const teardown = 500 * time.Millisecond

// confirm samples again after /proc was read, since a listed process may have ended meanwhile: then its memory is being
// freed. To be sure, a listed PID that was already gone, or may be of a job that has just ended, has to stay listed on
// its GPU for the whole flat time after that; for other GPUs, earlier samples still count.
func (o *Order) confirm(e Observer, side *record.Side, samples []gpu.Snapshot, least time.Duration) {
	again := o.watchFor(least)
	var s second
	if o.Sure {
		s.rewatched = o.leaving(*side)
		if len(s.rewatched) > 0 {
			again.Max = o.Rule.Max
		}
	}
	then := side.Snapshot
	s.samples = e.Watch(o.Cards, again)
	s.search = search{before: then, samples: s.samples}
	if o.Sure && len(s.samples) > 0 {
		if repeated := o.searchAgain(e, side, s.samples[len(s.samples)-1]); len(repeated.samples) > 0 {
			s.search, s.samples = repeated, append(s.samples, repeated.samples...)
		}
	}
	s.all = slices.Concat(samples, s.samples)
	if len(s.samples) > 0 {
		side.Snapshot = s.samples[len(s.samples)-1]
	}
	now := e.Processes(pids(side.Holdings(), side.Snapshot))
	s.ended, s.same = o.endedSince(now, *side, append([]gpu.Snapshot{then}, s.samples...))
	maps.DeleteFunc(now, func(_ int, p record.Process) bool { return p.Gone }) // its memory is being freed
	o.dropStrangers(side.Snapshot, now)
	o.judgeAgain(side, s)
	side.Stayed = nil
	if len(s.samples) > 0 {
		side.Stayed = o.stayedAgain(*side, s)
		o.outdate(side, s.search, least)
	}
}

// watchFor is the rule for a watch of at least that long, also if memory is settled earlier; 0 is one sample.
func (o Order) watchFor(least time.Duration) gpu.WatchRule {
	rule := o.Rule
	rule.Max = min(least, rule.Max)
	rule.Flat = max(rule.Flat, rule.Max)
	return rule
}

// second is what was seen since /proc was read.
type second struct {
	all, samples []gpu.Snapshot // samples with those from before, and without
	search       search
	rewatched    map[gpu.ID]bool // GPUs whose processes are watched for the whole flat time again
	ended        map[gpu.ID]bool // GPUs on which a process has ended
	same         map[int]bool    // PIDs that are still the same process
}

// judgeAgain judges every GPU again: the old verdict does not hold for the last sample.
func (o Order) judgeAgain(side *record.Side, s second) {
	for _, c := range o.Cards {
		id := c.Device.ID
		curve, since := side.Curves[id], s.all
		if s.rewatched[id] {
			since = s.samples
		}
		if len(s.samples) > 0 {
			curve = settle.JudgeDevice(o.Rule, c.Device, since)
		}
		if curve.State == record.Flat && (len(s.samples) == 0 || s.ended[id]) {
			curve.State, curve.Steady = record.Moving, false // whether it is still so is unknown
		}
		side.Curves[id] = curve
	}
}

// stayedAgain returns what stayed on GPUs that do not settle, and marks what may be ending.
func (o Order) stayedAgain(side record.Side, s second) map[gpu.ID][]record.Stay {
	all, later := o.stayed(side, s.all), o.stayed(side, s.samples)
	for _, c := range o.Cards {
		id := c.Device.ID
		more := func(look gpu.Snapshot) bool { return o.more(s.search.before, look, c) }
		appeared := slices.ContainsFunc(s.search.samples, more) // it may have replaced what was there before
		list := slices.DeleteFunc(all[id], func(p record.Stay) bool { return p.PID != 0 && !s.same[p.PID] })
		for i, p := range list {
			short := !slices.ContainsFunc(later[id], func(q record.Stay) bool { return q.PID == p.PID })
			facts := side.Processes[p.PID]
			watched := (facts.Gone || o.unbacked(facts)) && s.rewatched[id]
			list[i].Ending = watched && short || (facts.Gone || p.PID == 0) && s.ended[id] || p.PID == 0 && appeared
		}
		all[id] = list
	}
	return all
}

// search is what was seen around a search for holders: the last sample before it, and those after it.
type search struct {
	before  gpu.Snapshot
	samples []gpu.Snapshot
}

// searchAgain searches once more if a process found by the first search has ended, and samples for as long as a
// teardown takes: what is there after that is not of ended processes, and its holders were found. Otherwise short-lived
// programs that open the driver could hide what stays. The result has no samples if the first search stands.
func (o Order) searchAgain(e Observer, side *record.Side, before gpu.Snapshot) search {
	if !o.anyEnded(e, *side) {
		return search{}
	}
	scan := e.Holders(teardown)
	s := search{before: before, samples: e.Watch(o.Cards, o.watchFor(teardown))}
	if scan != nil && scan.Partial == "" && len(s.samples) > 0 {
		keepHere(side.Scan.Holdings, scan.Holdings)
		side.Scan = scan
	}
	return s
}

// keepHere keeps of the processes found again that the job in their environment was on the node: one without a record
// that has ended since is no invention, and what it had is being freed.
func keepHere(found, again []record.Holding) {
	for _, was := range found {
		for i := range again {
			if h := &again[i]; h.PID == was.PID && h.Start == was.Start {
				h.EnvJobHere = cmp.Or(h.EnvJobHere, was.EnvJobHere)
			}
		}
	}
}

// anyEnded reports whether a process found by the search has ended since.
func (o Order) anyEnded(e Observer, side record.Side) bool {
	now := e.Processes(pids(side.Holdings()))
	return slices.ContainsFunc(side.Holdings(), func(h record.Holding) bool {
		p := now[h.PID]
		return p.Why == "" && h.Why == "" && (p.Gone || p.Start != h.Start)
	})
}

// unbacked reports whether a process's environment names another job of which /proc showed no step. That may be a job
// without GPUs, and so without a record, that has just ended: its processes go within the flat time.
func (o Order) unbacked(p record.Process) bool {
	another := p.EnvJobID != 0 && p.EnvJobID != o.Job.ID && p.EnvJobID != o.Job.HetJobID
	return another && p.EnvJobHere == "" && p.Why == "" && !p.Gone && !p.Cgroup.Found() && p.Cgroup.Conflict == ""
}

// leaving returns the GPUs with a process that is gone or may soon go. A process found by the search counts too.
func (o Order) leaving(side record.Side) map[gpu.ID]bool {
	all := map[gpu.ID]bool{}
	goes := func(p record.Process) bool { return isGone(p) || o.unbacked(p) }
	for _, c := range o.Cards {
		found := func(h record.Holding) bool { return o.unbacked(h.Process) && o.concerns(h, c, side) }
		if lists(side, c.Device.ID, goes) || slices.ContainsFunc(side.Holdings(), found) {
			all[c.Device.ID] = true
		}
	}
	return all
}

// outdate marks the search as incomplete if it cannot show who holds what is there: memory without a listed process
// appeared after it, or sampling stopped too early to see the memory of a process that had just ended freed.
func (o Order) outdate(side *record.Side, s search, least time.Duration) {
	if side.Scan == nil || side.Scan.Partial != "" {
		return
	}
	why := ""
	if lasted := s.samples[len(s.samples)-1].At - s.samples[0].At; lasted < least && o.unexplained(*side) {
		why = "GPUs were sampled too briefly after it to see the memory of an ended process freed"
	}
	for _, c := range o.Cards {
		if side.Curves[c.Device.ID].State != record.Moving && o.more(s.before, side.Snapshot, c) {
			why = "memory appeared after the search"
		}
	}
	if why != "" {
		scan := *side.Scan
		scan.Partial = why
		side.Scan = &scan
	}
}

// more reports whether a GPU has more memory without a listed process than before.
func (o Order) more(before, now gpu.Snapshot, c record.Assigned) bool {
	then, rest := o.rest(before, c), o.rest(now, c)
	return rest.Bytes > then.Bytes+compare.AsMuch || !then.Known() && rest.Bytes > 0
}

// endedSince returns the GPUs on which a process has ended, or become unreadable, since /proc was read: the driver
// lists the memory of an ended process for a moment longer. Processes found by the search count like listed ones:
// memory goes with the last of them. It also returns which listed PIDs are still the same process, and drops what /proc
// showed for a PID that may have been reused; looks are the sample before /proc was read, and all since.
func (o Order) endedSince(
	now map[int]record.Process, side record.Side, samples []gpu.Snapshot,
) (ended map[gpu.ID]bool, still map[int]bool) {
	same := func(before record.Process) bool {
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
			leaving := after.Gone && compare.Frees(p.PID, r.Device.ID, samples)
			if before.Start != 0 && after.Why == "" && after.Start != before.Start && !leaving {
				side.Processes[p.PID] = record.Process{PID: p.PID, Why: "its PID may be another process's by now"}
			}
		}
	}
	for _, h := range side.Holdings() {
		for _, c := range o.Cards {
			ended[c.Device.ID] = ended[c.Device.ID] || o.concerns(h, c, side) && !same(h.Process)
		}
	}
	return ended, still
}

// concerns reports whether a process may hold something on the GPU: it has the GPU open, or there is memory without a
// listed process. A handle to that needs only the driver, which a process with another GPU open has too.
func (o Order) concerns(h record.Holding, c record.Assigned, side record.Side) bool {
	return h.Has(c.Device) || o.rest(side.Snapshot, c).Bytes >= o.Limits.Report
}

// rest returns the memory of a GPU that no process is listed for, or why it is unknown.
func (o Order) rest(s gpu.Snapshot, c record.Assigned) gpu.Figure {
	r, _ := s.Reading(c.Device.ID)
	return record.Unexplained(r, o.Limits, o.Baselines[c.Device.ID])
}
