package stage

import (
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/report"
	"bookend/internal/session"
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
	return jobHook(env, slurm.Prolog, prolog)
}

// prolog takes stock of the job's GPUs before the job starts.
func prolog(d *session.Driver, r *record) {
	second, sole := begin(d)
	r.Past.Second = second
	tested := earlierTests(d)
	heard := d.Listen(since(tested, d))
	r.Past, r.Seen = observe(d, r.Case)
	r.Seen.Kernel = heard()
	r.Node, r.Sharing = consult(d, r.Case)
	for _, b := range judge.Learn(r.Case) {
		if d.Store != nil {
			d.Try(d.Store.PutBaseline(b))
		}
	}
	r.Faults = append(r.Faults, d.Take()...)
	r.judge(d) // what was found so far stands, whatever becomes of waiting and of a test
	r.Past = outlast(d, r.Past)
	r.Case = withTests(d, r.Case, r.Judgement, tested, sole)
	r.judge(d)
	r.text = report.Start(r.report())
	if d.Store != nil {
		r.open(d)
	}
}

// begin claims the start, and sees to it that a word of it is on record whatever happens.
func begin(d *session.Driver) (second, sole bool) {
	if d.Store == nil {
		return false, false
	}
	second, sole = claim(d)
	d.Try(d.Store.RemoveReport(d.Job)) // an earlier run's must not pass for this one's, whatever happens here
	store, job := d.Store, d.Job
	d.Unfinished(func(e ledger.End) { _ = store.Begin(ledger.Run{Job: job, Start: &e}) })
	return second, sole
}

// open puts the job's start on record, for its end and for its task hooks.
func (r *record) open(d *session.Driver) {
	start, run, scene := r.end(d), r.Self(), r.report()
	run.Start = &start
	d.Finish()
	d.Try(d.Store.Begin(run))
	d.Try(d.Store.PutReport(d.Job, state.StartReport{Clean: scene.Clean(), Text: start.Report}))
	d.Try(d.Store.MakeDrop(d.Job))
	r.add(d, d.Take()...)
}
