package judge

import (
	"maps"
	"slices"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// Eyes see a node. What could not be seen comes back as unknown, with its reason; an empty answer is "nothing".
type Eyes interface {
	// Watch looks at GPUs as long as the rule says, oldest look first.
	Watch(cards []finding.Card, rule gpu.WatchRule) []gpu.Snapshot
	// Processes says what /proc knows of each PID.
	Processes(pids []int) map[int]finding.Process
	// Holders searches all of /proc for who has a card open; nil where the configuration forbids it.
	Holders() *finding.Scan
	// Quiet waits, for a bounded time, until no probe is at work on the cards, and keeps it so until release. Of
	// a card on which one still is it says why.
	Quiet(cards []finding.Card) (busy map[gpu.ID]string, release func())
}

// Order says what to look at, and for what.
type Order struct {
	Job   slurm.Job // the one whose end this is, zero for none
	Cards []finding.Card
	Rule  gpu.WatchRule
	// Known are the start times of the processes that the rule expects, 0 for one gone: a PID may be another's by now.
	Known     map[int]time.Duration
	Limits    finding.Limits
	Baselines map[gpu.ID]finding.Baseline
	// Sure asks for what certainty needs beyond one more look, at the price of another flat time: an end may drain
	// for memory that a start only reports.
	Sure bool
	// Neighbours is one look at the node's other cards, zero where there was none.
	Neighbours gpu.Snapshot
}

// Look takes stock of cards: it watches them until they are at rest, asks who is on them, searches for holders of what
// nobody accounts for, and looks again. The cards come back with the ids that only the driver knew.
func Look(e Eyes, o Order) (finding.Side, []finding.Card) {
	side, looks := o.watch(e)
	if o.dropStrangers(side) {
		side, looks = o.watch(e)
	}
	disown(side)
	flat := func(c settle.Curve) bool { return c.State == settle.Flat }
	if !slices.ContainsFunc(slices.Collect(maps.Values(side.Curves)), flat) && len(side.Stayed) == 0 {
		return side, o.Cards
	}
	busy, release := e.Quiet(o.Cards)
	defer release()
	var least time.Duration // one more look
	if o.unexplained(side) {
		side.Scan = e.Holders()
		if o.Sure {
			least = min(teardown, o.Rule.Max)
		}
	}
	o.confirm(e, &side, looks, least)
	for id, why := range busy {
		side.Curves[id] = settle.Curve{State: settle.Unknown, Why: why}
	}
	return side, o.Cards
}

// Glance is what a single look at cards shows, with who is on them. By one look no card is judged.
func Glance(e Eyes, s gpu.Snapshot) finding.Side {
	side := finding.Side{Snapshot: s, Curves: map[gpu.ID]settle.Curve{}}
	side.Processes = e.Processes(pids(s))
	disown(side)
	return side
}

func (o *Order) watch(e Eyes) (finding.Side, []gpu.Snapshot) {
	side := finding.Side{Curves: map[gpu.ID]settle.Curve{}, Processes: map[int]finding.Process{}}
	looks := e.Watch(o.Cards, o.Rule)
	if len(looks) == 0 {
		return side, nil
	}
	side.Snapshot = looks[len(looks)-1]
	o.Cards = identified(o.Cards, side.Snapshot)
	for _, c := range o.Cards {
		side.Curves[c.Device.ID] = settle.JudgeDevice(o.Rule, c.Device, looks)
	}
	side.Neighbours = o.Neighbours
	side.Processes = e.Processes(pids(side.Snapshot, side.Neighbours))
	side.Stayed = o.stayed(side, looks)
	return side, looks
}

// stayed finds what every look showed on a GPU whose memory is still moving: processes, and memory that no process is
// listed for. /proc is read after the looks: a process that started before the first of them is the one that each of
// them listed.
func (o Order) stayed(side finding.Side, looks []gpu.Snapshot) map[gpu.ID][]settle.Stay {
	all := map[gpu.ID][]settle.Stay{}
	for _, c := range o.Cards {
		id := c.Device.ID
		if side.Curves[id].State != settle.Moving {
			continue
		}
		same := slices.DeleteFunc(settle.Stayed(o.Rule, c.Device, looks), func(p settle.Stay) bool {
			facts, read := side.Processes[p.PID]
			return !read || facts.Why != "" || !facts.Gone && facts.Start+finding.Tick > looks[0].At
		})
		rest := settle.Rest(o.Rule, c.Device, looks, func(r gpu.Reading) gpu.Figure {
			return finding.Rest(r, o.Limits, o.Baselines[id])
		})
		if rest.Memory.Known() && rest.Memory.Bytes >= o.Limits.Report {
			same = append(same, rest)
		}
		if len(same) > 0 {
			all[id] = same
		}
	}
	return all
}

// dropStrangers takes PIDs out of what is expected that name another process than the expected one by now, or none
// where there was one. It reports whether there were any: then what was judged with them was judged wrongly.
func (o *Order) dropStrangers(side finding.Side) (found bool) {
	expect := map[gpu.ID]gpu.Expected{}
	for id, e := range o.Rule.Expect {
		r, _ := side.Snapshot.Reading(id)
		e.Processes = slices.DeleteFunc(slices.Clone(e.Processes), func(p gpu.ExpectedProcess) bool {
			now, start := side.Processes[p.PID], o.Known[p.PID]
			held, listed := r.Process(p.PID)
			if _, known := o.Known[p.PID]; !known || !listed || now.Why != "" {
				return false
			}
			stranger := now.Start != start || now.Gone && !sameBytes(held, p)
			found = found || stranger
			return stranger
		})
		expect[id] = e
	}
	if found {
		o.Rule.Expect = expect
	}
	return found
}

// disown forgets what /proc said of a process that started after the look that lists its PID: the listed one has ended.
func disown(side finding.Side) {
	for _, s := range []gpu.Snapshot{side.Snapshot, side.Neighbours} {
		for _, pid := range pids(s) {
			if now := side.Processes[pid]; s.At > 0 && now.Why == "" && now.Start > s.At {
				const why = "its PID was another process's when the GPU was read"
				side.Processes[pid] = finding.Process{PID: pid, Why: why}
			}
		}
	}
}

// sameBytes tells one dead PID from another: what is left under it was measured not to move.
func sameBytes(p gpu.Process, want gpu.ExpectedProcess) bool {
	return !p.Memory.Known() || max(p.Memory.Bytes, want.Bytes)-min(p.Memory.Bytes, want.Bytes) <= finding.AsMuch
}

// unexplained reports memory without a process, or a process that is gone: only then /proc is searched.
func (o Order) unexplained(side finding.Side) bool {
	for _, c := range o.Cards {
		id := c.Device.ID
		bytes, _ := o.rest(side.Snapshot, c)
		stayed := slices.ContainsFunc(side.Stayed[id], func(p settle.Stay) bool { return p.PID == 0 })
		if side.Curves[id].State == settle.Flat && bytes >= o.Limits.Report || stayed {
			return true
		}
	}
	return len(o.having(side, isGone)) > 0
}

// having are the GPUs on which such a process is listed: at the last look at one that has settled, or at every look.
func (o Order) having(side finding.Side, such func(finding.Process) bool) map[gpu.ID]bool {
	all := map[gpu.ID]bool{}
	for _, c := range o.Cards {
		id := c.Device.ID
		left := slices.ContainsFunc(side.Stayed[id], func(p settle.Stay) bool { return such(side.Processes[p.PID]) })
		if side.Curves[id].State == settle.Flat {
			r, _ := side.Snapshot.Reading(id)
			left = slices.ContainsFunc(r.Processes, func(p gpu.Process) bool { return such(side.Processes[p.PID]) })
		}
		if left {
			all[id] = true
		}
	}
	return all
}

func isGone(p finding.Process) bool { return p.Gone }

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

// identified fills in ids that only the driver knew: the inventory may name a card by its bus id alone.
func identified(cards []finding.Card, s gpu.Snapshot) []finding.Card {
	out := slices.Clone(cards)
	for i, c := range out {
		for _, r := range s.Readings {
			sameBus := r.Device.BusID != "" && r.Device.BusID == c.Device.BusID
			if r.Device.ID == c.Device.ID || c.Device.ID == "" && sameBus {
				out[i].Device = r.Device
			}
		}
	}
	return out
}

func pids(looks ...gpu.Snapshot) (list []int) {
	for _, s := range looks {
		for _, r := range s.Readings {
			for _, p := range r.Processes {
				list = append(list, p.PID)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// teardown is longer than the driver was measured to take for the memory of a process that has ended, 0.1 to 0.4 s.
// Of memory that nobody is listed for nothing else tells that its holder, or a probe, has just ended.
const teardown = 500 * time.Millisecond

// confirm looks again after /proc was read, since what was listed may have ended meanwhile: then its memory is on its
// way back. To be sure, a listed PID that was gone already, or may be of a job that has just ended, has to stay listed on
// its card for the whole flat time after that; what other cards showed before still counts.
func (o Order) confirm(e Eyes, side *finding.Side, looks []gpu.Snapshot, least time.Duration) {
	again := o.Rule
	again.Max = least
	anew := map[gpu.ID]bool{}
	if o.Sure {
		if anew = o.leaving(*side); len(anew) > 0 {
			again.Max = o.Rule.Max
		}
	}
	more := e.Watch(o.Cards, again)
	if o.Sure && len(more) > 0 {
		more = append(more, o.acquit(e, side)...)
	}
	all := slices.Concat(looks, more)
	since := func(id gpu.ID) []gpu.Snapshot {
		if anew[id] {
			return more
		}
		return all
	}
	then := side.Snapshot
	if len(more) > 0 {
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
	o.outdate(side, then)
	side.Stayed = o.stayed(*side, all)
	later := o.stayed(*side, more)
	for id, list := range side.Stayed {
		list = slices.DeleteFunc(list, func(p settle.Stay) bool { return p.PID != 0 && !same[p.PID] })
		for i, p := range list {
			short := !slices.ContainsFunc(later[id], func(q settle.Stay) bool { return q.PID == p.PID })
			facts := side.Processes[p.PID]
			list[i].Ending = (facts.Gone || o.unbacked(facts)) && anew[id] && short || (facts.Gone || p.PID == 0) && ended[id]
		}
		side.Stayed[id] = list
	}
}

// acquit watches once more where a process that the search found has ended: memory that is there after the driver's
// teardown was not its own. Else whoever starts short-lived programs that open the driver hides what stays.
func (o Order) acquit(e Eyes, side *finding.Side) []gpu.Snapshot {
	var found []int
	for _, h := range holdings(*side) {
		found = append(found, h.PID)
	}
	now := e.Processes(found)
	ended := func(h finding.Holding) bool {
		p := now[h.PID]
		return p.Why == "" && h.Why == "" && (p.Gone || p.Start != h.Start)
	}
	if !slices.ContainsFunc(holdings(*side), ended) {
		return nil
	}
	rule := o.Rule
	rule.Max = min(teardown, rule.Max)
	looks := e.Watch(o.Cards, rule)
	if n := len(looks); n > 0 && looks[n-1].At-looks[0].At >= teardown {
		scan := *side.Scan
		scan.Holdings = slices.DeleteFunc(slices.Clone(scan.Holdings), ended)
		side.Scan = &scan
	}
	return looks
}

// outdate notes that memory which no process is listed for appeared after the search for holders: who came with it was
// not looked into. On a GPU that does not settle only what was there before counts anyway.
func (o Order) outdate(side *finding.Side, then gpu.Snapshot) {
	if side.Scan == nil || side.Scan.Partial != "" {
		return
	}
	for _, c := range o.Cards {
		if side.Curves[c.Device.ID].State == settle.Moving {
			continue
		}
		searched, unknown := o.rest(then, c)
		bytes, _ := o.rest(side.Snapshot, c)
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
