package stage

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/operation"
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
		run.Devices, run.Numbering = r.Seen.Cards, r.Seen.Origin
	}
	if run.Epoch == (gpu.Epoch{}) {
		run.Epoch = r.Seen.Epoch
	}
	d.Finish()
	d.Try(d.Store.Close(run, r.end(d)))
	r.add(d, d.Take()...)
}

// cleanWatch is the time to see that the GPU is clean afterwards: teardown takes 0.1 to 0.4 s (measured). Where
// something stays and there is no time to see that, what was found before counts.
const cleanWatch = 1500 * time.Millisecond

// cleanUp ends what a cgroup proved to be the ended job's, where the admin wants that, and looks again: what is said of
// the GPUs is what is there then.
func cleanUp(d *session.Driver, c judge.Case) judge.Case {
	if !mayCleanUp(c) {
		return c
	}
	targets := finding.Proven(judge.Compared(c.Scene(c.Seen.Side)), c.Job)
	if len(targets) == 0 {
		return c
	}
	cleaned := judge.Cleaned{First: c.Seen.Side}
	did, ended := endAll(d, c.Seen, targets)
	if cleaned.Looked = ended; ended {
		cleaned.After, c.Seen.Cards = d.Look(c, c.Seen.Cards)
		if c.Seen.Looks = d.Looks(); len(cleaned.After.Snapshot.Readings) > 0 {
			c.Seen.Side = cleaned.After
		}
	}
	cleaned.Did = append(did, d.Take()...)
	c.Cleaned = &cleaned
	return c
}

// mayCleanUp reports whether anything may be ended. Clean-up is for the one epilog of a run that slurmd itself runs,
// where an admin wants it.
func mayCleanUp(c judge.Case) bool {
	return c.Config.CleanUp.Enabled && !c.InJob && !c.Past.Again && !c.Past.Second
}

// endAll says what was done, and whether a process may have ended.
func endAll(d *session.Driver, seen judge.Seen, targets []finding.Holder) (did []finding.Finding, ended bool) {
	grace := time.Duration(d.Config.CleanUp.Grace)
	need := grace + 2*config.KillWait + cleanWatch
	if d.Left(need, d.Reserve()) < need {
		return append(did, finding.Unsure(code.Ended, "no time left to end the job's processes")), false
	}
	var processes []attrib.Process
	for _, t := range targets {
		processes = append(processes, t.Process)
	}
	results, err := d.CleanUp(processes, grace, grace+2*config.KillWait)
	if err != nil {
		return nil, true
	}
	for i, result := range results {
		did = append(did, onCard(outcome(targets[i], result), seen))
		ended = ended || result.Outcome != finding.Refused
	}
	return did, ended
}

// onCard adds the GPU that a process was listed on. One that only had a GPU open is on none.
func onCard(f finding.Finding, seen judge.Seen) finding.Finding {
	for _, c := range seen.Cards {
		r, _ := seen.Side.Snapshot.Reading(c.Device.ID)
		if slices.ContainsFunc(r.Processes, func(p gpu.Process) bool { return p.PID == f.Holder.PID }) {
			f.GPU, f.Index = c.Device.ID, &c.Index
			break
		}
	}
	return f
}

// outcome says what became of one process.
func outcome(h finding.Holder, r operation.Result) finding.Finding {
	f := finding.Finding{
		Code: code.Ended, Bytes: h.Memory, Holder: &h, Owner: h.Owner, Ended: r.Outcome,
		Expected: "a job that ends its own processes",
		Observed: fmt.Sprintf("process %d: %s", r.PID, r.Outcome.Text()),
	}
	if r.Why != "" {
		f.Observed += ": " + r.Why
	}
	return f
}
