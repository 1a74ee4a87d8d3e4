// Package stage runs the hooks and sets the order of their steps.
//
//	Recall ─► Past ─┐
//	Observe ─► Seen ┴─► Judge ─► Judgement ─► Probe ─► Judge again ─► record ─► Publish
//
// Each step adds its results to one record, and every output is made from that record: the node's state, the job's log,
// the drain reason, the log line, the metrics and the exit code. No step takes back what another added. All that
// SIGTERM and the watchdog share with the steps is the Checkpoint.
package stage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/judge"
	"bookend/internal/publish"
	"bookend/internal/record"
	"bookend/internal/report"
	"bookend/internal/safetext"
	"bookend/internal/slurm"
)

// Env is the outside world, as main passes it in.
type Env = child.Env

// Prolog runs bookend-prolog: Slurm's Prolog or TaskProlog, as SLURM_SCRIPT_CONTEXT says.
func Prolog(env Env) int {
	return run(env, slurm.Prolog, slurm.TaskProlog, taskProlog, ofJob((*work).prolog))
}

// Epilog runs bookend-epilog: Slurm's Epilog or TaskEpilog, as SLURM_SCRIPT_CONTEXT says.
func Epilog(env Env) int {
	return run(env, slurm.Epilog, slurm.TaskEpilog, taskEpilog, ofJob((*work).epilog))
}

// HealthCheck runs bookend-healthcheck, a root hook without a job. It exits 0 if it could check the node at all.
func HealthCheck(env Env) int { return run(env, slurm.HealthCheck, "", nil, (*work).check) }

// run does what the program was started for: recorder, disk work, its own child, version, task hook or root hook.
func run(env Env, phase, task slurm.Context, ofTask func(*task), steps func(*work) (worth bool)) int {
	switch {
	case len(env.Args) == 3 && env.Args[1] == recordFlag:
		return recordNode(env, env.Args[2])
	case len(env.Args) == 3 && env.Args[1] == publish.DiskFlag:
		return publish.ServeDisk(env)
	}
	if len(env.Args) > 1 {
		if exit, done := env.Serve(); done {
			return exit
		}
		if env.Args[1] == "--version" {
			fmt.Fprintf(env.Stdout, "%s %s\n", program(phase), env.Version)
		} else {
			const help = "%s: Slurm runs this program, without arguments; see bookend help\n"
			fmt.Fprintf(env.Stderr, help, program(phase))
		}
		return 0
	}
	switch {
	case ofTask != nil && slurm.Context(env.Getenv("SLURM_SCRIPT_CONTEXT")) == task:
		return taskHook(env, ofTask)
	case phase != slurm.HealthCheck && !slurm.HasGPUs(env.Getenv): // nothing to do
		return 0
	}
	return rootHook(env, phase, steps)
}

// work is all that a hook produces. Each step adds its part; a judgement is made again when there is more to judge.
type work struct {
	*Driver
	judge.Judgement
	heard  judge.JobOutput
	why    *record.Diagnosis // nil if there is nothing to diagnose
	text   []safetext.Safe   // for the job's user
	jobLog string            // delivery status of the end report, for the log
	drain  *drain.Decision   // about the node, if it is new
	gauges *record.Check     // for the metrics of a health check; nil for a job's hooks
}

// rootHook frames a root hook: one deadline, one verdict whatever happens. steps returns false for nothing to report.
func rootHook(env Env, phase slurm.Context, steps func(*work) (worth bool)) (exit int) {
	r := &work{Driver: New(env, phase)}
	env.Confine()
	defer child.Recover(func(p *child.Panic) {
		r.failed(p)
		exit = r.Reached()
	})
	d := r.Driver
	defer d.Guard(env.Exit, func(p *child.Panic) { d.Panicked(p) }, func(why string) { leave(d, phase, why) })()
	if r.attempt(steps) {
		r.giveReason()
		r.publish()
		r.ended()
	}
	return r.Reached()
}

// attempt runs a hook's steps. A panic ends them; what was found by then still counts and is still reported.
func (r *work) attempt(steps func(*work) bool) (worth bool) {
	defer child.Recover(func(p *child.Panic) {
		r.failed(p)
		r.GiveUp(r.end())
		worth = true
	})
	return steps(r)
}

func ofJob(steps func(*work)) func(*work) bool {
	return func(r *work) bool {
		if problem := r.Configure(); problem != "" {
			fmt.Fprintf(r.Stderr, "bookend: %s\n", problem)
		}
		if !r.IdentifyJob() || !r.OpenState() {
			r.judge()
			return true
		}
		steps(r)
		return true
	}
}

// judge makes the judgement of what is known so far, with which the watchdog and SIGTERM end the hook.
func (r *work) judge() {
	r.Faults = append(r.Faults, r.Take()...)
	r.Judgement = judge.Judge(r.Case)
	if r.Node == nil && r.Store != nil && r.AsksRepeat(r.Judgement) {
		r.Node = r.readNode()
		r.Judgement = judge.Judge(r.Case)
	}
	r.reach()
}

// reach makes a hook that is stopped from now on exit with the verdict, and record what a drain follows from. The
// record is short, as there are only milliseconds to write it.
func (r *work) reach() {
	if r.Verdict.Exit != 0 {
		e := r.end()
		r.KeepJudged(record.End{At: e.At, Epoch: e.Epoch, Findings: e.Findings, Verdict: e.Verdict})
	}
	r.Reach(r.Verdict.Exit)
}

// add adds findings since the last judgement, which may still change the verdict.
func (r *work) add(more ...record.Finding) {
	r.Judgement = r.With(r.Case, more...)
	r.reach()
}

func (r *work) late(more ...record.Finding) { r.Judgement = r.Late(more...) }

func (r *work) failed(p *child.Panic) {
	if len(r.Found) == 0 {
		r.add(r.Faults...)
	}
	r.add(append(r.Take(), r.Panicked(p))...)
}

// leave reports that a hook was stopped. It runs concurrently with the steps, and touches nothing of theirs.
func leave(d *Driver, phase slurm.Context, why string) {
	if phase == slurm.HealthCheck {
		d.Reach(catalog.Exit(catalog.Deadline))
	}
	f := record.Saw(catalog.Deadline, "stopped by "+why, "a hook that ends in time")
	now, e := d.Clock.Boot(), d.Judged()
	if e.Verdict.Exit == 0 {
		e = record.End{At: now, Verdict: record.Verdict{Action: config.Warn, Exit: d.Reached(), Code: f.Code}}
	}
	e.Began, e.Wall, e.SlurmConf = d.Start, d.Clock.Wall(), slurmConf(d)
	e.Findings = append(slices.Clip(e.Findings), f)
	d.GiveUp(e)
	fmt.Fprintf(d.Stderr, "bookend: %s: %s after %v\n", f.Code, f.Observed, (now - d.Start).Round(time.Millisecond))
}

func (r *work) end() record.End {
	e := r.EndRecord(r.Judgement)
	e.Wall, e.Report, e.Diagnosis, e.SlurmConf = r.Clock.Wall(), joined(r.text), r.why, slurmConf(r.Driver)
	e.Messages, e.Outputs = r.heard.Messages, r.heard.Outputs
	e.Health = r.Seen.Health
	if e.At == 0 {
		e.At = r.Clock.Boot()
	}
	return e
}

// slurmConf returns the SLURM_CONF that a hook that asks for a drain leaves for the health check.
func slurmConf(d *Driver) string {
	const most = 4 << 10 // PATH_MAX
	conf := d.Getenv("SLURM_CONF")
	if d.Reached() == 0 || len(conf) >= most {
		return ""
	}
	return conf
}

func (r *work) report() report.Scene {
	began := cmp.Or(r.Past.Run.Start, &record.End{}).At
	return report.Scene{
		Recording: r.Past.Recording, Began: began, Ended: r.Case.At,
		Node: r.Job.Node, Job: r.Job, Cards: r.Subjects(r.Judgement), Now: r.Seen.Side, Before: r.Past.Before,
		Findings: r.Found, Verdict: r.Verdict, Why: r.why,
		Show: r.Config.JobLog.Show, Privacy: r.Config.JobLog.Privacy,
		Help: strings.Trim(r.Config.HelpURL+", "+r.Config.Contact, ", "),
	}
}

func joined(lines []safetext.Safe) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(string(l) + "\n")
	}
	return b.String()
}
