package judge

import (
	"slices"

	"bookend/internal/condition"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

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

// glanceOf is what this hook has seen of fatal errors.
func glanceOf(c Case) condition.Look {
	return condition.Look{
		Epoch: c.Seen.Epoch, Kernel: c.Seen.Kernel, Health: c.Seen.Health,
		Cards: slices.Concat(c.Seen.Cards, notFound(c)),
		Known: c.Past.Standing, Hook: record.StandingFault{At: c.At, Hook: c.Phase, Job: c.Job.ID},
	}
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
