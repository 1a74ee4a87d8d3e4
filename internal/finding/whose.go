package finding

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Level is the evidence behind an attribution, strongest first.
type Level string

const (
	ByCgroup      Level = "cgroup"      // the process is in the job's cgroup
	BySighting    Level = "sighting"    // an earlier hook saw it there
	Recorded      Level = "recorded"    // the recorder saw it there, between a job's two ends
	ByExclusive   Level = "exclusive"   // it started between the job's two ends, same user, on a GPU given to it alone
	ByEnvironment Level = "environment" // its environment says so: a hint
	NoEvidence    Level = "none"
)

// Weaker reports whether a level is less sure than another.
func (l Level) Weaker(than Level) bool { return rank[l] < rank[than] }

var rank = map[Level]int{NoEvidence: 0, ByEnvironment: 1, ByExclusive: 2, BySighting: 3, Recorded: 3, ByCgroup: 4}

// Record is one run of a job on this node, as its own hooks wrote it down.
type Record struct {
	Job   slurm.JobID
	SLUID slurm.SLUID
	// Het is the leader's id of a heterogeneous job, 0 for any other: its tasks have that in their environment.
	Het   slurm.JobID
	UID   uint32
	GPUs  []gpu.ID
	Start time.Duration // CLOCK_BOOTTIME of its prolog's last look
	End   time.Duration // of its epilog's first look; 0 while the job lives
	Alone bool          // no other job was given any of its GPUs meanwhile
	// Unplaced is true when it is not known which GPUs it was given: it may be on any.
	Unplaced bool
	// Unseen is true if the run counts as over without proof: nothing is certain by that.
	Unseen bool
	Seen   []Sighting
}

func (r Record) owner() slurm.Owner { return slurm.Owner{ID: r.Job, SLUID: r.SLUID} }

// Live reports whether the job's epilog has not run.
func (r Record) Live() bool { return r.End == 0 }

// named reports whether an id in a process's environment is this run's: its own, or its heterogeneous job's.
func (r Record) named(id slurm.JobID) bool { return id != 0 && (id == r.Job || id == r.Het) }

// mayHaveStarted: the run's user could be behind a process; in a container or PID namespace any user could.
func (r Record) mayHaveStarted(p Process) bool { return r.UID == p.UID || p.Apart() }

// MayHold reports whether the job was given the GPU, or may have been.
func (r Record) MayHold(id gpu.ID) bool { return r.Unplaced || slices.Contains(r.GPUs, id) }

// Keeps reports a live job that was given the GPU, or may have been.
func (r Record) Keeps(id gpu.ID) bool { return r.Live() && r.MayHold(id) }

// Sighting is a process that a hook saw in a job's cgroup while the cgroup still stood.
type Sighting struct {
	PID   int
	Start time.Duration
	Owner slurm.Owner
}

// Whose is the answer to whose a process is.
type Whose string

// The answers. CannotTell always comes with a reason.
const (
	ThisJob    Whose = "this job"
	LiveJob    Whose = "another live job"
	EndedJob   Whose = "an ended job"
	NoJob      Whose = "no job"
	CannotTell Whose = "unknown"
)

// Attribution is whose a process is, with what speaks against it.
type Attribution struct {
	Owner
	Whose Whose
	Why   string // for CannotTell
	// Rival is another job that could own the process as well, where the evidence is weaker than a cgroup or a
	// sighting: a live one of the same user (on nodes without cgroup tracking a job's processes carry no mark), of any
	// user for a process in a container, or one without a record that the process's environment names and that may be on
	// this node.
	Rival slurm.JobID
	// Contradicted is set if the evidence is as weak and the environment names another job: either may be right.
	Contradicted bool
	// OtherEnd is set where the evidence is as weak and another ended job of the same user, which the process's
	// environment does not rule out, ran when it started: when the last of them ended (CLOCK_BOOTTIME).
	OtherEnd time.Duration
	Ended    time.Duration // CLOCK_BOOTTIME of the end of an ended job
	Unseen   bool          // nobody saw the end of that job
}

// Ambiguous reports evidence that fits two jobs as well: it blames neither.
func (o Attribution) Ambiguous() bool { return o.Contradicted || o.OtherEnd > 0 }

// Decide says whose a process is, by the strongest evidence there is. It never decides by user alone.
func (s Scene) Decide(p Process, id gpu.ID) Attribution {
	if why := cmp.Or(p.Why, p.Cgroup.Conflict); why != "" {
		return unknown(Owner{Level: NoEvidence}, why)
	}
	if p.Cgroup.Found() {
		return s.named(p, p.Cgroup, ByCgroup)
	}
	if owner, ok := s.sighted(p); ok {
		return s.named(p, owner, BySighting)
	}
	if p.OfSystem() { // a service is no job's, whoever it runs as and whenever it was started
		return s.nobodys(p)
	}
	accused, level := s.alone(p, id), ByExclusive
	if accused == nil {
		accused, level = s.environment(p, id), ByEnvironment
	}
	if accused != nil {
		o := s.owner(*accused, level)
		o.Rival, o.OtherEnd = s.rival(p, *accused), s.otherEnd(p, *accused)
		o.Contradicted = p.EnvJobID != 0 && !accused.named(p.EnvJobID)
		return o
	}
	if p.EnvUnknown != "" {
		return unknown(Owner{Level: NoEvidence}, p.EnvUnknown)
	}
	if p.EnvJobHere != "" { // a job without GPUs has no record here, nor has one older than Bookend
		return unknown(Owner{Level: NoEvidence}, fmt.Sprintf("its environment names job %d, of which this node "+
			"has no record for its user and the time it started: %s", p.EnvJobID, p.EnvJobHere))
	}
	return s.nobodys(p)
}

func unknown(o Owner, why string) Attribution {
	return Attribution{Owner: o, Whose: CannotTell, Why: why}
}

func (s Scene) nobodys(p Process) Attribution {
	return Attribution{Owner: Owner{UID: p.UID, Level: NoEvidence}, Whose: NoJob, Rival: s.rival(p, Record{}),
		OtherEnd: s.otherEnd(p, Record{})}
}

func (s Scene) runs() []Record { return append([]Record{s.Self}, s.Others...) }

// named resolves a job that a cgroup names to this node's records of it: of several runs of one id, to the one that had
// begun when the process started. A process older than all of them is of a run before, which is over: Slurm runs one
// job id once at a time on a node. One that began after the last of them ended is of a run without a record.
func (s Scene) named(p Process, o slurm.Owner, level Level) Attribution {
	if o.Elsewhere(s.Job.Node) { // another cluster's node may have a job of the same id
		return unknown(Owner{Level: level}, fmt.Sprintf("in the cgroup of job %s of node %s on the same host", o.Name(), o.Node))
	}
	var found, later *Record
	for _, r := range s.runs() {
		switch {
		case !o.Same(r.owner()):
		case p.Start != 0 && r.Start > p.Start+Tick:
			later = &r // any will do: all are of the one job
		case found == nil || newer(r, *found):
			found = &r
		}
	}
	switch {
	case found != nil && !found.Live() && o.SLUID == "" && p.Start > found.End:
		why := fmt.Sprintf("of a later run of job %s than this node has a record of", o.Name())
		return unknown(Owner{Job: o.ID, Level: level}, why)
	case found != nil:
		return s.owner(*found, level)
	case later != nil:
		return Attribution{Owner: Owner{Job: later.Job, UID: p.UID, Level: level}, Whose: EndedJob}
	}
	why := fmt.Sprintf("in the cgroup of job %s, of which this node has no record", o.Name())
	return unknown(Owner{Job: o.ID, SLUID: o.SLUID, Level: level}, why)
}

func (s Scene) owner(r Record, level Level) Attribution {
	o := Attribution{Owner: Owner{Job: r.Job, SLUID: r.SLUID, UID: r.UID, Level: level}, Whose: EndedJob}
	switch {
	case r.Job == s.Self.Job && r.SLUID == s.Self.SLUID && r.Start == s.Self.Start:
		o.Whose = ThisJob
	case r.Live():
		o.Whose = LiveJob
	default:
		o.Ended, o.Unseen = r.End, r.Unseen
	}
	return o
}

func (s Scene) sighted(p Process) (slurm.Owner, bool) {
	for _, r := range s.runs() {
		for _, seen := range r.Seen {
			if seen.PID == p.PID && seen.Start == p.Start {
				return seen.Owner, true
			}
		}
	}
	return slurm.Owner{}, false
}

// alone finds the run that had the GPU alone while a process of its user started, nil for none.
func (s Scene) alone(p Process, id gpu.ID) *Record {
	for i, r := range s.runs() {
		began := i > 0 || s.Before != nil // without its start nothing can be exclusive to a run
		if began && r.Alone && r.UID == p.UID && slices.Contains(r.GPUs, id) && s.during(r, p.Start) {
			return &r
		}
	}
	return nil
}

// environment finds the newest run that had begun of those that the process's environment names; an older one is over.
func (s Scene) environment(p Process, id gpu.ID) (found *Record) {
	for _, r := range s.runs() {
		if r.named(p.EnvJobID) && r.UID == p.UID && r.Start <= p.Start+Tick && (found == nil || nearer(r, *found, id)) {
			found = &r
		}
	}
	if found != nil && !found.Live() && p.Start > found.End { // of a later run, without a record, that may be live
		return nil
	}
	return found
}

// nearer prefers, of two components of one heterogeneous job, the one that was given the GPU, and else the newer run.
func nearer(a, b Record, id gpu.ID) bool {
	// One whose GPUs are not all known might have it: the surer one comes first, and the other stays its rival.
	if given := slices.Contains(a.GPUs, id); a.Job != b.Job && given != slices.Contains(b.GPUs, id) {
		return given
	}
	return newer(a, b)
}

// otherEnd is when the last other ended job that could have started the process ended, 0 without one. Where the
// environment names the accused, no other than a component of the same heterogeneous job could.
func (s Scene) otherEnd(p Process, accused Record) (last time.Duration) {
	for _, r := range s.runs() {
		if accused.named(p.EnvJobID) && !r.named(p.EnvJobID) {
			continue
		}
		if r.Job != accused.Job && !r.Live() && r.mayHaveStarted(p) && s.during(r, p.Start) {
			last = max(last, r.End)
		}
	}
	return last
}

// rival returns a job, other than the accused, that could have started the process.
func (s Scene) rival(p Process, accused Record) slurm.JobID {
	if p.EnvJobHere != "" && !accused.named(p.EnvJobID) {
		return p.EnvJobID
	}
	for _, id := range p.Steps { // of one without a record nothing says that it is over
		ofJob := func(r Record) bool { return r.named(id) }
		if !accused.named(id) && !slices.ContainsFunc(s.runs(), ofJob) {
			return id
		}
	}
	for _, r := range s.Others {
		open := r.Live() || r.Unseen // the end of one that was not seen is a guess
		if r.End = 0; open && r.mayHaveStarted(p) && r.Job != accused.Job && s.during(r, p.Start) {
			return r.Job
		}
	}
	return 0
}

// during allows for the start time being cut down to a tick.
func (s Scene) during(r Record, start time.Duration) bool {
	end := r.End
	if r.Live() {
		end = s.Now.Snapshot.At
	}
	return start+Tick > r.Start && start < end
}

func newer(a, b Record) bool {
	return a.Live() && !b.Live() || a.Live() == b.Live() && a.Start > b.Start
}
