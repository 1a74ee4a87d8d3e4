package judge

import (
	"slices"

	"bookend/internal/attribution"
	"bookend/internal/condition"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// condition returns what driver and kernel log report about the job's GPUs, even if the driver is stuck or lost one,
// and the errors that stand on them since before the job.
func (c Case) condition() []record.Finding {
	in := condition.Input{Cards: c.Seen.Cards, Standing: standingOf(c)}
	if c.Phase == slurm.Prolog { // it has not asked for the GPUs' health
		return condition.Judge(in)
	}
	in.Unseen, in.Now, in.Kernel = notFound(c), c.Seen.Health, errorsOf(c)
	if c.Seen.Kernel != nil && !c.Past.Run.Epoch.Same(c.Seen.Kernel.Epoch) {
		in.KernelDoubt = "the driver was reloaded since the job began, or no one can tell: that may have cured the GPU"
	}
	if c.InJob {
		in.Doubt = insideDoubt
	}
	if c.Node != nil && condition.Compares(c.Seen.Health) {
		now := attribution.Now{At: max(c.At, c.Seen.Side.Snapshot.At), Epoch: c.Seen.Epoch,
			Unread: c.Node.Doubt(c.Job.ID, "")}
		in.Before = attribution.LastHealth(c.Node.Runs, c.Self(), now)
	}
	return condition.Judge(in)
}

// Subjects returns the job's GPUs, and those of its start that are missing now and have findings.
func (c Case) Subjects(j Judgement) []record.Assigned {
	gone := slices.DeleteFunc(notFound(c), func(card record.Assigned) bool {
		on := func(f record.Finding) bool { return f.GPU != "" && f.GPU == card.Device.ID }
		return !slices.ContainsFunc(j.Found, on)
	})
	return slices.Concat(c.Seen.Cards, gone)
}

// notFound returns the job's GPUs, by the record of its start, that this hook did not find among the driver's. Those
// that Slurm does not name to this hook are of an earlier run, whose record passes for this one's.
func notFound(c Case) []record.Assigned {
	if c.Phase != slurm.Epilog {
		return nil
	}
	named := c.Job.GPUIndexes
	return slices.DeleteFunc(slices.Clone(c.Past.Run.Devices), func(d record.Assigned) bool {
		isFound := slices.ContainsFunc(c.Seen.Cards, func(card record.Assigned) bool {
			if card.Device.ID == "" || d.Device.ID == "" {
				return card.Device.BusID == d.Device.BusID
			}
			return card.Device.ID == d.Device.ID
		})
		return isFound || len(named) > 0 && !slices.Contains(named, d.Index)
	})
}

// Mark returns the position in the kernel log at which a job began, nil if it is unknown.
func Mark(run record.Run, job slurm.Job) *gpu.KernelMark {
	start := run.Start
	if start == nil || start.Kernel == nil || start.Kernel.Unknown != "" || run.Closed() && !run.Sure(job) {
		return nil
	}
	return &start.Kernel.Last
}

// ComparesHealth reports whether the GPUs' condition says something only next to that at an earlier time.
func (c Case) ComparesHealth() bool { return condition.Compares(c.Seen.Health) }

// StandingAfter returns what the node is to keep of fatal errors after this hook, given what it keeps now. drained is
// set if the node is drained for the findings that are judged so.
func (c Case) StandingAfter(now record.Standing, j Judgement, drained bool) record.Standing {
	now = glanceOf(c).Absorb(now)
	now.Faults = slices.Clone(now.Faults)
	for k, found := range j.Found {
		for i, f := range now.Faults {
			isCause := found.Xid == f.Xid.Code && found.GPU == f.GPU && f.GPU != "" && j.Drains(k)
			now.Faults[i].Drained = f.Drained || drained && isCause
		}
	}
	return now
}

func glanceOf(c Case) condition.Look {
	return condition.Look{Epoch: c.Seen.Epoch, Kernel: c.Seen.Kernel, Health: c.Seen.Health,
		Cards: slices.Concat(c.Seen.Cards, notFound(c)),
		Known: c.Past.Standing, Hook: record.StandingFault{At: c.At, Hook: c.Phase, Job: c.Job.ID}}
}

// standingOf returns the fatal errors from before this job; for a health check, those that are on record.
func standingOf(c Case) []record.StandingFault {
	kept, run := c.Past.Standing, c.Past.Run
	last := &kept.Mark
	if c.Phase == slurm.Epilog {
		last = Mark(run, c.Job)
	}
	if !kept.Epoch.Same(c.Seen.Epoch) || last == nil || c.Phase == slurm.Epilog && !run.Epoch.Same(c.Seen.Epoch) {
		return nil // at an end, which of them came before the job is unknown
	}
	later := func(f record.StandingFault) bool { return c.Phase != slurm.Prolog && f.Xid.Seq > last.Seq }
	return condition.Without(glanceOf(c).Absorb(kept), later).Faults
}
