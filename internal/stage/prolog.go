package stage

import (
	"bookend/internal/ledger"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Prolog is bookend-prolog: Slurm's Prolog and TaskProlog, told apart by SLURM_SCRIPT_CONTEXT.
func Prolog(env Env) int {
	if code, done := preamble(env, "bookend-prolog"); done {
		return code
	}
	if slurm.Context(env.Getenv("SLURM_SCRIPT_CONTEXT")) == slurm.TaskProlog {
		return taskHook(env, taskProlog)
	}
	return rootHook(env, slurm.Prolog, prolog)
}

// prolog takes stock of the job's GPUs before the job starts.
func prolog(h *hook) {
	if h.store != nil {
		h.claim()
		h.try(h.store.RemoveReport(h.job)) // an earlier run's must not pass for this one's, whatever happens here
		store, job := h.store, h.job
		put := func(e ledger.End) { _ = store.Begin(ledger.Run{Job: job, Start: &e}) }
		h.unfinished.Store(&put)
	}
	heard := h.listen(h.testedSince())
	h.survey(func() {})
	heard()
	run := ledger.Run{Job: h.job, Epoch: h.epoch, Devices: h.devices, Numbering: h.origin}
	scene := h.scene(run)
	h.found = append(h.found, compared(scene)...)
	h.learn(scene)
	h.decide() // what was found so far stands, whatever becomes of waiting and of a test
	h.outlast()
	h.probe(run)
	h.decide()
	h.text = report.Start(h.report())
	if h.store == nil {
		return
	}
	start := h.end()
	run.Start = &start
	h.unfinished.Store(nil)
	h.try(h.store.Begin(run))
	h.try(h.store.PutReport(h.job, state.StartReport{Clean: h.report().Clean(), Text: start.Report}))
	h.try(h.store.MakeDrop(h.job))
	h.decide()
}
