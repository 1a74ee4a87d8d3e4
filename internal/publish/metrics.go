package publish

import (
	"bookend/internal/catalog"
	"bookend/internal/judge"
	"bookend/internal/metrics"
	"bookend/internal/node"
	"bookend/internal/slurm"
)

func counted(a *node.Access, o Account) metrics.JobRun {
	j := o.Judgement
	run := metrics.JobRun{
		Check: o.Gauges, Version: a.Env.Version, Hook: hooks[a.Phase], Job: uint32(a.Job.ID), At: a.Env.Clock.Wall(),
		Action: j.Action, Held: j.Held != "", Again: o.Again, Mode: string(a.Config.Mode),
		Took: a.Env.Clock.Boot() - a.Deadline.Start,
	}
	for i, f := range j.Found {
		entry, _ := catalog.Lookup(f.Code)
		// Own is about Bookend or the driver as a whole. What policy ignores or only notes is normal at some sites.
		counted := metrics.Finding{Code: f.Code}
		counted.Own = (entry.Scope == catalog.Own || entry.Scope == catalog.Driver) && j.Tells(i)
		if counted.Own {
			counted.Detail = detail(f)
		}
		run.Findings = append(run.Findings, counted)
	}
	for _, c := range o.Case.Seen.Cards {
		if curve := o.Case.Seen.Side.Curves[c.Device.ID]; curve.State.AtRest() {
			run.Settled = append(run.Settled, curve.Settled)
		}
	}
	saw := a.Phase == slurm.Epilog && len(o.Case.Seen.Cards) > 0
	if saw && a.Config.Record.Every > 0 && o.Case.Past.Turn != judge.Repeated {
		run.Recorded = recorded(a, o)
	}
	run.OutOfMemory = o.Why.OutOfMemory()
	return run
}

func recorded(a *node.Access, o Account) *metrics.Recorded {
	of := o.Case.Past.Recording
	m := metrics.Recorded{Partition: a.Job.Partition, Seen: metrics.Nothing}
	if of == nil || o.Case.Past.Run.Start == nil {
		return &m
	}
	m.Seen = metrics.Part
	if !of.Measures(o.Case.Past.Run.Start.At, o.Case.At) {
		return &m // a peak, or a use, may lie in an interval without samples
	}
	m.Seen = metrics.Whole
	for _, g := range of.GPUs {
		reading, _ := o.Case.Seen.Side.Snapshot.Reading(g.ID)
		switch total := reading.Memory.Total.Bytes; {
		case g.Unused():
			m.Unused++
		case g.Own.Bytes > 0 && total > 0:
			m.Peaks = append(m.Peaks, float64(g.Own.Bytes)/float64(total))
		}
		if g.Busy.Samples > 0 {
			m.Busy = append(m.Busy, float64(g.Busy.Sum)/float64(100*g.Busy.Samples))
		}
	}
	return &m
}
