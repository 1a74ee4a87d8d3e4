// Package attribution infers from recorded runs which job owns a process or the memory that is left on a GPU.
package attribution

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Allocation is one run of a job on this node, as its own hooks recorded it.
type Allocation struct {
	Job   slurm.JobID
	SLUID slurm.SLUID
	// Het is the leader's id of a heterogeneous job, which its tasks have in their environment, and 0 for any other.
	Het   slurm.JobID
	UID   uint32
	GPUs  []gpu.ID
	Start time.Duration // CLOCK_BOOTTIME of its prolog's last sample
	End   time.Duration // of its epilog's last sample; 0 while the job lives
	Alone bool          // no other job was given any of its GPUs meanwhile
	// Unplaced is set if the job's GPUs are unknown: it may be on any. Perhaps are those that it may have besides.
	Unplaced bool
	Perhaps  []gpu.ID
	Unseen   bool // set if the run counts as over without proof: it makes nothing certain
	Seen     []record.Sighting
}

func (r Allocation) Owner() slurm.Owner { return slurm.Owner{ID: r.Job, SLUID: r.SLUID} }

// Live reports whether the job's epilog has not run.
func (r Allocation) Live() bool { return r.End == 0 }

// named reports whether an id in a process's environment is this run's: its own, or its heterogeneous job's.
func (r Allocation) named(id slurm.JobID) bool { return id != 0 && (id == r.Job || id == r.Het) }

func (r Allocation) mayHaveStarted(p record.Process) bool { return r.UID == p.UID || p.Apart() }

// MayHold reports whether the job was given the GPU, or may have been.
func (r Allocation) MayHold(id gpu.ID) bool {
	return r.Unplaced || slices.Contains(r.GPUs, id) || slices.Contains(r.Perhaps, id)
}

// Keeps reports a live job that was given the GPU, or may have been.
func (r Allocation) Keeps(id gpu.ID) bool { return r.Live() && r.MayHold(id) }

// Ownership is the kind of owner of a process.
type Ownership string

// The kinds of owner. CannotTell always comes with a reason.
const (
	ThisJob    Ownership = "this job"
	LiveJob    Ownership = "another live job"
	EndedJob   Ownership = "an ended job"
	NoJob      Ownership = "no job"
	CannotTell Ownership = "unknown"
)

// Attribution is the owner of a process, with the evidence against it.
type Attribution struct {
	record.Owner
	Kind Ownership
	Why  string // for CannotTell
	// Rival is another job that could own the process as well, if the evidence is weaker than a cgroup or a sighting: a
	// live job of the same user (on nodes without cgroup tracking, a job's processes carry no mark), of any user for a
	// process in a container, or a job without a record that its environment names and that may be on this node.
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

func (o Attribution) Blamed() *record.Owner {
	if o.Job == 0 && o.SLUID == "" {
		return nil
	}
	return &o.Owner
}

// Jobs are the jobs of a node as a process's owner is looked for among them.
type Jobs struct {
	Node   string
	Self   Allocation // the job that the hook is of
	Began  bool       // Self's start is on record
	Others []Allocation
	At     time.Duration // CLOCK_BOOTTIME of the sample that shows the process
}

// Owner attributes a process by the strongest evidence there is, never by its user alone.
func (j Jobs) Owner(p record.Process, id gpu.ID) Attribution {
	if why := cmp.Or(p.Why, p.Cgroup.Conflict); why != "" {
		return unknown(record.Owner{Level: record.NoEvidence}, why)
	}
	if p.Cgroup.Found() {
		return j.named(p, p.Cgroup, record.ByCgroup)
	}
	if owner, ok := j.sighted(p); ok {
		return j.named(p, owner, record.BySighting)
	}
	if p.OfSystem() { // a service belongs to no job, whatever its user and start time
		return j.ofNoJob(p)
	}
	accused, level := j.alone(p, id), record.ByExclusive
	if accused == nil {
		accused, level = j.environment(p, id), record.ByEnvironment
	}
	if accused != nil {
		o := j.ownerOf(*accused, level)
		o.Rival, o.OtherEnd = j.rival(p, *accused), j.otherEnd(p, *accused)
		o.Contradicted = p.EnvJobID != 0 && !accused.named(p.EnvJobID)
		return o
	}
	why := p.EnvUnknown
	if why == "" && p.EnvJobHere != "" { // neither a job without GPUs nor one older than Bookend has a record here
		why = fmt.Sprintf("its environment names job %d, of which this node has no record for its user and the time "+
			"it started: %s", p.EnvJobID, p.EnvJobHere)
	}
	if why != "" {
		return unknown(record.Owner{Level: record.NoEvidence}, why)
	}
	return j.ofNoJob(p)
}

func unknown(o record.Owner, why string) Attribution {
	return Attribution{Owner: o, Kind: CannotTell, Why: why}
}

func (j Jobs) ofNoJob(p record.Process) Attribution {
	return Attribution{Owner: record.Owner{UID: p.UID, Level: record.NoEvidence}, Kind: NoJob,
		Rival:    j.rival(p, Allocation{}),
		OtherEnd: j.otherEnd(p, Allocation{})}
}

func (j Jobs) runs() []Allocation { return append([]Allocation{j.Self}, j.Others...) }

// named finds this node's record of a job that a cgroup names: of several runs of one id, the one that had begun when
// the process started. A process older than all of them is of an earlier run, which is over: Slurm runs one job id once
// at a time on a node. One that started after the last of them ended is of a run without a record.
func (j Jobs) named(p record.Process, o slurm.Owner, level record.Level) Attribution {
	if o.Elsewhere(j.Node) { // another cluster's node may have a job of the same id
		return unknown(record.Owner{Level: level},
			fmt.Sprintf("in the cgroup of job %s of node %s on the same host", o.Name(), o.Node))
	}
	var found, later *Allocation
	for _, r := range j.runs() {
		switch {
		case !o.Same(r.Owner()):
		case p.Start != 0 && r.Start > p.Start+record.Tick:
			later = &r // any will do: all are of one job
		case found == nil || newer(r, *found):
			found = &r
		}
	}
	switch {
	case found != nil && !found.Live() && o.SLUID == "" && p.Start > found.End:
		why := fmt.Sprintf("of a later run of job %s than this node has a record of", o.Name())
		return unknown(record.Owner{Job: o.ID, Level: level}, why)
	case found != nil:
		return j.ownerOf(*found, level)
	case later != nil:
		return Attribution{Owner: record.Owner{Job: later.Job, UID: p.UID, Level: level}, Kind: EndedJob}
	}
	why := fmt.Sprintf("in the cgroup of job %s, of which this node has no record", o.Name())
	return unknown(record.Owner{Job: o.ID, SLUID: o.SLUID, Level: level}, why)
}

func (j Jobs) ownerOf(r Allocation, level record.Level) Attribution {
	o := Attribution{Owner: record.Owner{Job: r.Job, SLUID: r.SLUID, UID: r.UID, Level: level}, Kind: EndedJob}
	switch {
	case r.Job == j.Self.Job && r.SLUID == j.Self.SLUID && r.Start == j.Self.Start:
		o.Kind = ThisJob
	case r.Live():
		o.Kind = LiveJob
	default:
		o.Ended, o.Unseen = r.End, r.Unseen
	}
	return o
}

func (j Jobs) sighted(p record.Process) (slurm.Owner, bool) {
	for _, r := range j.runs() {
		for _, seen := range r.Seen {
			if seen.PID == p.PID && seen.Start == p.Start {
				return seen.Owner, true
			}
		}
	}
	return slurm.Owner{}, false
}

// alone returns the run that had the GPU alone when a process of its user started, nil if there is none.
func (j Jobs) alone(p record.Process, id gpu.ID) *Allocation {
	for i, r := range j.runs() {
		began := i > 0 || j.Began // without its start, nothing is exclusive to this run
		if began && r.Alone && r.UID == p.UID && slices.Contains(r.GPUs, id) && j.during(r, p.Start) {
			return &r
		}
	}
	return nil
}

// environment returns the newest run that the process's environment names and that had begun; an older one is over.
func (j Jobs) environment(p record.Process, id gpu.ID) (found *Allocation) {
	for _, r := range j.runs() {
		if r.named(p.EnvJobID) && r.UID == p.UID && r.Start <= p.Start+record.Tick &&
			(found == nil || nearer(r, *found, id)) {
			found = &r
		}
	}
	if found != nil && !found.Live() && p.Start > found.End { // of a later run without a record, which may be live
		return nil
	}
	return found
}

// nearer prefers, of two components of one heterogeneous job, the one given the GPU, and otherwise the newer run.
func nearer(a, b Allocation, id gpu.ID) bool {
	// A component whose GPUs are not all known might have it: the certain one is preferred, the other stays a rival.
	if given := slices.Contains(a.GPUs, id); a.Job != b.Job && given != slices.Contains(b.GPUs, id) {
		return given
	}
	return newer(a, b)
}

// otherEnd returns when the last other ended job that could have started the process ended, 0 without one. If the
// environment names the accused, only components of the same heterogeneous job could.
func (j Jobs) otherEnd(p record.Process, accused Allocation) (last time.Duration) {
	for _, r := range j.runs() {
		if accused.named(p.EnvJobID) && !r.named(p.EnvJobID) {
			continue
		}
		if r.Job != accused.Job && !r.Live() && r.mayHaveStarted(p) && j.during(r, p.Start) {
			last = max(last, r.End)
		}
	}
	return last
}

// rival returns a job other than the accused that could have started the process.
func (j Jobs) rival(p record.Process, accused Allocation) slurm.JobID {
	if p.EnvJobHere != "" && !accused.named(p.EnvJobID) {
		return p.EnvJobID
	}
	for _, id := range p.Steps { // without a record, the job may still run
		ofJob := func(r Allocation) bool { return r.named(id) }
		if !accused.named(id) && !slices.ContainsFunc(j.runs(), ofJob) {
			return id
		}
	}
	for _, r := range j.Others {
		open := r.Live() || r.Unseen
		r.End = 0 // an end that was not seen is a guess
		if open && r.mayHaveStarted(p) && r.Job != accused.Job && j.during(r, p.Start) {
			return r.Job
		}
	}
	return 0
}

// during reports whether a process started during a run. Its start time is rounded down to a tick.
func (j Jobs) during(r Allocation, start time.Duration) bool {
	end := r.End
	if r.Live() {
		end = j.At
	}
	return start+record.Tick > r.Start && start < end
}

func newer(a, b Allocation) bool {
	return a.Live() && !b.Live() || a.Live() == b.Live() && a.Start > b.Start
}
