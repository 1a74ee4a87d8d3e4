package finding

import (
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// MaxBaseline is the most memory, in bytes, that a card's baseline may explain, and the most that a service may hold
// and pass for part of the node: services were measured to hold less, and what a job leaves that matters is more.
const MaxBaseline = 64 << 20

// Baseline is what a GPU carries without a job, in one epoch; without an admin never memory without a holder.
type Baseline struct {
	GPU   gpu.ID    `json:"gpu"`
	Epoch gpu.Epoch `json:"epoch"`
	// Bytes is memory beyond the listed processes, at most MaxBaseline.
	Bytes uint64 `json:"bytes"`
	// Residents are listed processes of system services.
	Residents []Resident    `json:"residents,omitempty"`
	Accepted  bool          `json:"accepted,omitempty"` // by an admin: nothing is learned over it
	Holder    string        `json:"holder,omitempty"`   // who holds Bytes: a service's name, or "accepted"
	At        time.Duration `json:"at_ns"`              // CLOCK_BOOTTIME of the look it was learned from
}

// Resident is one process of a baseline.
type Resident struct {
	PID     int           `json:"pid"`
	Start   time.Duration `json:"start_ns"` // CLOCK_BOOTTIME: with the PID it names one process
	Bytes   uint64        `json:"bytes"`
	Service string        `json:"service,omitempty"`
}

// Expected is what a look at a card with this baseline may show and still be clean.
func (b Baseline) Expected(l Limits) gpu.Expected {
	e := gpu.Expected{Bytes: b.Bytes}
	for _, r := range b.Residents {
		e.Processes = append(e.Processes, gpu.ExpectedProcess{PID: r.PID, Bytes: r.Bytes, Share: l.PerClient})
	}
	return e
}

// Learn returns what this scene, the start of a job, says of a card's baseline, and whether that is news. It learns
// from a card at rest on which there are none but services, and no memory without a service that has the card
// open; what it cannot explain so it leaves out, so that a baseline only ever shrinks towards a clean card or
// grows by what has a name.
func (s Scene) Learn(c Card, epoch gpu.Epoch) (Baseline, bool) {
	old := s.Baselines[c.Device.ID]
	r, ok := s.Now.Snapshot.Reading(c.Device.ID)
	state := s.Now.Curves[c.Device.ID].State
	// What is on a card that another live job was given, or may have been, may be that one's.
	shared := slices.ContainsFunc(s.Others, func(o Record) bool { return o.Keeps(c.Device.ID) })
	if !ok || old.Accepted || s.ending() || !state.AtRest() || r.ProcessesUnknown != "" || shared {
		return old, false
	}
	b := Baseline{GPU: c.Device.ID, Epoch: epoch, At: s.Now.Snapshot.At}
	for _, p := range r.Processes {
		facts := s.Now.Processes[p.PID]
		if !resident(p, facts) {
			return old, false
		}
		b.Residents = append(b.Residents,
			Resident{PID: p.PID, Start: facts.Start, Bytes: p.Memory.Bytes, Service: facts.Service})
	}
	bytes, unknown := Unexplained(r, s.Limits, Baseline{})
	if unknown != "" || bytes > MaxBaseline {
		return old, false
	}
	if b.Holder = s.service(c); b.Holder == "" && bytes <= old.Bytes+wander {
		b.Holder = old.Holder // the search that named it is not made for what is explained
	}
	if b.Holder != "" {
		b.Bytes = bytes
	}
	return b, !b.same(old)
}

// wander is how far figures of services move by themselves: a few pages of 2 MiB.
const wander = 4 << 20

func (b Baseline) same(o Baseline) bool {
	near := func(x, y uint64) bool { return max(x, y)-min(x, y) <= wander }
	sameResident := func(x, y Resident) bool { return x.PID == y.PID && x.Start == y.Start && near(x.Bytes, y.Bytes) }
	return near(b.Bytes, o.Bytes) && b.Holder == o.Holder && slices.EqualFunc(b.Residents, o.Residents, sameResident)
}

// service names the service that this memory must be of: it alone has the GPU open, and no job had it before.
func (s Scene) service(c Card) string {
	given := func(o Record) bool { return o.MayHold(c.Device.ID) }
	if slices.ContainsFunc(s.Others, given) || s.Now.Scan == nil ||
		slices.ContainsFunc(s.Now.Scan.Holdings, s.mayHoldExported(c)) {
		return ""
	}
	return s.opener(c)
}

// opener names a service of the node that has the card open, empty where none was found.
func (s Scene) opener(c Card) string {
	if s.Now.Scan == nil || c.Device.Minor == nil {
		return ""
	}
	for _, h := range s.Now.Scan.Holdings {
		if h.OfSystem() && h.Has(c.Device) {
			return h.Service
		}
	}
	return ""
}

// resident reports a listed process that is part of the node: a service with little memory, and no job's.
func resident(p gpu.Process, facts Process) bool {
	service := !facts.Gone && facts.Why == "" && facts.OfSystem() && facts.EnvJobID == 0 && facts.EnvUnknown == ""
	return service && p.Memory.Known() && p.Memory.Bytes <= MaxBaseline
}

// longestStart is longer than a start takes, 5 s as shipped, between reading what was learned and its last look.
const longestStart = 10 * time.Second

// startedAtRest reports that a card which was not idle at the job's start carried nothing but the node's own. Where
// memory cannot be judged, processes are all that is.
func (s Scene) startedAtRest(id gpu.ID) bool {
	r, ok := s.Before.Snapshot.Reading(id)
	stranger := func(p gpu.Process) bool { return !resident(p, s.Before.Processes[p.PID]) }
	if !ok || r.ProcessesUnknown != "" || slices.ContainsFunc(r.Processes, stranger) {
		return false
	}
	if r.Memory.Unjudged != "" {
		return true
	}
	b := s.Baselines[id]
	if b.At > s.Before.Snapshot.At-longestStart {
		b = Baseline{} // the start did not have it: what it called dirty is not clean by hindsight
	}
	bytes, unknown := Unexplained(r, s.Limits, b)
	return unknown == "" && bytes < s.Limits.Report
}

// Side is what one end of a job saw: the last look at its GPUs, how each came to rest, who was listed.
type Side struct {
	Snapshot  gpu.Snapshot
	Curves    map[gpu.ID]settle.Curve
	Processes map[int]Process
	// Stayed are the processes of each GPU that every look of a watch showed, and that are the same ones still, with
	// the smallest of their own figures. On a GPU that never settles they are all that is certain.
	Stayed     map[gpu.ID][]settle.Stay
	Scan       *Scan        // nil where nobody searched for holders: nothing was unexplained
	Neighbours gpu.Snapshot // one look at the node's other GPUs, zero where there was none
}

// AtRest reports whether every card was seen, and seen clean.
func (s Side) AtRest(cards []Card) bool {
	return !slices.ContainsFunc(cards, func(c Card) bool { return s.Curves[c.Device.ID].State != settle.Clean })
}

// listed is how this look, if there was one, listed a PID on a card, and whether it did.
func (s *Side) listed(id gpu.ID, pid int) (gpu.Process, bool) {
	if s == nil {
		return gpu.Process{}, false
	}
	r, _ := s.Snapshot.Reading(id)
	return r.Process(pid)
}

// Settled reports whether every card was seen at rest, clean or not.
func (s Side) Settled(cards []Card) bool {
	return !slices.ContainsFunc(cards, func(c Card) bool { return !s.Curves[c.Device.ID].State.AtRest() })
}

// Expectations say what cards may carry and still be clean, with the start time of each process meant by it: what
// they carry without any job and, at an end, what they carried before the job, which need not leave them cleaner.
func Expectations(
	before *Side, baselines map[gpu.ID]Baseline, l Limits,
) (map[gpu.ID]gpu.Expected, map[int]time.Duration) {
	expect, known := map[gpu.ID]gpu.Expected{}, map[int]time.Duration{}
	for id, b := range baselines {
		expect[id] = b.Expected(l)
		for _, r := range b.Residents {
			known[r.PID] = r.Start
		}
	}
	if before == nil {
		return expect, known
	}
	for _, r := range before.Snapshot.Readings {
		if !before.Curves[r.Device.ID].State.AtRest() || !r.Memory.Used.Known() {
			continue // what still moved then tells nothing of what was there before
		}
		e := gpu.Expected{}
		rest := r.Memory.Used.Bytes
		for _, p := range r.Processes {
			want := gpu.ExpectedProcess{PID: p.PID}
			if p.Memory.Known() {
				want.Bytes = min(p.Memory.Bytes, rest) // shared memory is counted twice
				want.Share = min(l.PerClient, rest-want.Bytes)
			}
			rest -= want.Bytes + want.Share
			// By its number alone no process is known again.
			if facts, read := before.Processes[p.PID]; read && facts.Why == "" {
				known[p.PID] = facts.Start
				e.Processes = append(e.Processes, want)
			}
		}
		e.Bytes = max(rest, expect[r.Device.ID].Bytes)
		for _, p := range expect[r.Device.ID].Processes {
			if _, twice := e.Expects(p.PID); !twice {
				e.Processes = append(e.Processes, p)
			}
		}
		expect[r.Device.ID] = e
	}
	return expect, known
}
