package finding

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

func listedOn(p gpu.Process, facts Process) *Holder {
	return &Holder{Process: facts, Memory: p.Memory, Classes: Classes(facts, p.Kinds...)}
}

// search names who may hold what f is about, and adds what that says against certainty: a live job's process among
// them, one nobody knows the owner of, or a search that was not finished. It returns whose the candidates are.
func (s Scene) search(c Card, f Finding, may func(Holding) bool, class Class) (Finding, []Attribution) {
	if s.Now.Scan == nil {
		f.doubt("no one searched for its holder: a live job's process may have it")
		return f, nil
	}
	if why := s.Now.Scan.Partial; why != "" {
		f.doubt("not every process was looked into for its holder: %s", why)
	}
	f.Searched = s.Now.Scan.Partial == ""
	for _, p := range s.Now.Scan.Unread { // any of them may hold it
		o := s.Decide(p, c.Device.ID)
		f.Searched = f.Searched && o.Whose == ThisJob
		if !s.leftBehind(o) || len(s.against(c, p, o, true)) > 0 {
			f.doubt("not every process was looked into for its holder: process %d: %s", p.PID, cmp.Or(p.Why, p.EnvUnknown))
		}
	}
	var owners []Attribution
	for _, h := range s.Now.Scan.Holdings {
		if !may(h) {
			continue
		}
		o := s.Decide(h.Process, c.Device.ID)
		owners = append(owners, o)
		candidate := Holder{
			Process: h.Process, Memory: gpu.Unknown("a descriptor proves a holder, not bytes"),
			Classes: Classes(h.Process), Open: h.Open(),
		}
		if !o.Ambiguous() {
			candidate.Owner = o.job()
		}
		if class != "" {
			candidate.Classes = append([]Class{class}, candidate.Classes...)
		}
		if s.leftBehind(o) {
			candidate.Classes = append([]Class{Orphan}, candidate.Classes...)
		}
		f.Candidates = append(f.Candidates, candidate)
		for _, why := range s.against(c, h.Process, o, true) {
			f.doubt("process %d may hold it: %s", h.PID, why)
		}
	}
	return f, owners
}

// blame says whose memory it is that appeared while only suspect had the card, given whose the candidates are. Where
// one of them surely holds it they say whose it is. Else suspect is blamed unless none of them is its, or one that is
// not came during the job as well. What was not searched for blames nobody.
func (s Scene) blame(f Finding, suspect *Owner, owners []Attribution, surely bool) *Owner {
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
		case suspect.named().Same(o.named()):
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

// holdersJob is the job of all that have a dead process's GPU open. It proves a job that had the GPU alone meanwhile, and
// is a guess where none is known to. A program that only watches the GPU has it open too: another job's takes no blame.
func holdersJob(f Finding, suspect *Owner, owners []Attribution) *Owner {
	o := oneJob(f, owners)
	switch {
	case o == nil, suspect != nil && !suspect.named().Same(o.named()):
		return nil
	case suspect == nil && ByExclusive.Weaker(o.Level):
		o.Level = ByExclusive
	}
	return o
}

// oneJob is the one job that is over of all holders, by the weakest evidence, nil for none. What was there before this
// job is not this job's, whatever it has open.
func oneJob(f Finding, owners []Attribution) *Owner {
	first := owners[0]
	for _, o := range owners {
		over := o.Whose == EndedJob || o.Whose == ThisJob && f.Code != code.Dirty
		if !over || o.Ambiguous() || o.Job != first.Job || o.SLUID != first.SLUID {
			return nil
		}
		if o.Level.Weaker(first.Level) {
			first.Level = o.Level
		}
	}
	return first.job()
}

// against says what keeps a process, which holds a card's memory or as a candidate may, from proving the card unusable.
// A job may have ended while the GPU was watched: it had less time to go than the watch took.
func (s Scene) against(c Card, p Process, o Attribution, candidate bool) []string {
	began := s.Now.Snapshot.At - s.Now.Curves[c.Device.ID].Span
	// At a start the driver lists what root's process holds: it takes no blame from the job before.
	rootly := (candidate || s.ending()) && o.Whose != ThisJob && (p.UID == 0 || p.OfSystem())
	return holding(
		doubt{o.Whose == LiveJob, "it is a live job's"},
		doubt{o.Whose == CannotTell, "its owner could not be told: " + o.Why},
		doubt{o.Unseen, fmt.Sprintf("no one saw the end of its job %d", o.Job)},
		doubt{rootly, "it is root's or the system's, and may be a service of this node"},
		doubt{o.Rival != 0, fmt.Sprintf("job %d could own it as well", o.Rival)},
		doubt{p.DeviceUnknown != "" && !s.leftBehind(o), "whether it has a GPU open could not be read: " + p.DeviceUnknown},
		doubt{s.ends(p, began), "it is ending, and may be gone in a moment"},
		doubt{max(o.Ended, o.OtherEnd) > began && o.Whose != LiveJob, "its job ended while the GPU was watched"},
	)
}

// ends reports a process on its way out, which excuses it once: one that an earlier hook saw ending hangs there. No
// other state is an end: a process in D may stay in the kernel for days, and can choose to.
func (s Scene) ends(p Process, began time.Duration) bool {
	seen, before := s.Ending[Instance{PID: p.PID, Start: p.Start}]
	return p.State == "X" && !(before && seen < began)
}

// mayHoldPhantom selects what may keep a dead process's memory: it has this GPU open, and is not listed itself.
func (s Scene) mayHoldPhantom(c Card) func(Holding) bool {
	return func(h Holding) bool {
		return h.Has(c.Device) && !s.lists(c, h.PID) && !s.ofNode(h)
	}
}

// mayHoldExported selects who may keep memory that no process is listed for: who has the driver open and nothing
// that explains why. nvidiactl names no card; one who has another card alone open has that as its reason.
func (s Scene) mayHoldExported(c Card) func(Holding) bool {
	listed := s.listedAnywhere()
	return func(h Holding) bool {
		return h.MayHold(c.Device) && !listed[h.PID] && !s.ofNode(h)
	}
}

// bystanders are doubts about memory without a process: a handle on it may be held by any process that has the driver
// open, also by one that has another card for a reason, unless that is surely of a job that is over.
func (s Scene) bystanders(c Card, f Finding) []string {
	if s.Now.Scan == nil {
		return nil
	}
	var doubts []string
	for _, h := range s.Now.Scan.Holdings {
		candidate := slices.ContainsFunc(f.Candidates, func(c Holder) bool { return c.PID == h.PID })
		o := s.Decide(h.Process, c.Device.ID)
		// A name excuses no job's process.
		trade := s.ofNode(h) && o.Whose != LiveJob && o.Whose != CannotTell
		if candidate || trade {
			continue
		}
		nobodys := o.Whose == NoJob && h.UID != 0 && s.lists(c, h.PID) // a live job has no business here
		if !s.leftBehind(o) && !nobodys || o.Rival != 0 {
			doubts = append(doubts,
				fmt.Sprintf("process %d has the driver open for another reason, and may hold it too", h.PID))
		}
	}
	return doubts
}

// ofNode leaves out those that hold the driver open by trade: services that were there before the job, when the card
// had nothing of theirs, and root's MPS daemon, which was measured to have a card open and no memory on it. Any user can
// run a program under its name, and in a container as root, so the name alone excuses no process.
func (s Scene) ofNode(h Holding) bool {
	daemon := h.OfMPS() && h.UID == 0 && !h.Cgroup.Found() && !h.Apart()
	return daemon || h.OfSystem() && (!s.ending() || h.Start < s.Self.Start)
}

func (s Scene) lists(c Card, pid int) bool {
	_, listed := s.Now.listed(c.Device.ID, pid)
	return listed
}

// listedAnywhere are the PIDs that the driver lists on any card that was looked at.
func (s Scene) listedAnywhere() map[int]bool {
	listed := map[int]bool{}
	for _, r := range slices.Concat(s.Now.Snapshot.Readings, s.Now.Neighbours.Readings) {
		for _, p := range r.Processes {
			listed[p.PID] = true
		}
	}
	return listed
}

func (s Scene) leftBehind(o Attribution) bool {
	return o.Whose == EndedJob && !o.Unseen || o.Whose == ThisJob && s.ending()
}

// Proven lists the live processes behind these findings that a cgroup, now or in a sighting, proved to be the ended
// job's: the only ones that may ever be ended. Candidates for memory without a process are never among them: whose
// they are may be proven, that they hold anything is not.
func Proven(found []Finding, job slurm.Job) []Holder {
	var all []Holder
	add := func(h Holder, o *Owner) {
		if o == nil || h.UID != job.UID || o.Level != ByCgroup && o.Level != BySighting {
			return
		}
		if o.named().Same(slurm.Owner{ID: job.ID, SLUID: job.SLUID}) && !h.Gone && h.Why == "" {
			h.Owner = o
			all = append(all, h)
		}
	}
	for _, f := range found {
		if f.Unknown != "" {
			continue
		}
		switch {
		case f.Code == code.Orphan && f.Holder != nil:
			add(*f.Holder, f.Owner)
		case f.Code == code.Phantom:
			for _, c := range f.Candidates {
				add(c, c.Owner)
			}
		}
	}
	return all
}

// given reports whether Slurm gave the GPU to a process's job as well: suspended and gang-scheduled jobs may share one.
func (s Scene) given(o Attribution, id gpu.ID) bool {
	return slices.ContainsFunc(s.Others, func(r Record) bool { return r.Keeps(id) && o.named().Same(r.owner()) })
}

// Trespasses names processes of live jobs on GPUs not given to them, proven by a cgroup, for a health check.
func (s Scene) Trespasses(looked []gpu.Reading) (all []Finding) {
	for _, r := range looked {
		for _, p := range r.Processes {
			facts, read := s.Now.Processes[p.PID]
			o := s.Decide(facts, r.Device.ID)
			proven := read && !facts.Gone && (o.Level == ByCgroup || o.Level == BySighting) &&
				!facts.Cgroup.Elsewhere(s.Job.Node) // that node's own check judges it
			f := Finding{
				Code: code.Trespass, GPU: r.Device.ID, Bytes: p.Memory,
				Holder: listedOn(p, facts), Owner: o.job(),
				Expected: "processes on none but their job's own GPUs",
			}
			switch {
			case !proven || r.ProcessesUnknown != "":
				continue
			case o.Whose == CannotTell:
				f.Unknown = o.Why + ": a job without GPUs, or one that began before Bookend"
				f.Observed = fmt.Sprintf("process %d of a job without a record here", p.PID)
			case o.Whose == LiveJob && !s.given(o, r.Device.ID):
				f.Observed = fmt.Sprintf("process %d of job %d, which was not given this GPU", p.PID, o.Job)
			default:
				continue // what an ended job left there is that GPU's own finding
			}
			all = append(all, f)
		}
	}
	return all
}
