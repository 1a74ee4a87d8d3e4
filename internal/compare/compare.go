package compare

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// Input is the input of one comparison. Without a record of the job's start, Before is nil.
type Input struct {
	Job    slurm.Job
	Cards  []record.Assigned
	Before *record.Side
	Now    record.Side
	Self   attribution.Allocation
	Others []attribution.Allocation
	// Left are the findings at the recorded ends of other runs, newest first: what a later job may inherit.
	Left []record.Finding
	// Ending are processes that earlier hooks saw ending, with the time of the first such sample (CLOCK_BOOTTIME).
	Ending map[record.Instance]time.Duration
	Limits record.Limits
	// Baselines are what each GPU carries without any job, as recorded earlier in this epoch.
	Baselines map[gpu.ID]record.Baseline
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
func Compare(s Input) []record.Finding {
	var all []record.Finding
	for _, c := range s.Cards {
		for _, f := range s.onGPU(c) {
			f.GPU, f.Index = c.Device.ID, &c.Index
			all = append(all, f)
		}
	}
	return all
}

// Decide attributes a process on a GPU of this scene.
func (s Input) Decide(p record.Process, id gpu.ID) attribution.Attribution {
	j := attribution.Jobs{Node: s.Job.Node, Self: s.Self, Began: s.Before != nil, Others: s.Others,
		At: s.Now.Snapshot.At}
	return j.Owner(p, id)
}

func (s Input) ending() bool { return s.Job.Context == slurm.Epilog }

func (s Input) between() bool { return s.Job.Context == slurm.HealthCheck }

// onGPU judges one GPU. If it could not be read, that is the only finding.
func (s Input) onGPU(c record.Assigned) []record.Finding {
	if f, faulty := s.faulty(c); faulty {
		return []record.Finding{f}
	}
	reading, ok := s.Now.Snapshot.Reading(c.Device.ID)
	if !ok {
		return []record.Finding{record.Finding{Code: catalog.Unread, Unknown: "the driver gave no reading of this GPU"}}
	}
	curve := s.Now.Curves[c.Device.ID]
	switch curve.State {
	case record.Clean:
		return nil
	case record.Flat:
		return s.residents(c, reading)
	case record.Moving:
		return s.moving(c, reading, curve)
	}
	if reading.Memory.Unjudged != "" {
		return []record.Finding{record.Finding{Code: catalog.Unjudged, Unknown: reading.Memory.Unjudged}}
	}
	return []record.Finding{record.Finding{Code: catalog.Unread, Unknown: curve.Why}}
}

func (s Input) faulty(c record.Assigned) (record.Finding, bool) {
	for _, f := range s.Now.Snapshot.Faults {
		if !settle.Concerns(f, c.Device) {
			continue
		}
		found := FromFault(f)
		found.Doubts = s.doubts(c)
		if curve := s.Now.Curves[c.Device.ID]; curve.State != record.Unreadable || !curve.Steady {
			found.AddDoubt("seen in %d looks over %.1f s only", curve.Looks, curve.Span.Seconds())
		}
		return found, true
	}
	return record.Finding{}, false
}

// residents returns a finding for all that stays on a settled GPU: listed processes, then unexplained memory.
func (s Input) residents(c record.Assigned, r gpu.Reading) []record.Finding {
	if r.ProcessesUnknown != "" {
		return []record.Finding{record.Finding{Code: catalog.Unread, Unknown: "process list: " + r.ProcessesUnknown}}
	}
	var out []record.Finding
	for _, p := range r.Processes {
		if f, worth := s.process(c, p); worth {
			out = append(out, f)
		}
	}
	if f, worth := s.unexplained(c, r, record.Rest(r, s.Limits, s.Baselines[c.Device.ID])); worth {
		out = append(out, f)
	}
	return s.certain(out, c.Device.ID)
}

func (s Input) process(c record.Assigned, p gpu.Process) (record.Finding, bool) {
	facts, read := s.Now.Processes[p.PID]
	if !read {
		facts = record.Process{PID: p.PID, Why: "not looked up"}
	}
	f := record.Finding{Bytes: p.Memory, Holder: listedOn(p, facts), Doubts: s.doubts(c)}
	switch {
	case facts.Gone:
		return s.phantom(c, p, f)
	case facts.Cgroup.Daemon && s.Doubt != "":
		return record.Finding{}, false // under RunInJob our own children run with slurmstepd's, in the job's cgroup
	case resident(p, facts):
		return record.Finding{}, false // part of the node, whichever job has the GPU
	}
	owner := s.Decide(facts, c.Device.ID)
	f.Owner = owner.Blamed()
	if s.Shared != "" && owner.Kind != attribution.ThisJob && owner.Kind != attribution.EndedJob {
		return record.Finding{}, false // sharing is legal here
	}
	if owner.Kind == attribution.LiveJob && s.given(owner, c.Device.ID) {
		return record.Finding{}, false // Slurm gave it to both jobs
	}
	if owner.Ambiguous() {
		f.Owner = nil
	}
	if s.between() && owner.Kind == attribution.NoJob && facts.OfMPS() && p.Memory.Known() &&
		p.Memory.Bytes <= idleMPS {
		return record.Finding{}, false // a server that waits for clients
	}
	if s.leftBehind(owner) {
		f.Holder.Classes = append([]record.Class{record.Orphan}, f.Holder.Classes...)
	}
	return s.owned(c, f, owner), true
}

// idleMPS exceeds what an MPS server keeps without clients, in bytes: 66 MiB were measured on an H200. A CUDA program
// takes more for its context alone, so taking the server's name does not hide one.
const idleMPS = 128 << 20

func (s Input) owned(c record.Assigned, f record.Finding, o attribution.Attribution) record.Finding {
	f.Expected = "no process on this GPU"
	f.Doubts = append(f.Doubts, s.against(c, f.Holder.Process, o, false)...)
	if o.Kind == attribution.CannotTell {
		f.Unknown = o.Why
	}
	_, listed := s.Before.Listed(c.Device.ID, f.Holder.PID)
	switch {
	case o.Kind == attribution.LiveJob, o.Kind == attribution.CannotTell && f.Owner != nil:
		f.Code = catalog.Foreign
	case s.between() && o.Kind == attribution.EndedJob:
		f.Code = catalog.Orphan
	case s.between():
		f.Code = catalog.Stray
	case !s.ending():
		f.Code = catalog.Dirty
	case listed && s.Before.Processes[f.Holder.PID].Start == f.Holder.Start:
		f.Code = catalog.Dirty
		f.AddDoubt("it was there before this job")
	case o.Kind == attribution.ThisJob:
		f.Code = catalog.Orphan
	default:
		f.Code = catalog.Stray
	}
	return f
}

// phantom judges memory under a PID that /proc no longer has: a process that shares its descriptors holds it.
func (s Input) phantom(c record.Assigned, p gpu.Process, f record.Finding) (record.Finding, bool) {
	if s.Shared != "" {
		return record.Finding{}, false
	}
	f.Code = catalog.Phantom
	f.Observed = fmt.Sprintf("listed under PID %d, which no longer exists", p.PID)
	if f.Holder.Reused {
		f.Observed = fmt.Sprintf("listed under PID %d, whose process has ended: another has that PID now", p.PID)
	}
	f.Expected, f.Owner = "no process on this GPU", s.exclusive(c)
	then, listed := s.Before.Listed(c.Device.ID, p.PID)
	switch {
	case s.between(), s.again():
		f.Owner = s.inherited(c, p)
	case !s.ending():
		f.Code, f.Owner = catalog.Dirty, s.inherited(c, p)
	case listed && !(s.Before.Processes[p.PID].Gone && grown(then.Memory, p.Memory)): // if less, a part was freed
		f.Code, f.Owner = catalog.Dirty, s.inherited(c, p)
		f.AddDoubt("it was there before this job")
	}
	f, owners := s.search(c, f, s.mayHoldPhantom(c), "")
	if f.Code == catalog.Phantom && s.ending() || f.Owner == nil { // else the recorded owner, nearer the event, stays
		f.Owner = s.blame(f, f.Owner, owners, true)
	}
	if s.ending() && f.Owner != nil && f.Owner.Level == record.ByExclusive && s.sawAlive(p.PID, *f.Owner) {
		f.Owner.Level = record.BySighting
	}
	return f, true
}

// sawAlive reports whether the dead process was seen in this job's cgroup. An earlier job's PID may be reused.
func (s Input) sawAlive(pid int, o record.Owner) bool {
	return o.Slurm().Same(s.Self.Owner()) && slices.ContainsFunc(s.Self.Seen, func(seen record.Sighting) bool {
		return seen.PID == pid && o.Slurm().Same(seen.Owner)
	})
}

// unexplained judges the memory that no listed process accounts for now. As much as was unexplained at the job's start
// is expected.
func (s Input) unexplained(c record.Assigned, r gpu.Reading, now gpu.Figure) (record.Finding, bool) {
	if s.Shared != "" || r.Memory.Unjudged != "" {
		return record.Finding{}, false // other jobs' processes may not be listed here
	}
	f := record.Finding{Code: catalog.Residue, Expected: "memory back at what it was", Doubts: s.doubts(c)}
	if !s.ending() {
		f.Code, f.Expected = catalog.Dirty, "an idle GPU"
	}
	if s.between() {
		f.Code = catalog.Residue
	}
	f.Observed = "memory in use that no listed process accounts for"
	if r.KnownBad != "" {
		f.Observed += "; " + r.KnownBad
	}
	f.Bytes = s.gained(c, r, now)
	f.Unknown = f.Bytes.Unknown
	if f.Unknown != "" || f.Bytes.Bytes < s.Limits.Report {
		return f, f.Unknown != ""
	}
	f, owners := s.search(c, f, s.mayHoldExported(c), record.Exported)
	bystanders := s.bystanders(c, f)
	switch {
	case !s.ending() || s.again():
		f.Owner = s.inheritedMemory(c, f)
	case len(bystanders) > 0, s.vanished(c, r): // a handle may now hold what was listed at the start
	case f.Bytes.Bytes <= record.MaxBaseline && s.opener(c) != "": // the service with the GPU open may hold so little
	default:
		f.Owner = s.blame(f, s.exclusive(c), owners, false)
	}
	f.Doubts = append(f.Doubts, bystanders...)
	if len(f.Candidates) > 1 {
		f.AddDoubt("%d processes may hold it, and which one does cannot be told", len(f.Candidates))
	}
	return f, true
}

// gained returns how much more memory is unexplained now than at the job's start. It is unknown if either amount is, or
// if the driver may hold so little for the processes that it lists.
func (s Input) gained(c record.Assigned, r gpu.Reading, now gpu.Figure) gpu.Figure {
	before, unknown := s.before(c)
	switch {
	case now.Unknown != "":
		return gpu.Unknown(now.Unknown)
	case now.Bytes >= s.Limits.Report && unknown != "":
		return gpu.Unknown(unknown)
	}
	extra, client := now.Bytes-min(now.Bytes, before), s.Clients[r.Device.Name]
	most := min(s.Limits.Drain, s.Limits.Report+s.Limits.Spare(len(r.Processes), client))
	if extra >= s.Limits.Report && extra < most {
		return gpu.Unknown(fmt.Sprintf("the driver may hold these %d MiB for %d processes: while jobs ran it was seen "+
			"to hold %d MiB for each", extra>>20, len(r.Processes), client>>20))
	}
	return gpu.Bytes(extra)
}

// vanished reports whether a process that the start listed on the GPU, not the node's own, is no longer listed.
func (s Input) vanished(c record.Assigned, now gpu.Reading) bool {
	if s.Before == nil {
		return false
	}
	then, _ := s.Before.Snapshot.Reading(c.Device.ID)
	return slices.ContainsFunc(then.Processes, func(p gpu.Process) bool {
		_, still := now.Process(p.PID)
		return !still && !resident(p, s.Before.Processes[p.PID])
	})
}

// before returns what was unexplained at the job's start (0 without a record, or if unsettled), or why it is unknown.
func (s Input) before(c record.Assigned) (bytes uint64, unknown string) {
	if s.Before == nil {
		return 0, ""
	}
	r, ok := s.Before.Snapshot.Reading(c.Device.ID)
	if !ok {
		return 0, "the GPU could not be read when the job started"
	}
	if s.Before.Curves[c.Device.ID].State == record.Moving {
		return 0, ""
	}
	bytes, unknown = record.Unexplained(r, s.Limits, s.Baselines[c.Device.ID])
	if unknown != "" {
		unknown = "at the job's start: " + unknown
	}
	return bytes, unknown
}
