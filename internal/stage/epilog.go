package stage

import (
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/report"
	"bookend/internal/session"
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
func epilog(d *session.Driver, r *record) {
	sole := r.recall(d)
	out := outputOf(d)
	heard, listened := d.Listen(judge.Mark(r.Past.Run, d.Job)), out.listen(d, r.Past.Again)
	r.observe(d)
	r.Seen.Kernel = heard()
	r.Faults = append(r.Faults, d.Take()...)
	r.consult(d)
	r.cleanUp(d)
	r.judge(d) // what was found so far stands, whatever becomes of waiting and of a test
	r.Past = outlast(d, r.Past)
	r.test(d, nil, sole)
	r.judge(d)
	r.heard = listened()
	r.diagnose(d)
	r.add(d, d.Take()...)
	r.text = report.End(r.report(d))
	r.close(d, out.drop)
	if !r.Past.Again && !r.Past.Second {
		r.append(d, out)
	}
}

// recall finds the record of the job's start. Without one nothing is certain, nor where this end is on record already.
func (r *record) recall(d *session.Driver) (sole bool) {
	if d.Store == nil {
		r.Faults = append(r.Faults, finding.Finding{Code: code.NoRecord, Unknown: "no state"})
		return false
	}
	if r.Past.Second, sole = claim(d); r.Past.Second {
		d.Add(finding.Finding{Code: code.Again, Observed: "another epilog of this job is at work", Expected: "one epilog a run"})
	}
	run, which, err := d.Store.Find(d.Job)
	d.Try(err)
	switch which {
	case ledger.NoRun:
		d.Add(finding.Finding{
			Code: code.NoRecord, Observed: "no record of this job's start on this node", Expected: "a prolog before each epilog",
		})
	case ledger.ClosedRun:
		r.Past.Again = true
		d.Add(finding.Finding{Code: code.Again, Observed: "this job's epilog has run before", Expected: "one epilog a run"})
	}
	r.Past.Run = run
	store, self := d.Store, r.Self()
	d.Unfinished(func(e ledger.End) { _ = store.Close(self, e) })
	r.Faults = append(r.Faults, d.Take()...)
	return sole
}

// close puts the job's end on record. It is the last word: what follows is optional, and part of it is in the user's hands.
func (r *record) close(d *session.Driver, drop *joblog.Drop) {
	if d.Store == nil {
		return
	}
	run := r.Self()
	if drop != nil {
		run.Display = ledger.Display{Array: drop.Array, HetID: drop.HetID}
	}
	if len(r.Seen.Cards) > 0 { // an end that could not look keeps what the start knew
		run.Devices, run.Numbering = r.Seen.Assigned(), r.Seen.Origin
	}
	if run.Epoch == (gpu.Epoch{}) {
		run.Epoch = r.Seen.Epoch
	}
	d.Finish()
	d.Try(d.Store.Close(run, r.end(d)))
	r.add(d, d.Take()...)
}
