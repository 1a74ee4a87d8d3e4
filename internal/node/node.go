// Package node is how a root program reaches its node and sees it: configuration, job, state, driver and /proc, the
// GPUs with their numbers, samples until they settle, their holders, the kernel's log and the job's output. What may
// hang or crash is asked of children with a deadline, and never next to a child that hangs already. Failures are
// returned as findings, which the caller keeps in its record.
package node

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/judge"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Access is one program's access to its node. The exported fields are set before the first step and do not change.
type Access struct {
	Env      child.Env
	Phase    slurm.Context
	Config   config.Config
	Times    config.HookDeadline
	Settle   config.SettleTimes
	Deadline child.Deadline
	Job      slurm.Job // only the node's name in a health check and in the recorder
	InJob    bool      // PrologFlags=RunInJob: the hook runs in the job's own cgroup
	Store    *state.Store

	ending func() Answer              // waits for the end of a backend that has answered; nil for none
	last   Answer                     // the final answer of that backend, or of one that could not be killed
	next   atomic.Pointer[func(bool)] // ends the wait of other hooks for this one's answer; nil if it did not ask
	unkept bool                       // a reader of /proc is stuck, and could not be recorded
}

// Configured returns a program's access with its configuration, and why that is bad, if it is: then it is the default,
// which only observes. The time limit counts from start, CLOCK_BOOTTIME.
func Configured(env child.Env, phase slurm.Context, start time.Duration) (a *Access, problem string) {
	cfg, problem := LoadConfig(env)
	return With(env, phase, cfg, start), problem
}

// Unconfigured returns a program's access with the default configuration, which only observes.
func Unconfigured(env child.Env, phase slurm.Context, start time.Duration) *Access {
	return With(env, phase, config.Default(), start)
}

// ForRecorder returns the access of a node's recorder, whose steps have an epilog's limits, and which has no deadline.
func ForRecorder(env child.Env, name string) *Access {
	a, _ := Configured(env, slurm.Epilog, env.Clock.Boot()) // hooks report a bad configuration
	a.Job.Node, a.Deadline.End = name, math.MaxInt64
	return a
}

// With returns a program's access with a configuration.
func With(env child.Env, phase slurm.Context, cfg config.Config, start time.Duration) *Access {
	a := &Access{Env: env, Phase: phase, Config: cfg, Times: cfg.Deadlines.Epilog, Settle: cfg.Settle.Epilog}
	switch phase {
	case slurm.Prolog:
		a.Times, a.Settle = cfg.Deadlines.Prolog, cfg.Settle.Prolog
	case slurm.HealthCheck: // no job waits for it: it watches as an epilog does
		a.Times = cfg.Deadlines.HealthCheck.Hook()
	case slurm.TaskProlog, slurm.TaskEpilog:
		a.Times.Total = cfg.Deadlines.Task
	}
	a.Deadline = child.Deadline{Start: start, End: start + time.Duration(a.Times.Total), Clock: env.Clock}
	return a
}

// OpenState opens the node's state. Without it no GPU is read: a child may be stuck, and no start is known.
func (a *Access) OpenState() (ok bool, faults []record.Finding) {
	store, err := state.Open(a.Config.Paths.Run, a.Job.Node)
	if err == nil {
		a.Store = store
	}
	return err == nil, Fault(err)
}

// Case returns the case of this program before it has recalled or seen anything.
func (a *Access) Case() judge.Case {
	return judge.Case{Phase: a.Phase, Job: a.Job, Config: a.Config, At: a.Deadline.Start, InJob: a.InJob}
}

// Left returns the time for a step before the outputs: limit, or what the deadline leaves.
func (a *Access) Left(limit config.Duration) time.Duration {
	return a.Deadline.Left(time.Duration(limit), a.Reserve())
}

// Reserve returns the time that the steps after the samples need.
func (a *Access) Reserve() time.Duration {
	return time.Duration(a.Times.Outputs) + time.Duration(a.Times.Append)
}

// Blinded reports that the driver must not be asked: from inside a job, unless the admin allows it there. That is how
// the site has Slurm run its hooks, not a fault of the node; the only finding is BKD-RUNINJOB.
func (a *Access) Blinded() bool { return a.InJob && !a.Config.Slurm.RunInJobBackend }

// at formats a time since boot as UTC.
func (a *Access) at(sinceBoot time.Duration) string {
	return a.Env.Clock.Booted().Add(sinceBoot).UTC().Format("2006-01-02 15:04:05 UTC")
}

// alive reports whether a child that could not be killed is still there.
func (a *Access) alive(pid int, startTicks uint64) bool {
	return child.Alive(a.Config.Paths.Proc, pid, startTicks)
}

// Panicked returns the finding for a panic. The stack goes to slurmd's log.
func Panicked(env child.Env, p *child.Panic) record.Finding {
	fmt.Fprintf(env.Stderr, "bookend: %v\n%s", p, p.Stack)
	return record.Saw(catalog.Panicked, p.Error(), "no panic")
}

// defect returns the finding for an error that is a panic of our own, none if it is not.
func defect(env child.Env, err error) []record.Finding {
	var p *child.Panic
	if !errors.As(err, &p) {
		return nil
	}
	return []record.Finding{Panicked(env, p)}
}

// Fault returns the finding for a failure of Bookend's own state, which never stops a hook; none without an error.
func Fault(err error) []record.Finding {
	switch {
	case err == nil, errors.Is(err, state.ErrExists): // a prolog that ran twice: the first record counts
		return nil
	case errors.As(err, new(state.Damage)):
		return []record.Finding{record.Saw(catalog.StateDamage, err.Error(), "a whole record")}
	case errors.Is(err, state.ErrLocked):
		return []record.Finding{record.Unsure(catalog.StateLock, err.Error())}
	}
	return []record.Finding{record.Saw(catalog.StateWrite, err.Error(), "state can be written")}
}
