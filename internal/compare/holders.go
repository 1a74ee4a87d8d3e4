package compare

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

func listedOn(p gpu.Process, facts record.Process) *record.Holder {
	return &record.Holder{Process: facts, Memory: p.Memory, Classes: record.Classes(facts, p.Kinds...)}
}

// search adds the processes that may hold what f is about, and a doubt for each reason against certainty: a candidate
// of a live job or of unknown owner, or an incomplete search. It also returns the owners of the candidates.
func (s Input) search(c record.Assigned, f record.Finding, may func(record.Holding) bool,
	class record.Class) (record.Finding, []attribution.Attribution) {
	if s.Now.Scan == nil {
		f.AddDoubt("no one searched for its holder: a live job's process may have it")
		return f, nil
	}
	if why := s.Now.Scan.Partial; why != "" {
		f.AddDoubt("the search for its holder is incomplete: %s", why)
	}
	f.Searched = s.Now.Scan.Partial == ""
	for _, p := range s.Now.Scan.Unread { // any of them may hold it
		o := s.Decide(p, c.Device.ID)
		f.Searched = f.Searched && o.Kind == attribution.ThisJob
		if !s.leftBehind(o) || len(s.against(c, p, o, true)) > 0 {
			f.AddDoubt("not every process was looked into for its holder: process %d: %s",
				p.PID, cmp.Or(p.Why, p.EnvUnknown))
		}
	}
	var owners []attribution.Attribution
	for _, h := range s.Now.Scan.Holdings {
		if !may(h) {
			continue
		}
		o := s.Decide(h.Process, c.Device.ID)
		owners = append(owners, o)
		candidate := record.Holder{
			Process: h.Process, Memory: gpu.Unknown("a descriptor proves a holder, not bytes"),
			Classes: record.Classes(h.Process), Open: h.Open(),
		}
		if !o.Ambiguous() {
			candidate.Owner = o.Blamed()
		}
		if class != "" {
			candidate.Classes = append([]record.Class{class}, candidate.Classes...)
		}
		if s.leftBehind(o) {
			candidate.Classes = append([]record.Class{record.Orphan}, candidate.Classes...)
		}
		f.Candidates = append(f.Candidates, candidate)
		for _, why := range s.against(c, h.Process, o, true) {
			f.AddDoubt("process %d may hold it: %s", h.PID, why)
		}
	}
	return f, owners
}

// blame returns the job to blame for memory that appeared while only suspect had the GPU, given the candidates' owners.
// If one candidate surely holds it, their common job is to blame. Otherwise it is suspect, unless no candidate belongs
// to it or one of another owner also started during this job. An incomplete search blames no job.
func (s Input) blame(f record.Finding, suspect *record.Owner, owners []attribution.Attribution,
	surely bool) *record.Owner {
	if !f.Searched {
		return nil
	}
	if len(owners) == 0 {
		return suspect
	}
	if surely {
		return holdersJob(f, suspect, owners)
	}
	its := false
	for i, o := range owners {
		switch {
		case suspect == nil, o.Job == suspect.Job && o.Ambiguous():
			return nil
		case suspect.Slurm().Same(o.Slurm()):
			its = true
		case f.Candidates[i].Start >= s.Self.Start:
			return nil
		}
	}
	if !its {
		return nil
	}
	return suspect
}

// holdersJob returns the job of all that have a dead process's GPU open. It confirms suspect, which had the GPU alone
// meanwhile; without one it is a guess. Another job is not blamed: a program that only monitors has it open too.
func holdersJob(f record.Finding, suspect *record.Owner, owners []attribution.Attribution) *record.Owner {
	o := oneJob(f, owners)
	switch {
	case o == nil, suspect != nil && !suspect.Slurm().Same(o.Slurm()):
		return nil
	case suspect == nil && record.ByExclusive.Weaker(o.Level):
		o.Level = record.ByExclusive
	}
	return o
}

// oneJob returns the one job of all holders, if it is over, with their weakest evidence, else nil. What was there
// before this job does not belong to it, whatever it has open.
func oneJob(f record.Finding, owners []attribution.Attribution) *record.Owner {
	first := owners[0]
	for _, o := range owners {
		over := o.Kind == attribution.EndedJob || o.Kind == attribution.ThisJob && f.Code != catalog.Dirty
		if !over || o.Ambiguous() || o.Job != first.Job || o.SLUID != first.SLUID {
			return nil
		}
		if o.Level.Weaker(first.Level) {
			first.Level = o.Level
		}
	}
	return first.Blamed()
}

// against returns why a process that holds a GPU's memory, or may hold it as a candidate, does not prove the GPU
// unusable. If its job ended while the GPU was sampled, the process had less time to end than the samples took.
func (s Input) against(c record.Assigned, p record.Process, o attribution.Attribution, candidate bool) []string {
	began := s.Now.Snapshot.At - s.Now.Curves[c.Device.ID].Span
	// At a start the driver lists what root's process holds, so that process does not excuse the job before.
	rootly := (candidate || s.ending()) && o.Kind != attribution.ThisJob && (p.UID == 0 || p.OfSystem())
	return holding(
		doubt{o.Kind == attribution.LiveJob, "it is a live job's"},
		doubt{o.Kind == attribution.CannotTell, "its owner could not be told: " + o.Why},
		doubt{o.Unseen, fmt.Sprintf("no one saw the end of its job %d", o.Job)},
		doubt{rootly, "it is root's or the system's, and may be a service of this node"},
		doubt{o.Rival != 0, fmt.Sprintf("job %d could own it as well", o.Rival)},
		doubt{p.DeviceUnknown != "" && !s.leftBehind(o),
			"whether it has a GPU open could not be read: " + p.DeviceUnknown},
		doubt{s.ends(p, began), "it is ending, and may be gone in a moment"},
		doubt{max(o.Ended, o.OtherEnd) > began && o.Kind != attribution.LiveJob,
			"its job ended while the GPU was watched"},
	)
}

// ends reports whether a process is ending, which excuses it only once: if an earlier hook saw it ending, it hangs. No
// other state counts: a process in state D may stay in the kernel for days, and can choose to.
func (s Input) ends(p record.Process, began time.Duration) bool {
	seen, before := s.Ending[record.Instance{PID: p.PID, Start: p.Start}]
	return p.State == "X" && !(before && seen < began)
}

// mayHoldPhantom selects what may keep a dead process's memory: unlisted processes, not the node's, with this GPU open.
func (s Input) mayHoldPhantom(c record.Assigned) func(record.Holding) bool {
	return func(h record.Holding) bool {
		return h.Has(c.Device) && !s.lists(c, h.PID) && !s.ofNode(h)
	}
}

// mayHoldExported selects what may keep memory without a listed process: processes that have the driver open without a
// known reason. nvidiactl names no GPU; a process that has only another GPU open has that as its reason.
func (s Input) mayHoldExported(c record.Assigned) func(record.Holding) bool {
	listed := s.listedAnywhere()
	return func(h record.Holding) bool {
		return h.MayHold(c.Device) && !listed[h.PID] && !s.ofNode(h)
	}
}

// bystanders returns doubts about memory without a process: any process with the driver open may hold a handle to it,
// also one that has another GPU open for a reason, unless its job is surely over.
func (s Input) bystanders(c record.Assigned, f record.Finding) []string {
	if s.Now.Scan == nil {
		return nil
	}
	var doubts []string
	for _, h := range s.Now.Scan.Holdings {
		candidate := slices.ContainsFunc(f.Candidates, func(c record.Holder) bool { return c.PID == h.PID })
		o := s.Decide(h.Process, c.Device.ID)
		// A program's name does not excuse a process that may be a live job's.
		trade := s.ofNode(h) && o.Kind != attribution.LiveJob && o.Kind != attribution.CannotTell
		if candidate || trade {
			continue
		}
		// no live job's process is expected here
		nobodys := o.Kind == attribution.NoJob && h.UID != 0 && s.lists(c, h.PID)
		if !s.leftBehind(o) && !nobodys || o.Rival != 0 {
			doubts = append(doubts,
				fmt.Sprintf("process %d has the driver open for another reason, and may hold it too", h.PID))
		}
	}
	return doubts
}

// ofNode reports whether a process has the driver open as part of the node: a service, at an end only one older than
// the job, when the GPU held nothing of it, or root's MPS daemon, measured to have a GPU open without memory on it. Any
// user can run a program under its name, and as root in a container: the name alone excuses nothing.
func (s Input) ofNode(h record.Holding) bool {
	daemon := h.OfMPS() && h.UID == 0 && !h.Cgroup.Found() && !h.Apart()
	return daemon || h.OfSystem() && (!s.ending() || h.Start < s.Self.Start)
}

func (s Input) lists(c record.Assigned, pid int) bool {
	_, listed := s.Now.Listed(c.Device.ID, pid)
	return listed
}

// listedAnywhere returns the PIDs that the driver lists on any sampled GPU.
func (s Input) listedAnywhere() map[int]bool {
	listed := map[int]bool{}
	for _, r := range slices.Concat(s.Now.Snapshot.Readings, s.Now.Neighbours.Readings) {
		for _, p := range r.Processes {
			listed[p.PID] = true
		}
	}
	return listed
}

func (s Input) leftBehind(o attribution.Attribution) bool {
	return o.Kind == attribution.EndedJob && !o.Unseen || o.Kind == attribution.ThisJob && s.ending()
}

// Proven returns the live processes of these findings that a cgroup, now or in a sighting, proves to be the ended
// job's: the only ones that may ever be ended. Candidates for memory without a process are never among them: their
// owner may be proven, but not that they hold anything.
func Proven(found []record.Finding, job slurm.Job) []record.Holder {
	var all []record.Holder
	add := func(h record.Holder, o *record.Owner) {
		if o == nil || h.UID != job.UID || o.Level != record.ByCgroup && o.Level != record.BySighting {
			return
		}
		if o.Slurm().Same(slurm.Owner{ID: job.ID, SLUID: job.SLUID}) && !h.Gone && h.Why == "" {
			h.Owner = o
			all = append(all, h)
		}
	}
	for _, f := range found {
		if f.Unknown != "" {
			continue
		}
		switch {
		case f.Code == catalog.Orphan && f.Holder != nil:
			add(*f.Holder, f.Owner)
		case f.Code == catalog.Phantom:
			for _, c := range f.Candidates {
				add(c, c.Owner)
			}
		}
	}
	return all
}

// given reports whether Slurm gave the GPU to the process's job too: suspended and gang-scheduled jobs may share one.
func (s Input) given(o attribution.Attribution, id gpu.ID) bool {
	return slices.ContainsFunc(s.Others, func(r attribution.Allocation) bool {
		return r.Keeps(id) && o.Slurm().Same(r.Owner())
	})
}

// Trespasses returns, for a health check, live jobs' processes on GPUs not given to them, proven by a cgroup.
func (s Input) Trespasses(looked []gpu.Reading) (all []record.Finding) {
	for _, r := range looked {
		for _, p := range r.Processes {
			facts, read := s.Now.Processes[p.PID]
			o := s.Decide(facts, r.Device.ID)
			proven := read && !facts.Gone && (o.Level == record.ByCgroup || o.Level == record.BySighting) &&
				!facts.Cgroup.Elsewhere(s.Job.Node) // the check of that node judges it
			f := record.Finding{
				Code: catalog.Trespass, GPU: r.Device.ID, Bytes: p.Memory,
				Holder: listedOn(p, facts), Owner: o.Blamed(),
				Expected: "processes on none but their job's own GPUs",
			}
			switch {
			case !proven || r.ProcessesUnknown != "":
				continue
			case o.Kind == attribution.CannotTell:
				f.Unknown = o.Why + ": a job without GPUs, or one that began before Bookend"
				f.Observed = fmt.Sprintf("process %d of a job without a record here", p.PID)
			case o.Kind == attribution.LiveJob && !s.given(o, r.Device.ID):
				f.Observed = fmt.Sprintf("process %d of job %d, which was not given this GPU", p.PID, o.Job)
			default:
				continue // what an ended job left there is a finding of that GPU
			}
			all = append(all, f)
		}
	}
	return all
}
