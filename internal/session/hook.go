// Package session is one run of a hook: what it was told, how long it has, and its dealings with the driver and with
// /proc. It asks, in children, and says what could not be seen; it judges nothing.
package session

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/operation"
	"bookend/internal/routine"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Hook is what one run of a root hook was told, and what it works with. It is made once; what steps find they return.
type Hook struct {
	operation.Env
	*Frame
	Phase  slurm.Context
	Job    slurm.Job
	Config config.Config
	Times  config.HookDeadline
	Settle config.SettleTimes
	Store  *state.Store // nil where state cannot be used; the hook goes on without
	InJob  bool         // PrologFlags=RunInJob: the hook sits in the job's own cgroup
}

// New frames a hook, of which nothing is known yet.
func New(env operation.Env, phase slurm.Context) *Hook {
	return &Hook{Env: env, Frame: NewFrame(env.Clock), Phase: phase}
}

// Configure loads the configuration; a bad one becomes a finding and the shipped, observing default. Problem is what is
// wrong with it, in one line.
func (h *Hook) Configure() (problem string, found []finding.Finding) {
	h.Config, problem = LoadConfig(h.Env)
	h.Times, h.Settle = h.Config.Deadlines.Epilog, h.Config.Settle.Epilog
	switch h.Phase {
	case slurm.Prolog:
		h.Times, h.Settle = h.Config.Deadlines.Prolog, h.Config.Settle.Prolog
	case slurm.HealthCheck: // nobody waits for it: it watches as an end does
		h.Times = h.Config.Deadlines.HealthCheck.Hook()
	}
	h.Limit(time.Duration(h.Times.Total))
	if problem != "" {
		found = append(found, finding.Saw(code.BadConfig, problem, "a valid configuration that only root can write"))
	}
	return problem, found
}

// IdentifyJob reads the job from the environment; without a job nothing can be said about anybody's GPUs.
func (h *Hook) IdentifyJob() (found []finding.Finding, ok bool) {
	job, err := slurm.FromEnv(h.Getenv)
	if err != nil {
		fmt.Fprintf(h.Stderr, "bookend: %v\n", err)
		return append(found, finding.Saw(code.BadEnv, err.Error(), "the environment Slurm gives its hooks")), false
	}
	h.Job = job
	if job.GPUProblem != "" {
		found = append(found, finding.Unsure(code.Ambiguous, job.GPUProblem))
	}
	own, err := OwnCgroup(h.Config.Paths.Proc)
	if err != nil {
		found = append(found, finding.Unsure(code.BadEnv, err.Error()))
	}
	if h.InJob = slurm.InJob(own); h.InJob {
		h.Job.Exit = slurm.ExitStatus{Why: "hooks under RunInJob are always told 0"}
		observed := "this hook runs inside the job (PrologFlags=RunInJob)"
		if h.blinded() {
			observed += ": no GPU is looked at (slurm.run_in_job_backend)"
		}
		found = append(found, finding.Saw(code.RunInJob, observed, "hooks run by slurmd itself"))
	}
	return found, true
}

// blinded reports that the driver is not to be asked: from inside a job, unless the admin allows it there. That is how
// the site has Slurm run its hooks, and no fault of the node's: the one finding is BKD-RUNINJOB.
func (h *Hook) blinded() bool { return h.InJob && !h.Config.Slurm.RunInJobBackend }

// MayAsk reports whether the driver is to be asked for the job's GPUs at all.
func (h *Hook) MayAsk() bool { return h.Job.GPUProblem == "" && !h.blinded() }

// OpenState opens the node's state, in the name of the job's node.
func (h *Hook) OpenState() []finding.Finding {
	var f Faults
	store, err := state.Open(h.Config.Paths.Run, h.Job.Node)
	if err == nil {
		h.Store = store
	}
	f.Try(err)
	return f.Take()
}

// Reserve is what the steps after looking need.
func (h *Hook) Reserve() time.Duration {
	return time.Duration(h.Times.Outputs) + time.Duration(h.Times.Append)
}

// At words a moment since boot.
func (h *Hook) At(sinceBoot time.Duration) string {
	return h.Clock.Wall().Add(sinceBoot - h.Clock.Boot()).UTC().Format("2006-01-02 15:04:05 UTC")
}

// Alive reports whether a child that could not be killed is still there.
func (h *Hook) Alive(s state.Stuck) bool {
	return child.Alive(h.Config.Paths.Proc, s.PID, s.StartTicks)
}

// Visit readies a child among the files of the job's user, which leaves the hook the reserve.
func (h *Hook) Visit(reserve time.Duration) *operation.Visit {
	return &operation.Visit{
		Store: h.Store, UID: h.Job.UID, Now: h.Clock.Boot, Alive: h.Alive,
		Left: func() time.Duration { return h.Left(time.Duration(h.Times.Append), reserve) },
	}
}

// Panicked makes a panic a finding. The stack goes to slurmd's log.
func (h *Hook) Panicked(p *routine.Panic) finding.Finding {
	fmt.Fprintf(h.Stderr, "bookend: %v\n%s", p, p.Stack)
	return finding.Saw(code.Panicked, p.Error(), "no panic")
}

// OwnCgroup reads this process's cgroup file.
func OwnCgroup(proc string) (string, error) { return ReadOwn(filepath.Join(proc, "self/cgroup")) }

// maxOwnFile bounds files of our own process in /proc: a cgroup file has a dozen lines.
const maxOwnFile = 64 << 10

// ReadOwn reads a file about this very process, or of the kernel's own: it is answered without waiting for anybody.
func ReadOwn(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read %q: %w", path, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxOwnFile))
	if err != nil {
		return "", fmt.Errorf("read %q: %w", path, err)
	}
	return string(b), nil
}
