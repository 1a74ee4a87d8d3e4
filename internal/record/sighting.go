package record

import (
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// RecordedProcess is one process on one GPU, as samples saw it.
type RecordedProcess struct {
	GPU   gpu.ID        `json:"gpu"`
	PID   int           `json:"pid"`
	Start time.Duration `json:"start_ns"` // CLOCK_BOOTTIME; with the PID it identifies the process
	UID   uint32        `json:"uid"`
	// Owner is the job in whose cgroup a sample saw it; a Conflict if there were two jobs.
	Owner slurm.Owner `json:"owner,omitzero"`
	// Apart is set for a process in a container or a PID namespace: its UID need not be its user's.
	Apart   bool          `json:"apart,omitempty"`
	Service string        `json:"service,omitempty"` // the unit, if it belongs to a service of the node
	Name    string        `json:"name,omitempty"`    // comm: chosen by the process
	EnvJob  slurm.JobID   `json:"env_job,omitempty"` // SLURM_JOB_ID in its environment: forgeable
	First   time.Duration `json:"first_ns"`          // CLOCK_BOOTTIME of the samples
	Last    time.Duration `json:"last_ns"`
	Bytes   gpu.Figure    `json:"bytes"` // at the last sample
	Most    uint64        `json:"most,omitempty"`
	MostAt  time.Duration `json:"most_at_ns,omitempty"` // when it had most; 0 if no sample showed that
	Curve   []uint32      `json:"curve,omitempty"`      // MiB, by the GPU's steps; only of the largest processes
}

// Process returns what a finding contains of it.
func (seen RecordedProcess) Process() Process {
	return Process{PID: seen.PID, Start: seen.Start, UID: seen.UID, Name: seen.Name, Cgroup: seen.Owner,
		Service: seen.Service, OtherPIDs: seen.Apart, EnvJobID: seen.EnvJob}
}

func (seen *RecordedProcess) see(p gpu.Process, facts Process, at time.Duration) {
	seen.UID, seen.Last, seen.Bytes = facts.UID, at, p.Memory
	seen.Apart = seen.Apart || facts.Apart()
	seen.Service, seen.Name, seen.EnvJob = facts.Service, facts.Name, facts.EnvJobID
	seen.Owner = sameOwner(seen.Owner, facts.Cgroup)
	if p.Memory.Known() && (seen.MostAt == 0 || p.Memory.Bytes > seen.Most) {
		seen.Most, seen.MostAt = p.Memory.Bytes, at
	}
}

// sameOwner merges the owners from two samples: a process whose cgroup no longer names a job is still that job's.
func sameOwner(was, now slurm.Owner) slurm.Owner {
	now.Step, now.Daemon = "", false
	switch {
	case was.Conflict != "":
		return was
	case now.Conflict != "":
		return slurm.Owner{Conflict: now.Conflict}
	case !now.Found():
		return was
	case was.Found() && !was.Same(now):
		return slurm.Owner{Conflict: "its cgroup named two jobs, one after the other"}
	}
	return now
}

// Known returns the samples that are kept: when it was seen first and last, and when it had most.
func (p RecordedProcess) Known() map[time.Duration]gpu.Figure {
	all := map[time.Duration]gpu.Figure{p.First: gpu.Unknown("how much it had then was not kept"), p.Last: p.Bytes}
	if p.MostAt > 0 {
		all[p.MostAt] = gpu.Bytes(p.Most)
	}
	return all
}

func (r Run) Had(id gpu.ID) bool {
	return slices.ContainsFunc(r.Devices, func(d Assigned) bool { return d.Device.ID == id && id != "" })
}

// Owns reports whether a cgroup is of the run's job.
func (r Run) Owns(o slurm.Owner) bool { return r.Job.Owns(o) }

// probably reports whether a process in no job's cgroup may well be the run's own: it is of the same user, began after
// the run, and its environment names no other job. If Slurm tracks without cgroups there is no better evidence.
func (r Run) probably(p Process) bool {
	noJobs := !p.Cgroup.Found() && p.Cgroup.Conflict == "" && p.EnvUnknown == "" &&
		!p.Gone && !p.Apart() && !p.OfSystem()
	return noJobs && p.UID != 0 && p.UID == r.Job.UID &&
		r.Start != nil && p.Start > r.Start.At && (p.EnvJobID == 0 || p.EnvJobID == r.Job.ID)
}

// MayOwn reports whether a recorded process in no job's cgroup may well be the run's own: it is of the same user and
// began during the run, as far as the run's start is known. In a container the user is not known. A second end may be
// that of a later run of the job id, whose own record was lost.
func (r Run) MayOwn(p RecordedProcess) bool {
	sameUser := p.UID == r.Job.UID && p.UID != 0 || p.Apart
	named := p.EnvJob == 0 || p.EnvJob == r.Job.ID || p.EnvJob == r.Job.HetJobID
	return sameUser && named && p.Service == "" && r.BeganBefore(p) && (r.Epilog() == nil || p.Start < r.Last().At)
}

// BeganBefore reports whether a run had begun when a recorded process started, or may have. /proc gives start times
// rounded down to a tick.
func (r Run) BeganBefore(p RecordedProcess) bool {
	return r.Start == nil || p.Start+Tick > r.Start.At
}
