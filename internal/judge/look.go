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
	// Holders searches all of /proc for processes that have a card open, and leaves time for a watch of that long. It
	// is nil if the configuration forbids it.
	Holders(then time.Duration) *finding.Scan
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
	var least, sure time.Duration // one more look
	if o.unexplained(side) {
		if o.Sure {
			least, sure = min(teardown, o.Rule.Max), o.Rule.Flat+time.Second // samples are up to a second apart
		}
		side.Scan = e.Holders(sure)
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
