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
	return jobHook(env, slurm.Epilog, epilog)
}

// epilog takes stock after the job, compares with its start, and tells the user in the job's own log.
func epilog(d *session.Driver, r *record) {
	past, sole := recall(d)
	r.Past, r.Faults = past, append(r.Faults, d.Take()...)
	out := outputOf(d)
	heard, listened := d.Listen(judge.Mark(r.Past.Run, d.Job)), out.listen(d, r.Past.Again)
	r.Past, r.Seen = observe(d, r.Case)
	r.Seen.Kernel = heard()
	r.Node, r.Sharing = consult(d, r.Case)
	r.Faults = append(r.Faults, d.Take()...)
	r.Case = cleanUp(d, r.Case)
	r.judge(d) // what was found so far stands, whatever becomes of waiting and of a test
	r.Past = outlast(d, r.Past)
	r.Case = withTests(d, r.Case, r.Judgement, nil, sole)
	r.judge(d)
	r.heard = listened()
	r.why = diagnose(d, r.Case, r.Judgement, r.heard)
	r.add(d, d.Take()...)
	r.text = report.End(r.report())
	r.close(d, out.drop)
	if !r.Past.Again && !r.Past.Second {
		r.append(d, out)
	}
}

// recall finds the record of the job's start. Without one nothing is certain, nor where this end is on record already.
func recall(d *session.Driver) (past judge.Past, sole bool) {
	if d.Store == nil {
		d.Add(finding.Unsure(code.NoRecord, "no state"))
		return past, false
	}
	const once = "one epilog a run"
	if past.Second, sole = claim(d); past.Second {
		d.Add(finding.Saw(code.Again, "another epilog of this job is at work", once))
	}
	run, which, err := d.Store.Find(d.Job)
	d.Try(err)
	switch which {
	case ledger.NoRun:
		d.Add(finding.Saw(code.NoRecord, "no record of this job's start on this node", "a prolog before each epilog"))
	case ledger.ClosedRun:
		past.Again = true
		d.Add(finding.Saw(code.Again, "this job's epilog has run before", once))
	}
	past.Run = run
	store := d.Store
	run.Job = d.Job
	d.Unfinished(func(e ledger.End) { _ = store.Close(run, e) })
	return past, sole
}

// close puts the job's end on record. It is the last word: what follows is optional, and part of it is in the user's
// hands.
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
