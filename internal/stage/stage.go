// Package stage knows the order of things: what each hook does, one step after another.
//
//	Recall ─► Past ─┐
//	Observe ─► Seen ┴─► Judge ─► Judgement ─► Probe ─► Judge again ─► record ─► Publish
//
// A step takes values and returns values. Together they make one record, and every output is made of that record: the
// node's state, the job's log, the drain reason, the log line, the metrics and the exit code. What a step says stays
// said; the one thing that steps share and change is the checkpoint of package session, which SIGTERM and the watchdog
// publish.
package stage

import (
	"fmt"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/operation"
	"bookend/internal/report"
	"bookend/internal/routine"
	"bookend/internal/session"
	"bookend/internal/slurm"
)

// rootHook frames a root hook: one deadline, one verdict whatever happens. Worth says that there is something to say.
func rootHook(env Env, phase slurm.Context, attempt func(*session.Driver, *record) (worth bool)) (exit int) {
	d, r := session.New(env, phase), &record{Case: judge.Case{Phase: phase}}
	operation.Confine(env)
	defer routine.Recover(func(p *routine.Panic) {
		r.failed(d, p)
		exit = d.Reached()
	})
	defer d.Guard(env.Exit, func(p *routine.Panic) { d.Panicked(p) }, func(why string) { leave(d, why) })()
	if r.attempt(d, attempt) {
		r.giveReason(d)
		r.publish(d)
	}
	return d.Reached()
}

// attempt does a hook's work. A defect ends it there; what was found by then still counts and is still said.
func (r *record) attempt(d *session.Driver, attempt func(*session.Driver, *record) bool) (worth bool) {
	defer routine.Recover(func(p *routine.Panic) {
		r.failed(d, p)
		d.GiveUp(r.end(d))
		worth = true
	})
	return attempt(d, r)
}

// jobHook is a root hook of a job: nothing to do without GPUs.
func jobHook(env Env, phase slurm.Context, steps func(*session.Driver, *record)) int {
	if !slurm.HasGPUs(env.Getenv) {
		return 0
	}
	return rootHook(env, phase, func(d *session.Driver, r *record) bool {
		problem, found := d.Configure()
		if problem != "" {
			fmt.Fprintf(d.Stderr, "bookend: %s\n", problem)
		}
		r.Config, r.Faults = d.Config, found
		found, ok := d.IdentifyJob()
		r.Job, r.InJob, r.Faults = d.Job, d.InJob, append(r.Faults, found...)
		if !ok {
			r.judge(d)
			return true
		}
		r.Faults = append(r.Faults, d.OpenState()...)
		steps(d, r)
		return true
	})
}

// judge makes the judgement of what is known so far, which the watchdog and SIGTERM end with.
func (r *record) judge(d *session.Driver) {
	r.Judgement = judge.Judge(r.Case)
	if r.Node == nil && r.AsksRepeat(r.Judgement) {
		r.Node = readNode(d)
		r.Judgement = judge.Judge(r.Case)
	}
	d.Reach(r.Exit)
}

// add adds what went wrong since the last judgement, which may still change the verdict.
func (r *record) add(d *session.Driver, more ...finding.Finding) {
	r.Judgement = r.Judgement.With(r.Case, more...)
	d.Reach(r.Exit)
}

// late adds what went wrong after the last word.
func (r *record) late(more ...finding.Finding) { r.Judgement = r.Judgement.Late(more...) }

// failed adds a panic to what was found by then, judged or not.
func (r *record) failed(d *session.Driver, p *routine.Panic) {
	if len(r.Found) == 0 {
		r.add(d, r.Faults...)
	}
	r.add(d, append(d.Take(), d.Panicked(p))...)
}

// leave is the last word of a hook that is stopped: for its job's record, and for slurmd's log. It runs beside
// the steps, so it touches nothing that they change.
func leave(h *session.Driver, why string) {
	if h.Phase == slurm.HealthCheck {
		h.Reach(code.Exit(code.Deadline))
	}
	f := finding.Saw(code.Deadline, "stopped by "+why, "a hook that ends in time")
	now := h.Clock.Boot()
	h.GiveUp(ledger.End{
		At: now, Wall: h.Clock.Wall(), Findings: []finding.Finding{f},
		Verdict:   finding.Verdict{Action: config.Warn, Exit: h.Reached(), Code: f.Code},
		SlurmConf: slurmConf(h),
	})
	fmt.Fprintf(h.Stderr, "bookend: %s: %s after %v\n", f.Code, f.Observed, (now - h.Start).Round(time.Millisecond))
}

// Env is the outside world as a main hands it over.
type Env = operation.Env

// preamble is what every hook program does first: it serves as its own child, or says its version.
func preamble(env Env, name string) (exit int, done bool) {
	if len(env.Args) < 2 {
		return 0, false
	}
	if exit, done := operation.ServeChild(env, nil); done {
		return exit, done
	}
	if env.Args[1] == "--version" {
		fmt.Fprintf(env.Stdout, "%s %s\n", name, env.Version)
		return 0, true
	}
	fmt.Fprintf(env.Stderr, "%s: Slurm runs this program, without arguments; see bookend help\n", name)
	return 0, true
}

// record is the one product of a hook. Each step adds its part; a judgement is made again when there is more to judge.
type record struct {
	judge.Case
	judge.Judgement
	heard  judge.Heard
	why    *diagnosis.Diagnosis // nil where nobody wants to know
	text   []report.Safe        // for the job's owner
	jobLog string               // what became of the end report, for the log
	drain  *drain.Decision      // about the node, where there is news
	gauges *metrics.Check       // of a health check; nil for a job's hooks
}

// end is the record as one end of the job's run.
func (r *record) end(d *session.Driver) ledger.End {
	e := r.Case.End(r.Judgement)
	e.Wall, e.Report, e.Diagnosis = d.Clock.Wall(), joined(r.text), r.why
	e.Messages, e.Outputs = r.heard.Messages, r.heard.Outputs
	e.Health = ledger.Accounts(r.Seen.Health, r.began())
	if e.At == 0 {
		e.At = d.Clock.Boot()
	}
	e.SlurmConf = slurmConf(d)
	return e
}

// began is the start's wall time, zero where there is no record of it.
func (r *record) began() time.Time {
	if r.Past.Run.Start == nil {
		return time.Time{}
	}
	return r.Past.Run.Start.Wall
}

// slurmConf is what a hook that asks for a drain leaves for the health check, which looks after it.
func slurmConf(h *session.Driver) string {
	const most = 4 << 10 // PATH_MAX
	conf := h.Getenv("SLURM_CONF")
	if h.Reached() == 0 || len(conf) >= most {
		return ""
	}
	return conf
}

// report is the record as its job's owner is to read it.
func (r *record) report() report.Scene {
	return report.Scene{
		Node: r.Job.Node, Job: r.Job, Cards: r.Subjects(r.Judgement), Now: r.Seen.Side, Before: r.Past.Before,
		Findings: r.Found, Verdict: r.Verdict, Why: r.why,
		Show: r.Config.JobLog.Show, Privacy: r.Config.JobLog.Privacy,
		Help: strings.Trim(r.Config.HelpURL+", "+r.Config.Contact, ", "),
	}
}

func joined(lines []report.Safe) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(string(l) + "\n")
	}
	return b.String()
}
