package hook

import (
	"slices"

	"bookend/internal/judge"
	"bookend/internal/maintenance"
	"bookend/internal/node"
	"bookend/internal/publish"
	"bookend/internal/record"
	"bookend/internal/recorder"
	"bookend/internal/report"
	"bookend/internal/state"
)

// prolog checks the GPUs before the job, and records what its end is compared with.
func prolog(h *hook, c judge.Case) publish.Account {
	a := h.a
	h.stopped.setUnfinished(begin(a.Store, record.Run{Job: c.Job}))
	memory := sharedMemory(a).Read(a.Env.Clock.Wall(), nil)
	c, seen := node.Observe(a, withStanding(a, c))
	h.stopped.setUnfinished(begin(a.Store, h.know(c).Self())) // its exit counts in this boot, which is known by now
	c = withShortage(a, learn(a, node.Consult(a, c)))
	c, j := h.judge(c) // counts even if the hook is stopped in a wait or a test
	c = maintenance.TestAtStart(a, awaitFirst(a, c), j, seen.Tests)
	c, j = h.judge(c)
	shown := scene(c, j, nil)
	text := report.Start(shown)
	news := state.Report{Clean: shown.Clean(), Text: text}
	news.Avoid, news.Why = report.Vet(shown)
	start, run := h.end(c, j, text, nil), c.Self() // on record for the job's end, and for its task hooks
	run.Start, start.SharedMemory = &start, memory(listTime).Mark()
	news.GPU, news.Memory = smallest(a, run)
	h.stopped.finish()
	faults := slices.Concat(node.Fault(a.Store.Begin(run)),
		node.Fault(a.Store.Users.PutReport(a.Job, news)),
		node.Fault(a.Store.Users.MakeDrop(a.Job)), keepStanding(a, c, j, j.Status() != 0))
	if len(run.Devices) > 0 {
		recorder.Start(a)
	}
	return h.keep(c, j.With(c, faults...))
}

func begin(store *state.Store, run record.Run) func(record.End) {
	return func(start record.End) {
		run.Start = &start
		_ = store.Begin(run)
	}
}

// learn records the baselines that a start shows.
func learn(a *node.Access, c judge.Case) judge.Case {
	for _, b := range judge.Learn(c) {
		c.Faults = slices.Concat(c.Faults, node.Fault(state.Baselines.Put(a.Store, b)))
	}
	return c
}
