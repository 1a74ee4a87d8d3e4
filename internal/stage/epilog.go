package stage

import (
	"slices"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/report"
	"bookend/internal/slurm"
)

// Epilog is bookend-epilog: Slurm's Epilog and TaskEpilog, told apart by SLURM_SCRIPT_CONTEXT.
func Epilog(env Env) int {
	if code, done := preamble(env, "bookend-epilog"); done {
		return code
	}
	if slurm.Context(env.Getenv("SLURM_SCRIPT_CONTEXT")) == slurm.TaskEpilog {
		return taskHook(env, taskEpilog)
	}
	return rootHook(env, slurm.Epilog, epilog)
}

// epilog takes stock after the job, compares with its start, and tells the user in the job's own log.
func epilog(h *hook) {
	run, which := h.recall()
	if run.Start != nil {
		h.began = run.Start.Wall
	}
	if h.store != nil {
		store, run := h.store, run
		run.Job = h.job
		put := func(e ledger.End) { _ = store.Close(run, e) }
		h.unfinished.Store(&put)
	}
	h.recalled = run
	heard, listened := h.listen(h.mark(run)), h.startTail()
	h.survey(func() { h.before = h.startOf(run) })
	heard()
	h.compareAtEnd(run)
	h.judgeHealth(run)
	h.decide() // what was found so far stands, whatever becomes of waiting and of a test
	h.outlast()
	h.probe(run)
	h.decide()
	h.said = listened()
	h.why = h.diagnose(run)
	h.text = report.End(h.report())
	h.close(run)
	if which != ledger.ClosedRun && !h.again && !h.second {
		h.append(run)
	}
}

// close puts the job's end on record.
func (h *hook) close(run ledger.Run) {
	if h.store == nil {
		return
	}
	if drop := h.readDrop(); drop != nil {
		run.Display = ledger.Display{Array: drop.Array, HetID: drop.HetID}
	}
	run.Job = h.job
	if len(h.devices) > 0 { // an end that could not look keeps what the start knew
		run.Devices, run.Numbering = h.devices, h.origin
	}
	if run.Epoch == (gpu.Epoch{}) {
		run.Epoch = h.epoch
	}
	h.unfinished.Store(nil)
	h.try(h.store.Close(run, h.end()))
	h.decide() // the last word: what follows is optional, and part of it is in the user's hands
}

// recall finds the record of the job's start. Without one nothing is certain, nor where this end is on record already.
func (h *hook) recall() (ledger.Run, ledger.Which) {
	if h.store == nil {
		h.add(finding.Finding{Code: code.NoRecord, Unknown: "no state"})
		return ledger.Run{}, ledger.NoRun
	}
	if !h.claim() {
		h.add(finding.Finding{Code: code.Again, Observed: "another epilog of this job is at work", Expected: "one epilog a run"})
	}
	run, which, err := h.store.Find(h.job)
	h.try(err)
	switch which {
	case ledger.NoRun:
		h.add(finding.Finding{Code: code.NoRecord, Observed: "no record of this job's start on this node", Expected: "a prolog before each epilog"})
	case ledger.ClosedRun:
		h.again = true
		h.add(finding.Finding{Code: code.Again, Observed: "this job's epilog has run before", Expected: "one epilog a run"})
	}
	return run, which
}

// startOf is the start's view, void when the driver was reloaded or the node rebooted since, and at an end that is on
// record already: without a start time nobody can tell a second end from that of another run.
func (h *hook) startOf(run ledger.Run) *finding.Side {
	if run.Closed() && !run.Sure(h.job) || run.Start == nil || run.Epoch == (gpu.Epoch{}) { // a prolog that got nowhere: its record says why
		return nil
	}
	if run.Epoch.Changed(h.epoch) {
		h.add(finding.Finding{Code: code.NoRecord, Observed: "the driver was reloaded, or the node booted, since the job's start", Expected: "one epoch for a job"})
		return nil
	}
	if !run.Epoch.Same(h.epoch) {
		h.add(finding.Finding{Code: code.NoRecord, Unknown: "whether the driver stayed loaded since the job's start: it told nothing of itself at one end"})
		return nil
	}
	return side(*run.Start)
}

// compareAtEnd compares, ends what may be ended, and then looks and compares again: what is said of the GPUs is what is there
// now. Nothing is lost on the way: what the second look met is added, and it takes back only what it proves gone.
func (h *hook) compareAtEnd(run ledger.Run) {
	known := len(h.found)
	first := compared(h.scene(run))
	h.found = append(h.found, first...)
	did, ended := h.cleanUp(first)
	h.found = append(h.found, did...)
	if len(ended) == 0 {
		return
	}
	seen := h.now
	h.now = h.look()
	scene := h.scene(run)
	again := scene.Again(first, compared(scene), ended)
	h.found = slices.Concat(h.found[:known], h.found[known+len(first):], again)
	if len(h.now.Snapshot.Readings) == 0 {
		h.now = seen
	}
}
