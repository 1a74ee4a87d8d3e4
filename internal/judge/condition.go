package judge

import (
	"cmp"
	"slices"

	"bookend/internal/attribution"
	"bookend/internal/condition"
	"bookend/internal/diagnosis"
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

// JobOutput is what the job's outputs say about memory.
type JobOutput struct {
	Messages []record.Message
	Outputs  []record.Output // Message.File is an index into these
	Unknown  string          // why they were not read
	Part     string          // which part was not read
	// Cancelled is set if Slurm's own line says that the job was cancelled or met its time limit.
	Cancelled    bool
	AddressSpace gpu.Figure // the limit that a task hook of the job recorded; the user could forge it
}

// symptoms returns the input of a diagnosis, as far as this hook saw it. Why adds the rest.
func (c Case) symptoms(j Judgement) diagnosis.Input {
	h := c.Output
	in := diagnosis.Input{Job: c.Job, Cards: c.Seen.Cards, Start: c.Past.Before, End: &c.Seen.Side, Findings: j.Found,
		Probes: probesOf(c.Tests), Health: c.Seen.Health, Kernel: errorsOf(c),
		AddressSpace: h.AddressSpace, Disputed: condition.Disputed,
		Messages: h.Messages, MessagesUnknown: h.Unknown, MessagesPart: h.Part, Cancelled: h.Cancelled}
	if c.Seen.Brief {
		in.HealthUnknown = "ECC counters, after a good end"
	}
	if start := c.Past.Run.Start; start != nil {
		in.StartFindings, in.WallStart = start.Findings, start.Wall
		if len(in.Probes) == 0 {
			in.Probes = start.Probes
		}
	}
	return in
}

// AsksWhy reports whether there is anything to diagnose: then the node's other records are needed.
func (c Case) AsksWhy(j Judgement) bool { return diagnosis.Why(c.symptoms(j)).Reason != "" }

// ComparesHealth reports whether the GPUs' condition says something only next to that at an earlier time.
func (c Case) ComparesHealth() bool { return condition.Compares(c.Seen.Health) }

// Why diagnoses why the job ran out of memory, with Slurm's files and the node's other records.
func (c Case) Why(j Judgement) *record.Diagnosis {
	in := c.symptoms(j)
	run := c.Past.Run
	in.Shared, in.SharedUnknown = c.Sharing.Reasons()
	diagnosis.Witness(&in, c.Past.Recording, run, cmp.Or(run.Start, &record.End{}).At, c.At)
	return new(diagnosis.Why(in))
}

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

// Occupied returns why a health check must take the node for one with a job: there is one, or may be.
func Occupied(c Case) string {
	if c.Node == nil {
		return "the records of the node's jobs were not read"
	}
	for _, n := range append([]Node{*c.Node}, c.Node.SameHost...) {
		if slices.ContainsFunc(n.Runs, func(r record.Run) bool { return r.Running(n.Runs) }) {
			return "a job is on the node: its end decides"
		}
	}
	for _, card := range c.Seen.Cards {
		if why := c.Node.Doubt(0, card.Device.ID); why != "" {
			return why
		}
	}
	return ""
}
