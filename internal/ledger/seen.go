package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/diagnosis"
	"bookend/internal/finding"
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
func (seen RecordedProcess) Process() finding.Process {
	return finding.Process{PID: seen.PID, Start: seen.Start, UID: seen.UID, Name: seen.Name, Cgroup: seen.Owner,
		Service: seen.Service, OtherPIDs: seen.Apart, EnvJobID: seen.EnvJob}
}

func (seen *RecordedProcess) see(p gpu.Process, facts finding.Process, at time.Duration) {
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

func (r Run) had(id gpu.ID) bool {
	return slices.ContainsFunc(r.Devices, func(d Assigned) bool { return d.Device.ID == id && id != "" })
}

// whose marks a run's own process, and one that surely is not: of another job by cgroup, or of another user and in no
// job's cgroup. Root's may belong to any job, and in a container or a PID namespace a UID proves nothing.
func (r Run) whose(d diagnosis.Sighting, o slurm.Owner, uid uint32, apart bool) diagnosis.Sighting {
	another := o.ID != 0 && o.ID != r.Job.ID || o.SLUID != "" && r.Job.SLUID != "" && o.SLUID != r.Job.SLUID
	d.Own = r.Owns(o)
	d.Foreign = !d.Own && (another || !o.Found() && !apart && uid != 0 && uid != r.Job.UID)
	return d
}

// Owns reports whether a cgroup is of the run's job.
func (r Run) Owns(o slurm.Owner) bool { return r.Job.Owns(o) }

// probably reports whether a process in no job's cgroup may well be the run's own: it is of the same user, began after
// the run, and its environment names no other job. If Slurm tracks without cgroups there is no better evidence.
func (r Run) probably(p finding.Process) bool {
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
	return r.Start == nil || p.Start+finding.Tick > r.Start.At
}

// known returns the samples that are kept: when it was seen first and last, and when it had most.
func (p RecordedProcess) known() map[time.Duration]gpu.Figure {
	all := map[time.Duration]gpu.Figure{p.First: gpu.Unknown("how much it had then was not kept"), p.Last: p.Bytes}
	if p.MostAt > 0 {
		all[p.MostAt] = gpu.Bytes(p.Most)
	}
	return all
}

// LastHealth returns the newest recorded value of each fact of a GPU's condition in an epoch: in another, counters
// start at 0 again. A fact is unknown if another run than self may have had the GPU since. The search ends at a record
// that was cut before its condition was kept: what is older may not be the newest.
func LastHealth(runs []Run, self Run, now Now) map[gpu.ID]gpu.Health {
	last := map[gpu.ID]gpu.Health{}
	for _, e := range endsOf(runs, now.Epoch) { // newest first
		for _, h := range e.Health {
			kept := last[h.Device]
			older := slices.DeleteFunc(slices.Clone(h.Facts), func(f gpu.Fact) bool {
				_, newer := kept.Fact(f.Code)
				return newer
			})
			if len(older) > 0 {
				unread := now.unread(runs, self, h.Device, e.At)
				for _, f := range older {
					f.Unknown = cmp.Or(f.Unknown, unread)
					kept.Facts = append(kept.Facts, f)
				}
			}
			kept.Device = h.Device
			last[h.Device] = kept
		}
		if e.Rest[everything] > 0 && len(e.Health) == 0 {
			break
		}
	}
	return last
}

// unread names another run that may have had a GPU since a sample, or why there may be more; empty if there is none.
func (n Now) unread(runs []Run, self Run, id gpu.ID, since time.Duration) string {
	for _, r := range runs {
		over := r.Closed() && r.Last().At <= since || r.First().At > n.At
		if !r.is(self) && n.counts(r) && r.Given(id) && !over {
			return fmt.Sprintf("job %d may have met them: it had this GPU since, and its end did not read them", r.Job.ID)
		}
	}
	return n.Unread
}

// Proofs returns the processes that a sample saw in a job's cgroup, for attribution.
func (r *Recording) Proofs() (seen []finding.Sighting) {
	if r == nil {
		return nil
	}
	for _, g := range r.GPUs {
		for _, p := range g.Processes {
			if p.Owner.Found() && p.Owner.Conflict == "" {
				seen = append(seen, finding.Sighting{PID: p.PID, Start: p.Start, Owner: p.Owner})
			}
		}
	}
	return seen
}

// sightings returns the processes that samples saw on a run's GPUs, sorted, for diagnosis.
func (r *Recording) sightings(self Run) (seen []diagnosis.Sighting) {
	for _, g := range r.GPUs {
		for _, p := range g.Processes {
			for at, bytes := range p.known() {
				d := diagnosis.Sighting{At: at, Device: g.ID, PID: p.PID, Bytes: bytes}
				seen = append(seen, self.whose(d, p.Owner, p.UID, p.Apart))
			}
		}
	}
	slices.SortFunc(seen, func(a, b diagnosis.Sighting) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Device, b.Device), cmp.Compare(a.PID, b.PID))
	})
	return seen
}

// Witness adds what a recording shows of why a run's memory ran out.
func (r *Recording) Witness(in *diagnosis.Input, self Run, from, to time.Duration) {
	if r == nil {
		return
	}
	in.Seen, in.Every, in.Whole = r.sightings(self), r.Every, r.Whole(from, to)
	for _, g := range r.GPUs {
		in.Recorded = append(in.Recorded, diagnosis.Recorded{
			Device: g.ID, Own: g.Own.Bytes, Unlisted: g.Unlisted.Bytes, Together: g.Together,
			Unused: r.Idle(g, from, to),
		})
	}
}
