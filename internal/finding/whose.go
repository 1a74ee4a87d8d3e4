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
	ByEnvironment Level = "environment" // its environment names the job: a hint
	NoEvidence    Level = "none"
)

// Weaker reports whether a level is weaker evidence than another.
func (l Level) Weaker(than Level) bool { return rank[l] < rank[than] }

var rank = map[Level]int{NoEvidence: 0, ByEnvironment: 1, ByExclusive: 2, BySighting: 3, Recorded: 3, ByCgroup: 4}

// Record is one run of a job on this node, as its own hooks recorded it.
type Record struct {
	Job   slurm.JobID
	SLUID slurm.SLUID
	// Het is the leader's id of a heterogeneous job, which its tasks have in their environment, and 0 for any other.
	Het   slurm.JobID
	UID   uint32
	GPUs  []gpu.ID
	Start time.Duration // CLOCK_BOOTTIME of its prolog's last sample
	End   time.Duration // of its epilog's last sample; 0 while the job lives
	Alone bool          // no other job was given any of its GPUs meanwhile
	// Unplaced is set if it is not known which GPUs the job was given: it may be on any.
	Unplaced bool
	// Unseen is set if the run counts as over without proof: it makes nothing certain.
	Unseen bool
	Seen   []Sighting
}

func (r Record) owner() slurm.Owner { return slurm.Owner{ID: r.Job, SLUID: r.SLUID} }

// Live reports whether the job's epilog has not run.
func (r Record) Live() bool { return r.End == 0 }

// named reports whether an id in a process's environment is this run's: its own, or its heterogeneous job's.
func (r Record) named(id slurm.JobID) bool { return id != 0 && (id == r.Job || id == r.Het) }

// mayHaveStarted reports whether the run's user may have started a process; in a container any user may have.
func (r Record) mayHaveStarted(p Process) bool { return r.UID == p.UID || p.Apart() }

// MayHold reports whether the job was given the GPU, or may have been.
func (r Record) MayHold(id gpu.ID) bool { return r.Unplaced || slices.Contains(r.GPUs, id) }

// Keeps reports a live job that was given the GPU, or may have been.
func (r Record) Keeps(id gpu.ID) bool { return r.Live() && r.MayHold(id) }

// Sighting is a process that a hook saw in a job's cgroup while the cgroup still existed.
type Sighting struct {
	PID   int
	Start time.Duration
	Owner slurm.Owner
}

// Whose is the kind of owner of a process.
type Whose string

// The kinds of owner. CannotTell always comes with a reason.
const (
	ThisJob    Whose = "this job"
	LiveJob    Whose = "another live job"
	EndedJob   Whose = "an ended job"
	NoJob      Whose = "no job"
	CannotTell Whose = "unknown"
)

// Attribution is the owner of a process, with the evidence against it.
type Attribution struct {
	Owner
	Whose Whose
	Why   string // for CannotTell
	// Rival is another job that could own the process as well, if the evidence is weaker than a cgroup or a sighting: a
	// live job of the same user (on nodes without cgroup tracking, a job's processes carry no mark), of any user for a
	// process in a container, or a job without a record that the process's environment names and that may be on this
	// node.
	Rival slurm.JobID
	// Contradicted is set if the evidence is as weak and the environment names another job: either may be the owner.
	Contradicted bool
	// OtherEnd is set if the evidence is as weak and another ended job of the same user, which the process's
	// environment does not rule out, ran when it started: the time when the last such job ended (CLOCK_BOOTTIME).
	OtherEnd time.Duration
	Ended    time.Duration // CLOCK_BOOTTIME of the end of an ended job
	Unseen   bool          // the end of that job was not seen
}

// Ambiguous reports whether the evidence fits two jobs equally well: then neither is blamed.
func (o Attribution) Ambiguous() bool { return o.Contradicted || o.OtherEnd > 0 }

// Decide attributes a process by the strongest evidence there is, never by its user alone.
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
	if p.OfSystem() { // a service belongs to no job, whatever its user and start time
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
	if p.EnvJobHere != "" { // neither a job without GPUs nor one older than Bookend has a record here
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

// named finds this node's record of a job that a cgroup names: of several runs of one id, the one that had begun when
// the process started. A process older than all of them is of an earlier run, which is over: Slurm runs one job id once
// at a time on a node. One that started after the last of them ended is of a run without a record.
func (s Scene) named(p Process, o slurm.Owner, level Level) Attribution {
	if o.Elsewhere(s.Job.Node) { // another cluster's node may have a job of the same id
		return unknown(Owner{Level: level},
			fmt.Sprintf("in the cgroup of job %s of node %s on the same host", o.Name(), o.Node))
	}
	var found, later *Record
	for _, r := range s.runs() {
		switch {
		case !o.Same(r.owner()):
		case p.Start != 0 && r.Start > p.Start+Tick:
			later = &r // any will do: all are of one job
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

// alone returns the run that had the GPU alone when a process of its user started, nil if there is none.
func (s Scene) alone(p Process, id gpu.ID) *Record {
	for i, r := range s.runs() {
		began := i > 0 || s.Before != nil // without its start, nothing is exclusive to this run
		if began && r.Alone && r.UID == p.UID && slices.Contains(r.GPUs, id) && s.during(r, p.Start) {
			return &r
		}
	}
	return nil
}

// environment returns the newest run that the process's environment names and that had begun; an older one is over.
func (s Scene) environment(p Process, id gpu.ID) (found *Record) {
	for _, r := range s.runs() {
		if r.named(p.EnvJobID) && r.UID == p.UID && r.Start <= p.Start+Tick && (found == nil || nearer(r, *found, id)) {
			found = &r
		}
	}
	if found != nil && !found.Live() && p.Start > found.End { // of a later run without a record, which may be live
		return nil
	}
	return found
}

// nearer prefers, of two components of one heterogeneous job, the one given the GPU, and otherwise the newer run.
func nearer(a, b Record, id gpu.ID) bool {
	// A component whose GPUs are not all known might have it: the certain one is preferred, the other stays a rival.
	if given := slices.Contains(a.GPUs, id); a.Job != b.Job && given != slices.Contains(b.GPUs, id) {
		return given
	}
	return newer(a, b)
}

// otherEnd returns when the last other ended job that could have started the process ended, 0 without one. If the
// environment names the accused, only components of the same heterogeneous job could.
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

// rival returns a job other than the accused that could have started the process.
func (s Scene) rival(p Process, accused Record) slurm.JobID {
	if p.EnvJobHere != "" && !accused.named(p.EnvJobID) {
		return p.EnvJobID
	}
	for _, id := range p.Steps { // without a record, the job may still run
		ofJob := func(r Record) bool { return r.named(id) }
		if !accused.named(id) && !slices.ContainsFunc(s.runs(), ofJob) {
			return id
		}
	}
	for _, r := range s.Others {
		open := r.Live() || r.Unseen // an end that was not seen is a guess
		if r.End = 0; open && r.mayHaveStarted(p) && r.Job != accused.Job && s.during(r, p.Start) {
			return r.Job
		}
	}
	return 0
}

// during reports whether a process started during a run. Its start time is rounded down to a tick.
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
