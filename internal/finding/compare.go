package finding

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// Card is one GPU of the job, with Slurm's index of it.
type Card = slurmconf.Assigned

// Limits are the thresholds of a comparison, in bytes.
type Limits struct {
	Report    uint64 // memory that should be free is reported from this amount on
	Drain     uint64 // with less than this on a GPU, nothing is certain enough to drain
	PerClient uint64 // what the driver holds for a listed process beyond its listed figure
}

// perClient was measured to be 8 to 9 MiB (driver 580).
const perClient = 9 << 20

// LimitsOf returns the limits that a configuration sets.
func LimitsOf(t config.Thresholds) Limits {
	return Limits{Report: uint64(t.Report), Drain: uint64(t.Drain), PerClient: perClient}
}

// Spare is what the driver may hold for so many processes beyond PerClient each, if it was seen to hold client for one.
func (l Limits) Spare(processes int, client uint64) uint64 {
	return uint64(processes) * (max(client, l.PerClient) - l.PerClient)
}

// Scene is the input of one comparison. Without a record of the job's start, Before is nil.
type Scene struct {
	Job    slurm.Job
	Cards  []Card
	Before *Side
	Now    Side
	Self   Record
	Others []Record
	// Left are the findings at the recorded ends of other runs, newest first: what a later job may inherit.
	Left []Finding
	// Ending are processes that earlier hooks saw ending, with the time of the first such sample (CLOCK_BOOTTIME).
	Ending map[Instance]time.Duration
	Limits Limits
	// Baselines are what each GPU carries without any job, as recorded earlier in this epoch.
	Baselines map[gpu.ID]Baseline
	// Clients is what the driver was seen to hold for a listed process beyond its figure, by GPU model. A job may have
	// made it larger, so it only makes amounts unknown that are too small to drain.
	Clients map[string]uint64
	// SharedUnknown is why it is unknown whether others may use these GPUs, empty if that is known.
	SharedUnknown string
	Shared        string // why others may use these GPUs legally; empty if the job has them alone
	Doubt         string // a reason that makes every finding of this hook uncertain (RunInJob)
	RunDoubt      string // why this end may belong to another run of the job
	// Unread is, by GPU, why it may belong to another job although no record says so.
	Unread map[gpu.ID]string
}

// Compare judges every GPU of the job at its start (without Before) or end, or a health check's GPUs without a job.
func Compare(s Scene) []Finding {
	var all []Finding
	for _, c := range s.Cards {
		for _, f := range s.card(c) {
			f.GPU, f.Index = c.Device.ID, &c.Index
			all = append(all, f)
		}
	}
	return all
}

func (s Scene) ending() bool { return s.Job.Context == slurm.Epilog }

func (s Scene) between() bool { return s.Job.Context == slurm.HealthCheck }

// card judges one GPU. If it could not be read, that is the only finding.
func (s Scene) card(c Card) []Finding {
	if f, faulty := s.faulty(c); faulty {
		return []Finding{f}
	}
	reading, ok := s.Now.Snapshot.Reading(c.Device.ID)
	if !ok {
		return []Finding{Finding{Code: code.Unread, Unknown: "the driver gave no reading of this GPU"}}
	}
	curve := s.Now.Curves[c.Device.ID]
	switch curve.State {
	case settle.Clean:
		return nil
	case settle.Flat:
		return s.residents(c, reading)
	case settle.Moving:
		return s.moving(c, reading, curve)
	}
	if reading.Memory.Unjudged != "" {
		return []Finding{Finding{Code: code.Unjudged, Unknown: reading.Memory.Unjudged}}
	}
	return []Finding{Finding{Code: code.Unread, Unknown: curve.Why}}
}

func (s Scene) faulty(c Card) (Finding, bool) {
	for _, f := range s.Now.Snapshot.Faults {
		if !settle.Concerns(f, c.Device) {
			continue
		}
		found := FromFault(f)
		found.Doubts = s.doubts(c)
		if curve := s.Now.Curves[c.Device.ID]; curve.State != settle.Unknown || !curve.Steady {
			found.doubt("seen in %d looks over %.1f s only", curve.Looks, curve.Span.Seconds())
		}
		return found, true
	}
	return Finding{}, false
}

// residents returns a finding for all that stays on a settled GPU: listed processes, then unexplained memory.
func (s Scene) residents(c Card, r gpu.Reading) []Finding {
	if r.ProcessesUnknown != "" {
		return []Finding{Finding{Code: code.Unread, Unknown: "process list: " + r.ProcessesUnknown}}
	}
	var out []Finding
	for _, p := range r.Processes {
		if f, worth := s.process(c, p); worth {
			out = append(out, f)
		}
	}
	if f, worth := s.unexplained(c, r, Rest(r, s.Limits, s.Baselines[c.Device.ID])); worth {
		out = append(out, f)
	}
	return s.certain(out, c.Device.ID)
}

func (s Scene) process(c Card, p gpu.Process) (Finding, bool) {
	facts, read := s.Now.Processes[p.PID]
	if !read {
		facts = Process{PID: p.PID, Why: "not looked up"}
	}
	f := Finding{Bytes: p.Memory, Holder: listedOn(p, facts), Doubts: s.doubts(c)}
	switch {
	case facts.Gone:
		return s.phantom(c, p, f)
	case facts.Cgroup.Daemon && s.Doubt != "":
		return Finding{}, false // under RunInJob our own children run with slurmstepd's, in the job's cgroup
	case resident(p, facts):
		return Finding{}, false // part of the node, whichever job has the GPU
	}
	owner := s.Decide(facts, c.Device.ID)
	f.Owner = owner.job()
	if s.Shared != "" && owner.Whose != ThisJob && owner.Whose != EndedJob {
		return Finding{}, false // sharing is legal here
	}
	if owner.Whose == LiveJob && s.given(owner, c.Device.ID) {
		return Finding{}, false // Slurm gave it to both jobs
	}
	if owner.Ambiguous() {
		f.Owner = nil
	}
	if s.between() && owner.Whose == NoJob && facts.OfMPS() && p.Memory.Known() && p.Memory.Bytes <= idleMPS {
		return Finding{}, false // a server that waits for clients
	}
	if s.leftBehind(owner) {
		f.Holder.Classes = append([]Class{Orphan}, f.Holder.Classes...)
	}
	return s.owned(c, f, owner), true
}

// idleMPS exceeds what an MPS server keeps without clients, in bytes: 66 MiB were measured on an H200. A CUDA program
// takes more for its context alone, so taking the server's name does not hide one.
const idleMPS = 128 << 20

func (s Scene) owned(c Card, f Finding, o Attribution) Finding {
	f.Expected = "no process on this GPU"
	f.Doubts = append(f.Doubts, s.against(c, f.Holder.Process, o, false)...)
	if o.Whose == CannotTell {
		f.Unknown = o.Why
	}
	_, listed := s.Before.listed(c.Device.ID, f.Holder.PID)
	switch {
	case o.Whose == LiveJob, o.Whose == CannotTell && f.Owner != nil:
		f.Code = code.Foreign
	case s.between() && o.Whose == EndedJob:
		f.Code = code.Orphan
	case s.between():
		f.Code = code.Stray
	case !s.ending():
		f.Code = code.Dirty
	case listed && s.Before.Processes[f.Holder.PID].Start == f.Holder.Start:
		f.Code = code.Dirty
		f.doubt("it was there before this job")
	case o.Whose == ThisJob:
		f.Code = code.Orphan
	default:
		f.Code = code.Stray
	}
	return f
}

// phantom judges memory under a PID that /proc no longer has: a process that shares its descriptors holds it.
func (s Scene) phantom(c Card, p gpu.Process, f Finding) (Finding, bool) {
	if s.Shared != "" {
		return Finding{}, false
	}
	f.Code = code.Phantom
	f.Observed = fmt.Sprintf("listed under PID %d, which no longer exists", p.PID)
	if f.Holder.Reused {
		f.Observed = fmt.Sprintf("listed under PID %d, whose process has ended: another has that PID now", p.PID)
	}
	f.Expected, f.Owner = "no process on this GPU", s.exclusive(c)
	then, listed := s.Before.listed(c.Device.ID, p.PID)
	switch {
	case s.between(), s.again():
		f.Owner = s.inherited(c, p)
	case !s.ending():
		f.Code, f.Owner = code.Dirty, s.inherited(c, p)
	case listed && !(s.Before.Processes[p.PID].Gone && grown(then.Memory, p.Memory)): // if less, a part was freed
		f.Code, f.Owner = code.Dirty, s.inherited(c, p)
		f.doubt("it was there before this job")
	}
	f, owners := s.search(c, f, s.mayHoldPhantom(c), "")
	if f.Code == code.Phantom && s.ending() || f.Owner == nil { // else the recorded owner, nearer the event, stays
		f.Owner = s.blame(f, f.Owner, owners, true)
	}
	if s.ending() && f.Owner != nil && f.Owner.Level == ByExclusive && s.sawAlive(p.PID, *f.Owner) {
		f.Owner.Level = BySighting
	}
	return f, true
}

// sawAlive reports whether the dead process was seen in this job's cgroup. An earlier job's PID may be reused.
func (s Scene) sawAlive(pid int, o Owner) bool {
	return o.named().Same(s.Self.owner()) && slices.ContainsFunc(s.Self.Seen, func(seen Sighting) bool {
		return seen.PID == pid && o.named().Same(seen.Owner)
	})
}

// unexplained judges the memory that no listed process accounts for now. As much as was unexplained at the job's start
// is expected.
func (s Scene) unexplained(c Card, r gpu.Reading, now gpu.Figure) (Finding, bool) {
	if s.Shared != "" || r.Memory.Unjudged != "" {
		return Finding{}, false // other jobs' processes may not be listed here
	}
	f := Finding{Code: code.Residue, Expected: "memory back at what it was", Doubts: s.doubts(c)}
	if !s.ending() {
		f.Code, f.Expected = code.Dirty, "an idle GPU"
	}
	if s.between() {
		f.Code = code.Residue
	}
	f.Observed = "memory in use that no listed process accounts for"
	if r.KnownBad != "" {
		f.Observed += "; " + r.KnownBad
	}
	why := now.Unknown
	before, whyBefore := s.before(c)
	if why == "" && now.Bytes >= s.Limits.Report {
		why = whyBefore
	}
	if why != "" {
		f.Unknown, f.Bytes = why, gpu.Unknown(why)
		return f, true
	}
	extra := now.Bytes - min(now.Bytes, before)
	if f.Bytes = gpu.Bytes(extra); extra < s.Limits.Report {
		return f, false
	}
	client := s.Clients[r.Device.Name]
	if extra < min(s.Limits.Drain, s.Limits.Report+s.Limits.Spare(len(r.Processes), client)) {
		f.Unknown = fmt.Sprintf("the driver may hold these %d MiB for %d processes: while jobs ran it was seen to hold "+
			"%d MiB for each", extra>>20, len(r.Processes), client>>20)
		f.Bytes = gpu.Unknown(f.Unknown)
		return f, true
	}
	f, owners := s.search(c, f, s.mayHoldExported(c), Exported)
	bystanders := s.bystanders(c, f)
	switch {
	case !s.ending() || s.again():
		f.Owner = s.inheritedMemory(c, f)
	case len(bystanders) > 0, s.vanished(c, r): // a handle may now hold what was listed at the start
	case extra <= MaxBaseline && s.opener(c) != "": // so little may belong to the service that has the GPU open
	default:
		f.Owner = s.blame(f, s.exclusive(c), owners, false)
	}
	f.Doubts = append(f.Doubts, bystanders...)
	if len(f.Candidates) > 1 {
		f.doubt("%d processes may hold it, and which one does cannot be told", len(f.Candidates))
	}
	return f, true
}

// vanished reports whether a process that the start listed on the GPU, not the node's own, is no longer listed.
func (s Scene) vanished(c Card, now gpu.Reading) bool {
	if s.Before == nil {
		return false
	}
	then, _ := s.Before.Snapshot.Reading(c.Device.ID)
	return slices.ContainsFunc(then.Processes, func(p gpu.Process) bool {
		_, still := now.Process(p.PID)
		return !still && !resident(p, s.Before.Processes[p.PID])
	})
}

// Unexplained returns the memory in use less the baseline, the listed processes and the driver's share for each of
// them, in bytes, or why that is unknown.
func Unexplained(r gpu.Reading, l Limits, b Baseline) (bytes uint64, unknown string) {
	if r.Memory.Unjudged != "" {
		return 0, r.Memory.Unjudged
	}
	if !r.Memory.Used.Known() {
		return 0, r.Memory.Used.Unknown
	}
	var listed uint64
	for _, p := range r.Processes {
		if !p.Memory.Known() {
			return 0, fmt.Sprintf("memory of PID %d: %s", p.PID, p.Memory.Unknown)
		}
		listed += p.Memory.Bytes + l.PerClient
	}
	if used := r.Memory.Used.Bytes; used > listed {
		return used - min(used, listed+b.Bytes), ""
	}
	if listed > r.Memory.Used.Bytes+uint64(len(r.Processes))*l.PerClient {
		return 0, "processes account for more than is used: shared memory counted twice"
	}
	return 0, ""
}

// Rest returns Unexplained as a figure.
func Rest(r gpu.Reading, l Limits, b Baseline) gpu.Figure {
	bytes, unknown := Unexplained(r, l, b)
	return gpu.Figure{Bytes: bytes, Unknown: unknown}
}

// before returns what was unexplained at the job's start (0 without a record, or if unsettled), or why it is unknown.
func (s Scene) before(c Card) (bytes uint64, unknown string) {
	if s.Before == nil {
		return 0, ""
	}
	r, ok := s.Before.Snapshot.Reading(c.Device.ID)
	if !ok {
		return 0, "the GPU could not be read when the job started"
	}
	if s.Before.Curves[c.Device.ID].State == settle.Moving {
		return 0, ""
	}
	bytes, unknown = Unexplained(r, s.Limits, s.Baselines[c.Device.ID])
	if unknown != "" {
		unknown = "at the job's start: " + unknown
	}
	return bytes, unknown
}
