package compare

import (
	"fmt"
	"path"
	"slices"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

func (v view) process(p gpu.Process) (record.Finding, bool) {
	facts, read := v.in.Now.Processes[p.PID]
	if !read {
		facts = record.Process{PID: p.PID, Why: "not looked up"}
	}
	f := record.Finding{
		Bytes: p.Memory, Holder: listedOn(p, facts), Doubts: v.doubts(), Expected: "no process on this GPU",
	}
	if facts.Gone {
		return v.phantom(p, f)
	}
	o := v.in.Decide(facts, v.device.ID)
	if v.hasRight(p, facts, o) {
		return record.Finding{}, false
	}
	if !o.Ambiguous() {
		f.Owner = o.Blamed()
	}
	if o.Kind == attribution.CannotTell {
		f.Unknown = o.Why
	}
	f.Holder.Classes = slices.Concat(v.in.orphan(o), f.Holder.Classes)
	f.Doubts = append(f.Doubts, v.against(facts, o, false)...)
	f.Code = v.codeOf(facts, o)
	if f.Code == catalog.Dirty && v.in.ending() {
		f.AddDoubt("it was there before this job")
	}
	return f, true
}

// classes returns the classes that follow from the process and from how the driver lists it (kinds; none if it is not
// listed). Orphan and Exported need more than the process, so the caller adds them.
func classes(p record.Process, kinds ...gpu.Kind) []record.Class {
	if p.Gone {
		return []record.Class{record.Phantom}
	}
	var all []record.Class
	for _, c := range []struct {
		is    bool
		class record.Class
	}{
		{p.State == "T" || p.State == "t", record.Stopped},
		{p.State == "Z" || p.State == "D" || p.State == "X", record.Dying},
		{slices.Contains(kinds, gpu.MPS) || p.OfMPS(), record.MPS},
		{p.Apart(), record.Container},
		{p.OfSystem(), record.System},
	} {
		if c.is {
			all = append(all, c.class)
		}
	}
	return all
}

func listedOn(p gpu.Process, facts record.Process) *record.Holder {
	return &record.Holder{Process: facts, Memory: p.Memory, Classes: classes(facts, p.Kinds...)}
}

func (s Input) orphan(o attribution.Attribution) []record.Class {
	if s.leftBehind(o) {
		return []record.Class{record.Orphan}
	}
	return nil
}

// idleMPS exceeds what an MPS server keeps without clients, in bytes: 66 MiB were measured on an H200. A CUDA program
// takes more for its context alone, so taking the server's name does not hide one.
const idleMPS = 128 << 20

func (v view) hasRight(p gpu.Process, facts record.Process, o attribution.Attribution) bool {
	switch {
	case facts.Cgroup.Daemon && v.in.Doubt != "": // under RunInJob slurmstepd's own children are in the job's cgroup
		return true
	case resident(p, facts), p.Memory.Known() && SiteMPS(facts, p.Memory.Bytes, v.in.MPSUIDs):
		return true
	case v.in.Shared != "":
		return o.Kind != attribution.ThisJob && o.Kind != attribution.EndedJob
	case o.Kind == attribution.LiveJob:
		return v.in.given(o, v.device.ID)
	}
	waits := facts.OfMPS() && p.Memory.Known() && p.Memory.Bytes <= idleMPS // a server without clients
	return v.in.between() && o.Kind == attribution.NoJob && waits
}

// SiteMPS reports an MPS program of the node that a user of the site's own runs, in no job and no container, with no
// more memory than a server keeps without clients. Its name alone proves nothing: root owns the program's directory.
// The program is empty if it was not read.
func SiteMPS(p record.Process, bytes uint64, users []int) bool {
	program := p.Exe == "" || path.Dir(p.Exe) == "/usr/bin" && gpu.OfMPS(path.Base(p.Exe))
	apart := p.Why != "" || p.Gone || p.Apart() || p.Cgroup.Found()
	return slices.Contains(users, int(p.UID)) && program && p.OfMPS() && !apart && bytes <= idleMPS
}

// resident reports whether a listed process is part of the node: a service of no job with at most MaxBaseline.
func resident(p gpu.Process, facts record.Process) bool {
	service := !facts.Gone && facts.Why == "" && facts.OfSystem() && facts.EnvJobID == 0 && facts.EnvUnknown == ""
	return service && p.Memory.Known() && p.Memory.Bytes <= record.MaxBaseline
}

func (v view) codeOf(p record.Process, o attribution.Attribution) catalog.Code {
	_, listed := v.then.Process(p.PID)
	switch {
	case o.Kind == attribution.LiveJob, o.Kind == attribution.CannotTell && o.Blamed() != nil:
		return catalog.Foreign
	case v.in.beginning(), v.in.ending() && listed && v.in.Before.Processes[p.PID].Start == p.Start:
		return catalog.Dirty
	case o.Kind == attribution.ThisJob, o.Kind == attribution.EndedJob && v.in.between():
		return catalog.Orphan
	}
	return catalog.Stray
}

// phantom judges memory under a PID that /proc no longer has: a process that shares its descriptors holds it.
func (v view) phantom(p gpu.Process, f record.Finding) (record.Finding, bool) {
	if v.in.Shared != "" {
		return record.Finding{}, false
	}
	f.Code, f.Owner = catalog.Phantom, inherited(v.in.Book.Left, v.device.ID, p)
	f.Observed = fmt.Sprintf("listed under PID %d, which no longer exists", p.PID)
	if f.Holder.Reused {
		f.Observed = fmt.Sprintf("listed under PID %d, whose process has ended: another has that PID now", p.PID)
	}
	then, listed := v.then.Process(p.PID)
	switch {
	case v.in.between(), v.in.again():
	case v.in.beginning():
		f.Code = catalog.Dirty
	case listed && !(v.in.Before.Processes[p.PID].Gone && Grown(then.Memory, p.Memory)): // if less, a part was freed
		f.Code = catalog.Dirty
		f.AddDoubt("it was there before this job")
	case v.in.sawOther(p.PID):
	default:
		f.Owner = v.exclusive()
	}
	holders := v.search(&f, func(h record.Holding) bool { // unlisted processes, not the node's, with this GPU open
		return h.Has(v.device) && !lists(v.now, h.PID) && !v.in.ofNode(h)
	}, nil)
	if f.Code == catalog.Phantom && v.in.ending() || f.Owner == nil { // else the recorded owner stays
		f.Owner = holdersJob(f, holders)
	}
	if v.in.ending() && f.Owner != nil && f.Owner.Level == record.ByExclusive && v.in.sawAlive(p.PID, *f.Owner) {
		f.Owner.Level = record.BySighting
	}
	return f, true
}

// sawAlive reports whether the dead process was seen in this job's cgroup. An earlier job's PID may be reused.
func (s Input) sawAlive(pid int, o record.Owner) bool {
	self := s.Book.Self
	return o.Slurm().Same(self.Owner()) && slices.ContainsFunc(self.Seen, func(seen record.Sighting) bool {
		return seen.PID == pid && o.Slurm().Same(seen.Owner)
	})
}

// sawOther reports whether a process that began during this job had the PID in another job's cgroup: either job may
// have left what is listed under it.
func (s Input) sawOther(pid int) bool {
	self := s.Book.Self
	return slices.ContainsFunc(append(slices.Clone(s.Book.Others), self), func(r attribution.Allocation) bool {
		return slices.ContainsFunc(r.Seen, func(seen record.Sighting) bool {
			return seen.PID == pid && seen.Start >= self.Start && !seen.Owner.Same(self.Owner())
		})
	})
}

// holdersJob returns the job of all that have a dead process's GPU open. It confirms f's owner, which had the GPU alone
// meanwhile; without one it is a guess. Another job may only monitor: it is not blamed, nor any after a partial search.
func holdersJob(f record.Finding, holders []holder) *record.Owner {
	switch {
	case !f.Searched:
		return nil
	case len(holders) == 0:
		return f.Owner
	}
	o := oneJob(f, holders)
	switch {
	case o == nil, f.Owner != nil && !f.Owner.Slurm().Same(o.Slurm()):
		return nil
	case f.Owner == nil && record.ByExclusive.Weaker(o.Level):
		o.Level = record.ByExclusive
	}
	return o
}

// oneJob returns the one job of all holders, if it is over, with their weakest evidence, else nil. What was there
// before this job does not belong to it, whatever it has open.
func oneJob(f record.Finding, holders []holder) *record.Owner {
	first := holders[0].owner
	for _, h := range holders {
		o := h.owner
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

// Proven returns the live processes of these findings that a cgroup, now or in a sighting, proves to be the ended
// job's: the only ones that may ever be ended. Candidates for memory without a process are never among them: their
// owner may be proven, but not that they hold anything.
func Proven(found []record.Finding, job slurm.Job) (all []record.Holder) {
	for _, f := range found {
		var holders []record.Holder
		switch {
		case f.Unknown != "":
		case f.Code == catalog.Orphan && f.Holder != nil:
			holders = []record.Holder{*f.Holder}
			holders[0].Owner = f.Owner
		case f.Code == catalog.Phantom:
			holders = f.Candidates
		}
		for _, h := range holders {
			proven := h.Owner != nil && h.Owner.Level.Certain() && h.UID == job.UID && !h.Gone && h.Why == ""
			if proven && h.Owner.Slurm().Same(job.Owner()) {
				all = append(all, h)
			}
		}
	}
	return all
}

// Trespasses returns, for a health check, live jobs' processes on GPUs not given to them, proven by a cgroup.
func (s Input) Trespasses() (all []record.Finding) {
	for _, c := range s.Cards {
		r, _ := s.Now.Snapshot.Reading(c.Device.ID)
		for _, p := range r.Processes {
			facts, read := s.Now.Processes[p.PID]
			o := s.Decide(facts, r.Device.ID)
			proven := read && !facts.Gone && o.Level.Certain() &&
				!facts.Cgroup.Elsewhere(s.Job.Node) // the check of that node judges it
			f := record.Finding{Code: catalog.Trespass, GPU: r.Device.ID, Index: &c.Index, Bytes: p.Memory,
				Holder: listedOn(p, facts), Owner: o.Blamed(),
				Expected: "processes on none but their job's own GPUs"}
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
