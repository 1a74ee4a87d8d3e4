package judge

import (
	"cmp"
	"slices"

	"bookend/internal/condition"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// StandingAfter returns what the node is to keep of fatal errors after this hook, given what it keeps now. drained is
// set if the node is drained for the findings that are judged so.
func (c Case) StandingAfter(now record.Standing, j Judgement, drained bool) record.Standing {
	look := glanceOf(c)
	now = look.Absorb(now)
	now.Faults = slices.Clone(now.Faults)
	for i := range now.Faults {
		f := &now.Faults[i]
		f.GPU = cmp.Or(f.GPU, look.OnBus(f.Xid.BusID))
		causes := func(k int) bool { return j.Found[k].Xid == f.Xid.Code && j.Found[k].GPU == f.GPU && j.Drains(k) }
		for k := range j.Found {
			f.Drained = f.Drained || drained && f.GPU != "" && causes(k)
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

// standingOf returns the fatal errors that were there before this job, or, for a health check, that an earlier hook or
// check has put on record.
func standingOf(c Case) []record.StandingFault {
	kept := c.Past.Standing
	if !kept.Epoch.Same(c.Seen.Epoch) {
		return nil
	}
	now := glanceOf(c).Absorb(kept)
	switch mark := Mark(c.Past.Run, c.Job); {
	case c.Phase == slurm.Prolog:
		return now.Faults
	case c.Phase == slurm.HealthCheck:
		return condition.Without(now, func(f record.StandingFault) bool { return f.Xid.Seq > kept.Mark.Seq }).Faults
	case mark == nil || !c.Past.Run.Epoch.Same(c.Seen.Epoch):
		return nil // which of them came before the job is unknown
	default:
		return condition.Without(now, func(f record.StandingFault) bool { return f.Xid.Seq > mark.Seq }).Faults
	}
}

// lostBuses returns the buses of the GPUs that the driver has lost, or refuses to use, in every look of a watch.
func lostBuses(c Case) (buses []gpu.BusID) {
	for _, card := range c.Seen.Cards {
		isLost := func(f gpu.Fault) bool {
			return (f.Code == gpu.FaultLost || f.Code == gpu.FaultReset) && f.Concerns(card.Device)
		}
		if c.Seen.Side.Curves[card.Device.ID].Steady && slices.ContainsFunc(c.Seen.Side.Snapshot.Faults, isLost) {
			buses = append(buses, card.Device.BusID)
		}
	}
	return buses
}

// occupied returns why a health check must not drain the node: a job is on it, or may be.
func occupied(c Case) string {
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
