// Package hook runs the hooks. Each is a function that reads from top to bottom:
//
//	recall, observe ─► judge ─► probe ─► judge again ─► record the end ─► publish
//
// Steps take values and return values. Every output is made from the record: the node's state, the job's log, the
// drain reason, the log line, the metrics and the exit code. All that SIGTERM and the watchdog share with the steps is
// the checkpoint.
package hook

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/judge"
	"bookend/internal/maintenance"
	"bookend/internal/node"
	"bookend/internal/publish"
	"bookend/internal/record"
	"bookend/internal/recorder"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Env is the outside world, as main passes it in. Without a clock it is the machine's.
type Env = child.Env

// Prolog runs bookend-prolog: Slurm's Prolog or TaskProlog, as SLURM_SCRIPT_CONTEXT says.
func Prolog(env Env) int {
	return run(env, slurm.Prolog, slurm.TaskProlog, taskProlog, ofJob(prolog))
}

// Epilog runs bookend-epilog: Slurm's Epilog or TaskEpilog, as SLURM_SCRIPT_CONTEXT says.
func Epilog(env Env) int {
	return run(env, slurm.Epilog, slurm.TaskEpilog, taskEpilog, ofJob(epilog))
}

// HealthCheck runs bookend-healthcheck, a root hook without a job. It exits 0 if it could check the node at all.
func HealthCheck(env Env) int { return run(env, slurm.HealthCheck, "", nil, check) }

// steps are what a root hook does. They return false if there is nothing to publish.
type steps func(*hook) (o publish.Account, worth bool)

// run does what the program was started for: recorder, disk work, its own child, version, task hook or root hook.
func run(env Env, phase, task slurm.Context, ofTask func(*taskHook), do steps) int {
	if env.Clock.Boot == nil {
		env.Clock = child.SystemClock()
	}
	if len(env.Args) == 3 {
		switch name := env.Args[2]; env.Args[1] {
		case recorder.Flag:
			return recorder.Run(env, name, soFar)
		case repairFlag:
			return repair(env, name)
		case publish.DiskFlag:
			return publish.ServeDisk(env)
		case publish.HoldFlag:
			return hold(env, name)
		}
	}
	if len(env.Args) > 1 {
		if exit, done := env.Serve(); done {
			return exit
		}
		if env.Args[1] == "--version" {
			fmt.Fprintf(env.Stdout, "%s %s\n", publish.Program(phase), env.Version)
		} else {
			const help = "%s: Slurm runs this program, without arguments; see bookend help\n"
			fmt.Fprintf(env.Stderr, help, publish.Program(phase))
		}
		return 0
	}
	switch {
	case ofTask != nil && slurm.Context(env.Getenv("SLURM_SCRIPT_CONTEXT")) == task:
		return ofUser(env, task, ofTask)
	case phase != slurm.HealthCheck && !slurm.HasGPUs(env.Getenv): // nothing to do
		return 0
	}
	return rootHook(env, phase, do)
}

// hold has jobs hold the GPUs that are to be in quarantine. No health check waits for it: Slurm may not answer.
func hold(env Env, name string) int {
	env.Confine()
	a := node.ForRecorder(env, name)
	if open, _ := a.OpenState(); !open || maintenance.RestoreQuarantines(a) != nil {
		return 1
	}
	return 0
}

// hook is one run of a root hook: its access to the node, and what is published if it is stopped.
type hook struct {
	a        *node.Access
	stopped  checkpoint
	watchdog watchdog
	reached  publish.Account // for a panic of the steps: what was known and judged before it
}

// rootHook frames a root hook: one deadline, one verdict whatever happens.
func rootHook(env Env, phase slurm.Context, do steps) (exit int) {
	start := env.Clock.Boot()
	node.WarmUp()
	h := &hook{a: node.Unconfigured(env, phase, start), watchdog: newWatchdog()}
	h.know(h.a.Case())
	env.Confine()
	// Where even the report of a panic panics, Go's own exit code would drain the node.
	defer child.Recover(func(*child.Panic) { exit = h.stopped.exitCode() })
	defer child.Recover(func(p *child.Panic) {
		h.failed(p)
		exit = h.stopped.exitCode()
	})
	end := func() {
		child.KillForeign()
		env.Exit(h.stopped.exitCode())
	}
	defer h.watchdog.guard(end, func(p *child.Panic) { node.Panicked(env, p) },
		func(why string) { h.stopped.leave(env, phase, start, why) })()
	if o, worth := h.attempt(do); worth {
		publish.Hook(h.a, h.giveReason(o))
		h.a.Ended()
	}
	return h.stopped.exitCode()
}

// attempt runs a hook's steps. A panic ends them; what was found by then still counts and is still reported.
func (h *hook) attempt(do steps) (o publish.Account, worth bool) {
	defer child.Recover(func(p *child.Panic) {
		o, worth = h.failed(p), true
		h.stopped.giveUp(h.end(o.Case, o.Judgement, "", nil))
	})
	return do(h)
}

func (h *hook) failed(p *child.Panic) publish.Account {
	c, j := h.reached.Case, h.reached.Judgement
	more := judge.Once(slices.Concat(c.Faults, c.Later), j.Found) // not judged yet
	return h.keep(c, j.With(c, append(more, node.Panicked(h.a.Env, p))...))
}

// know keeps what is known so far: if a later step panics, that still counts, by the admin's policy.
func (h *hook) know(c judge.Case) judge.Case {
	h.reached.Case = c
	return c
}

// ofJob returns the steps of a job's hook once its configuration, its job and its state are known.
func ofJob(do func(*hook, judge.Case) publish.Account) steps {
	return func(h *hook) (publish.Account, bool) {
		faults, problem := h.configure()
		if problem != "" {
			fmt.Fprintf(h.a.Env.Stderr, "bookend: %s\n", problem)
		}
		known, more := identify(h.a)
		faults = slices.Concat(faults, more)
		if known {
			known, more = h.a.OpenState()
			faults = slices.Concat(faults, more)
		}
		c := h.a.Case()
		c.Faults = faults
		h.know(c)
		switch {
		case !known:
			_, j := h.judge(c)
			return h.keep(c, j), true
		case quarantines(h.a):
			return publish.Account{}, false
		}
		return do(h, c), true
	}
}

// quarantines reports whether the job only keeps a GPU from other jobs. Its end takes it off the record.
func quarantines(a *node.Access) bool {
	is := func(q state.Quarantine) bool { return q.Holds(a.Job) }
	if !slices.ContainsFunc(state.Quarantines.Peek(a.Store), is) {
		return false
	}
	if a.Phase == slurm.Epilog {
		_ = state.Quarantines.Update(a.Store, func(list *[]state.Quarantine) error {
			*list = slices.DeleteFunc(*list, is)
			return nil
		})
	}
	return true
}

// configure reads the configuration, and returns what is wrong with it also as a finding.
func (h *hook) configure() (faults []record.Finding, problem string) {
	a, problem := node.Configured(h.a.Env, h.a.Phase, h.a.Deadline.Start)
	h.a = a
	h.watchdog.limit(a.Deadline)
	if problem != "" {
		const wanted = "a valid configuration that only root can write"
		faults = append(faults, record.Saw(catalog.BadConfig, problem, wanted))
	}
	c := a.Case()
	c.Faults = faults
	h.know(c)
	return faults, problem
}

// identify reads the job from the environment. Without a job nothing can be concluded about any GPU.
func identify(a *node.Access) (ok bool, faults []record.Finding) {
	job, err := slurm.FromEnv(a.Env.Getenv)
	if err != nil {
		fmt.Fprintf(a.Env.Stderr, "bookend: %v\n", err)
		return false, []record.Finding{record.Saw(catalog.BadEnv, err.Error(), "the environment Slurm gives its hooks")}
	}
	a.Job = job
	if job.GPUProblem != "" {
		faults = append(faults, record.Unsure(catalog.Ambiguous, job.GPUProblem))
	}
	own, err := os.ReadFile(filepath.Join(a.Config.Paths.Proc, "self/cgroup"))
	if err != nil {
		faults = append(faults, record.Unsure(catalog.BadEnv, err.Error()))
	}
	a.InJob = slurm.InJob(string(own))
	if a.InJob {
		a.Job.Exit = slurm.ExitStatus{Why: "hooks under RunInJob are always told 0"}
		observed := "this hook runs inside the job (PrologFlags=RunInJob)"
		if a.Blinded() {
			observed += ": no GPU is looked at (slurm.run_in_job_backend)"
		}
		faults = append(faults, record.Saw(catalog.RunInJob, observed, "hooks run by slurmd itself"))
	}
	return true, faults
}

// judge judges what is known so far. The judgement counts even if the hook is stopped after it.
func (h *hook) judge(c judge.Case) (judge.Case, judge.Judgement) {
	j := judge.Judge(h.know(c))
	if c.Node == nil && h.a.Store != nil && c.AsksRepeat(j) {
		records, faults := node.Records(h.a.Store)
		c.Node, c.Faults = records, slices.Concat(c.Faults, faults)
		j = judge.Judge(c)
	}
	o := h.keep(c, j)
	return o.Case, o.Judgement
}

// keep makes a hook that is stopped from now on exit with the verdict, and record what a drain follows from. The
// record is short, as there are only milliseconds to write it.
func (h *hook) keep(c judge.Case, j judge.Judgement) publish.Account {
	if c.AsksExpedited(j) {
		c.Expedited = publish.Expedited(h.a)
		j = j.With(c)
	}
	h.reached = publish.Account{Case: c, Judgement: j}
	if j.Verdict.Exit != 0 {
		e := h.end(c, j, "", nil)
		h.stopped.judged.Store(&record.End{At: e.At, Epoch: e.Epoch, Findings: e.Findings, Verdict: e.Verdict})
	}
	h.stopped.reach(j.Verdict.Status())
	return h.reached
}

// end returns the record of this hook. text is its report to the job's user.
func (h *hook) end(c judge.Case, j judge.Judgement, text string, why *record.Diagnosis) record.End {
	e := c.EndRecord(j)
	e.Wall, e.Report, e.Diagnosis = h.a.Env.Clock.Wall(), text, why
	e.SlurmConf = slurmConf(h.a.Env, e.Verdict.Exit)
	e.Messages, e.Outputs = c.Output.Messages, c.Output.Outputs
	e.Health = c.Seen.Health
	e.At = cmp.Or(e.At, h.a.Env.Clock.Boot())
	return e
}

// slurmConf returns the SLURM_CONF that a hook that asks for a drain leaves for the health check.
func slurmConf(env Env, exit int) string {
	const most = 4 << 10 // PATH_MAX
	conf := env.Getenv("SLURM_CONF")
	if exit == 0 || len(conf) >= most {
		return ""
	}
	return conf
}

// giveReason gives Slurm the reason of a drain. What goes wrong with that is only reported.
func (h *hook) giveReason(o publish.Account) publish.Account {
	e := h.end(o.Case, o.Judgement, "", nil)
	faults := publish.Reason(h.a, o.Case.Seen, e)
	if o.Judgement.ByScontrol && len(faults) == 0 && h.a.Store != nil { // only now the node is drained
		faults = keepStanding(h.a, o.Case, o.Judgement, true)
	}
	o.Judgement = o.Judgement.Late(faults...)
	return o
}

func scene(c judge.Case, j judge.Judgement, why *record.Diagnosis) report.Scene {
	shared, _ := c.Sharing.Reasons()
	return report.Scene{
		Shared: shared != "" || c.Job.MPSPercent != "" ||
			slices.Contains(c.Config.Slurm.SharedPartitions, c.Job.Partition),
		Run: c.Self(), Recording: c.Past.Recording, Ended: c.At,
		Cards: c.Subjects(j), Now: c.Seen.Side, Before: c.Past.Before,
		Findings: j.Found, Verdict: j.Verdict, Why: why, Cancelled: c.Output.Cancelled,
		Unread:   c.Output.Unknown != "",
		Untested: c.Untested(),
		Show:     c.Config.JobLog.Show, Privacy: c.Config.JobLog.Privacy,
		Help: strings.Trim(c.Config.HelpURL+", "+c.Config.Contact, ", "),
	}
}

// awaitFirst keeps a hook that is not the first of its kind until the first has ended, if that one may be testing: once
// this one ends, the next job may get the GPU. The first has the earlier deadline. If it closed the run, this hook
// repeats it; one that died on the way closed nothing, and this is the job's start or end.
func awaitFirst(a *node.Access, c judge.Case) judge.Case {
	if c.Past.Turn != judge.Concurrent {
		return c
	}
	wait := time.Duration(0)
	if judge.WhenTested(c.Config.Probe.At, c.Phase) {
		wait = a.Deadline.Left(time.Hour, a.Reserve())
	}
	if node.Claim(a, wait) != judge.First {
		return c // nothing else can be done
	}
	c.Past.Turn = judge.Undecided
	if run, _ := a.Store.Find(a.Job); run.Epilog() != nil {
		c.Past.Turn = judge.Repeated
	}
	return c
}

// withStanding returns the case with the fatal errors of GPUs that the node has on record.
func withStanding(a *node.Access, c judge.Case) judge.Case {
	standing, err := state.Standing.Load(a.Store)
	c.Past.Standing, c.Faults = standing, slices.Concat(c.Faults, node.Fault(err))
	return c
}

// keepStanding puts on record what this hook has learned of fatal errors. drained is set if the node is drained for
// what is judged so. A job's hook without news writes nothing.
func keepStanding(a *node.Access, c judge.Case, j judge.Judgement, drained bool) []record.Finding {
	return node.Fault(state.Standing.Update(a.Store, func(now *record.Standing) error {
		next := c.StandingAfter(*now, j, drained)
		if a.Phase != slurm.HealthCheck && next.Epoch == now.Epoch && slices.Equal(next.Faults, now.Faults) &&
			maps.Equal(next.Errors, now.Errors) {
			return state.ErrUnchanged
		}
		*now = next
		return nil
	}))
}
