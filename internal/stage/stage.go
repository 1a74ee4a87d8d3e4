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
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/operation"
	"bookend/internal/routine"
	"bookend/internal/session"
	"bookend/internal/slurm"
)

// rootHook frames a root hook: one deadline, one verdict whatever happens. Worth says that there is something to say.
func rootHook(env Env, phase slurm.Context, attempt func(*session.Driver, *record) (worth bool)) (exit int) {
	h := session.New(env, phase)
	operation.Confine(env)
	d, r := h.Driver(), &record{Case: judge.Case{Phase: phase}}
	defer routine.Recover(func(p *routine.Panic) {
		r.failed(d, p)
		exit = h.Reached()
	})
	defer h.Guard(env.Exit, func(p *routine.Panic) { h.Panicked(p) }, func(why string) { leave(h, why) })()
	if r.attempt(d, attempt) {
		r.giveReason(d)
		r.publish(d)
	}
	return h.Reached()
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
func leave(h *session.Hook, why string) {
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
