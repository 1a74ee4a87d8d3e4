package finding

import (
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// MaxBaseline is the most memory, in bytes, that a GPU's baseline may explain and that a service may hold and still
// count as part of the node. Services were measured to hold less; a leftover of a job that matters is larger.
const MaxBaseline = 64 << 20

// Baseline is what a GPU carries without any job, in one epoch. Only an admin can add memory without a holder to it.
type Baseline struct {
	GPU   gpu.ID    `json:"gpu"`
	Epoch gpu.Epoch `json:"epoch"`
	// Bytes is memory beyond the listed processes, at most MaxBaseline.
	Bytes uint64 `json:"bytes"`
	// Residents are listed processes of system services.
	Residents []Resident    `json:"residents,omitempty"`
	Accepted  bool          `json:"accepted,omitempty"` // accepted by an admin: learning does not replace it
	Holder    string        `json:"holder,omitempty"`   // what holds Bytes: a service's name, or "accepted"
	At        time.Duration `json:"at_ns"`              // CLOCK_BOOTTIME of the sample it was learned from
}

// Resident is one process of a baseline.
type Resident struct {
	PID     int           `json:"pid"`
	Start   time.Duration `json:"start_ns"` // CLOCK_BOOTTIME; with the PID it identifies one process
	Bytes   uint64        `json:"bytes"`
	Service string        `json:"service,omitempty"`
}

// Expected returns what a sample of a GPU with this baseline may show and still be clean.
func (b Baseline) Expected(l Limits) gpu.Expected {
	e := gpu.Expected{Bytes: b.Bytes}
	for _, r := range b.Residents {
		e.Processes = append(e.Processes, gpu.ExpectedProcess{PID: r.PID, Bytes: r.Bytes, Share: l.PerClient})
	}
	return e
}

// Learn returns a GPU's baseline as seen in this scene, the start of a job, and whether it differs from the known one.
// It learns only from a settled GPU on which all processes are services, and learns unexplained memory only if a
// service has the GPU open. Thus a baseline only shrinks towards a clean GPU or grows by memory with a named holder.
func (s Scene) Learn(c Card, epoch gpu.Epoch) (Baseline, bool) {
	old := s.Baselines[c.Device.ID]
	r, ok := s.Now.Snapshot.Reading(c.Device.ID)
	state := s.Now.Curves[c.Device.ID].State
	// What is on a GPU that another live job was given, or may have been, may belong to that job.
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
		b.Holder = old.Holder // explained memory starts no search that could name its holder again
	}
	if b.Holder != "" {
		b.Bytes = bytes
	}
	return b, !b.same(old)
}

// wander is how far the figures of services vary by themselves, in bytes: a few pages of 2 MiB.
const wander = 4 << 20

func (b Baseline) same(o Baseline) bool {
	near := func(x, y uint64) bool { return max(x, y)-min(x, y) <= wander }
	sameResident := func(x, y Resident) bool { return x.PID == y.PID && x.Start == y.Start && near(x.Bytes, y.Bytes) }
	return near(b.Bytes, o.Bytes) && b.Holder == o.Holder && slices.EqualFunc(b.Residents, o.Residents, sameResident)
}

// service names a service with the GPU open, if no job had it before and only the node's processes can hold the memory.
func (s Scene) service(c Card) string {
	given := func(o Record) bool { return o.MayHold(c.Device.ID) }
	if slices.ContainsFunc(s.Others, given) || s.Now.Scan == nil ||
		slices.ContainsFunc(s.Now.Scan.Holdings, s.mayHoldExported(c)) {
		return ""
	}
	return s.opener(c)
}

// opener names a service of the node that has the GPU open, empty if none was found.
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

// resident reports whether a listed process is part of the node: a service of no job with at most MaxBaseline.
func resident(p gpu.Process, facts Process) bool {
	service := !facts.Gone && facts.Why == "" && facts.OfSystem() && facts.EnvJobID == 0 && facts.EnvUnknown == ""
	return service && p.Memory.Known() && p.Memory.Bytes <= MaxBaseline
}

// longestStart exceeds what a start takes, 5 s by default, from reading the baselines to its last sample.
const longestStart = 10 * time.Second

// startedAtRest reports whether a GPU that was not idle at the job's start carried only what belongs to the node. If
// its memory cannot be judged, only its processes count.
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
		b = Baseline{} // learned after the start, which called the GPU dirty: it does not become clean in hindsight
	}
	bytes, unknown := Unexplained(r, s.Limits, b)
	return unknown == "" && bytes < s.Limits.Report
}

// Side is what was seen at one end of a job: the last sample of its GPUs, how each settled, and the listed processes.
type Side struct {
	Snapshot  gpu.Snapshot
	Curves    map[gpu.ID]settle.Curve
	Processes map[int]Process
	// Stayed is what every sample of a GPU that did not settle showed: processes that are still the same, and memory of
	// no process (PID 0), each with its smallest figure. Nothing else is certain on such a GPU.
	Stayed     map[gpu.ID][]settle.Stay
	Scan       *Scan        // nil without a search for holders, as when nothing was unexplained
	Neighbours gpu.Snapshot // one sample of the node's other GPUs, zero if there was none
}

// AtRest reports whether every GPU was read and is clean.
func (s Side) AtRest(cards []Card) bool {
	return !slices.ContainsFunc(cards, func(c Card) bool { return s.Curves[c.Device.ID].State != settle.Clean })
}

// listed returns the entry of a PID on a GPU in this sample, and whether there is one. A nil Side has none.
func (s *Side) listed(id gpu.ID, pid int) (gpu.Process, bool) {
	if s == nil {
		return gpu.Process{}, false
	}
	r, _ := s.Snapshot.Reading(id)
	return r.Process(pid)
}

// Settled reports whether every GPU was read and has settled, clean or not.
func (s Side) Settled(cards []Card) bool {
	return !slices.ContainsFunc(cards, func(c Card) bool { return !s.Curves[c.Device.ID].State.AtRest() })
}

// Expectations returns what GPUs may carry and still be clean, with the start time of each process in it: the baselines
// and, at an end, what the GPUs carried before the job, which need not leave them cleaner.
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
			continue // memory that was changing then does not show what was there before
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
			// A PID alone does not identify a process.
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
