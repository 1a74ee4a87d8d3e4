package hook

import (
	"cmp"
	"slices"

	"bookend/internal/catalog"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/maintenance"
	"bookend/internal/node"
	"bookend/internal/publish"
	"bookend/internal/record"
	"bookend/internal/report"
	"bookend/internal/state"
)

// epilog checks the GPUs after the job, compares them with its start, and reports in the job's own output.
func epilog(h *hook, c judge.Case) publish.Account {
	a := h.a
	c = h.know(recall(a, c))
	h.stopped.setUnfinished(closing(a.Store, c.Self()))
	start := c.Past.Run.Start
	memory, survive, who := readMemory(a, start), seekSurvivors(a, start), account(a)
	c, seen := node.Observe(a, c)
	h.stopped.setUnfinished(closing(a.Store, completed(h.know(c))))
	c = cleanUp(a, node.Consult(a, c))
	c, j := h.judge(c) // counts even if the hook is stopped in a wait or a test
	c = leftRunning(a, leftInMemory(a, awaitFirst(a, c), memory), j, survive)
	c, hangs := seen.Output.Await(c)
	c = maintenance.TestAtEnd(a, h.know(c), j) // a message in the output may ask for a test
	c, j = h.judge(c)
	why, faults := diagnose(a, c, j)
	o := h.keep(c, j.With(c, faults...))
	text := report.End(scene(c, o.Judgement, why))
	end := h.end(c, o.Judgement, text, why)
	h.stopped.finish()
	faults = node.Fault(closeRun(a.Store, c, seen.Output.Place, end))
	o = h.keep(c, o.Judgement.With(c, slices.Concat(faults, keepStanding(a, c, j, j.Status() != 0))...))
	o.Why = why
	if c.Past.Turn.Leads() {
		o.JobLog, o.Spool, faults = tell(a, c, seen.Output.Place, hangs, end, who)
		o.Judgement = o.Judgement.Late(faults...)
	}
	return o
}

// recall finds the record of the job's start, the errors of GPUs on record, and which turn this end has. Without a
// record, or if this end is already recorded, nothing is certain.
func recall(a *node.Access, c judge.Case) judge.Case {
	const once = "one epilog a run"
	c.Past.Turn = node.Claim(a, 0)
	if c.Past.Turn == judge.Concurrent {
		c.Faults = append(c.Faults, record.Saw(catalog.Again, "another epilog of this job is at work", once))
	}
	run, err := a.Store.Find(a.Job)
	c.Past.Run, c.Faults = run, append(c.Faults, node.Fault(err)...)
	switch {
	case run.Key == "":
		const none = "no record of this job's start on this node"
		c.Faults = append(c.Faults, record.Saw(catalog.NoRecord, none, "a prolog before each epilog"))
	case run.Epilog() != nil:
		c.Past.Turn = judge.Repeated
		c.Faults = append(c.Faults, record.Saw(catalog.Again, "this job's epilog has run before", once))
	}
	return withStanding(a, c)
}

func closing(store *state.Store, run record.Run) func(record.End) {
	return func(e record.End) { _ = store.Close(run, e) }
}

// completed returns the run with what its end has found out about it.
func completed(c judge.Case) record.Run {
	run := c.Self()
	if len(c.Seen.Cards) > 0 { // an end without readings keeps the GPUs known from the start
		run.Devices, run.Numbering = run.DevicesWith(c.Seen.Cards), c.Seen.Origin
	}
	run.Epoch = cmp.Or(run.Epoch, c.Seen.Epoch)
	return run
}

// diagnose determines why the job ran out of memory. If there is something to report, it takes the time to read Slurm's
// files and the node's other records.
func diagnose(a *node.Access, c judge.Case, j judge.Judgement) (*record.Diagnosis, []record.Finding) {
	if !c.Past.Turn.Leads() || !c.AsksWhy(j) {
		return nil, nil
	}
	c, faults := node.Complete(a, c)
	return c.Why(j), faults
}

// named returns the run with the ids of which only task hooks know, if they left them.
func named(run record.Run, p joblog.Place) record.Run {
	if p.Left {
		run.Display = record.Display{Array: p.Drop.Array, HetID: p.Drop.HetID}
	}
	return run
}

// closeRun records the job's end. What follows is optional, and partly under the user's control.
func closeRun(store *state.Store, c judge.Case, p joblog.Place, end record.End) error {
	run := named(completed(c), p)
	err := store.Close(run, end)
	if err == nil && (c.Past.Run.Start == nil || c.Past.Turn == judge.Repeated) {
		err = store.Settle(run.Job.ID) // its start may be in a record that was set aside
	}
	return err
}
