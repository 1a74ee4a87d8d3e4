package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/judge"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Driver is one run of a root hook: what it works with, and its access to the driver and to /proc (judge.Eyes). Its
// Troubles are those since the last Take; its Case is what it knows so far.
type Driver struct {
	child.Env
	*Frame
	Troubles
	judge.Case
	Times  config.HookDeadline
	Settle config.SettleTimes
	Store  *state.Store // nil until it is opened

	ahead   *ahead
	ending  func() backend.Answer  // waits for the end of a backend that has answered
	last    backend.Answer         // the final answer of that backend
	briefly bool                   // only part of the GPUs' condition was asked for
	met     atomic.Pointer[func()] // ends the wait of other hooks for this one's answer; nil if it did not ask
	unkept  bool                   // a reader of /proc is stuck, and could not be recorded
}

// New returns the Driver of a hook that has just started.
func New(env child.Env, phase slurm.Context) *Driver {
	frame := NewFrame(env.Clock)
	at := judge.Case{Phase: phase, At: frame.Start}
	return &Driver{Env: env, Frame: frame, Case: at}
}

// Configure loads the configuration. If it is bad, it adds a fault, returns why, and uses the observing default.
func (d *Driver) Configure() (problem string) {
	d.Config, problem = LoadConfig(d.Env)
	d.Times, d.Settle = d.Config.Deadlines.Epilog, d.Config.Settle.Epilog
	switch d.Phase {
	case slurm.Prolog:
		d.Times, d.Settle = d.Config.Deadlines.Prolog, d.Config.Settle.Prolog
	case slurm.HealthCheck: // no job waits for it: it watches as an epilog does
		d.Times = d.Config.Deadlines.HealthCheck.Hook()
	}
	d.Limit(time.Duration(d.Times.Total))
	if problem != "" {
		d.Add(record.Saw(catalog.BadConfig, problem, "a valid configuration that only root can write"))
	}
	return problem
}

// IdentifyJob reads the job from the environment. Without a job nothing can be concluded about any GPU.
func (d *Driver) IdentifyJob() (ok bool) {
	job, err := slurm.FromEnv(d.Getenv)
	if err != nil {
		fmt.Fprintf(d.Stderr, "bookend: %v\n", err)
		d.Add(record.Saw(catalog.BadEnv, err.Error(), "the environment Slurm gives its hooks"))
		return false
	}
	d.Job = job
	if job.GPUProblem != "" {
		d.Add(record.Unsure(catalog.Ambiguous, job.GPUProblem))
	}
	own, err := OwnCgroup(d.Config.Paths.Proc)
	if err != nil {
		d.Add(record.Unsure(catalog.BadEnv, err.Error()))
	}
	d.InJob = slurm.InJob(own)
	if d.InJob {
		d.Job.Exit = slurm.ExitStatus{Why: "hooks under RunInJob are always told 0"}
		observed := "this hook runs inside the job (PrologFlags=RunInJob)"
		if d.blinded() {
			observed += ": no GPU is looked at (slurm.run_in_job_backend)"
		}
		d.Add(record.Saw(catalog.RunInJob, observed, "hooks run by slurmd itself"))
	}
	return true
}

// blinded reports that the driver must not be asked: from inside a job, unless the admin allows it there. That is how
// the site has Slurm run its hooks, not a fault of the node; the only finding is BKD-RUNINJOB.
func (d *Driver) blinded() bool { return d.InJob && !d.Config.Slurm.RunInJobBackend }

// OpenState opens the node's state. Without it no GPU is read: a child may be stuck, and no start is known.
func (d *Driver) OpenState() (ok bool) {
	store, err := state.Open(d.Config.Paths.Run, d.Job.Node)
	if err == nil {
		d.Store = store
	}
	d.Try(err)
	return err == nil
}

// Reserve returns the time that the steps after the samples need.
func (d *Driver) Reserve() time.Duration {
	return time.Duration(d.Times.Outputs) + time.Duration(d.Times.Append)
}

// At formats a time since boot as UTC.
func (d *Driver) At(sinceBoot time.Duration) string {
	return d.Clock.Wall().Add(sinceBoot - d.Clock.Boot()).UTC().Format("2006-01-02 15:04:05 UTC")
}

// Alive reports whether a child that could not be killed is still there.
func (d *Driver) Alive(s state.Stuck) bool { return state.AliveIn(d.Config.Paths.Proc)(s) }

// Panicked returns the finding for a panic. The stack goes to slurmd's log.
func (d *Driver) Panicked(p *child.Panic) record.Finding {
	fmt.Fprintf(d.Stderr, "bookend: %v\n%s", p, p.Stack)
	return record.Saw(catalog.Panicked, p.Error(), "no panic")
}

// OwnCgroup returns the content of this process's cgroup file.
func OwnCgroup(proc string) (string, error) {
	text, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	return string(text), err
}

// ReadConfig reads the configuration for this process, and returns its path. If it cannot be read or trusted, cfg is
// the default; if it has problems, cfg is what config.Parse keeps of a bad file. Neither ever drains.
func ReadConfig(env child.Env) (cfg config.Config, path string, problems []config.Problem, err error) {
	if path = env.Getenv("BOOKEND_CONFIG"); path == "" {
		path = config.DefaultFile
	}
	// Threat: a configuration names programs that root runs. In task hooks the variable is the user's.
	data, err := safefile.ReadTrusted(path, config.MaxBytes)
	if err != nil {
		return config.Default(), path, nil, err
	}
	cfg, problems = config.Parse(data)
	return cfg, path, problems, nil
}

// LoadConfig is ReadConfig with all problems in one line, empty if there are none.
func LoadConfig(env child.Env) (config.Config, string) {
	cfg, path, problems, err := ReadConfig(env)
	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && env.Getenv("BOOKEND_CONFIG") == "":
		return cfg, fmt.Sprintf("config %q: missing: the defaults are in effect", path)
	case err != nil:
		return cfg, fmt.Sprintf("config %q: %v: the defaults are in effect, observing only", path, err)
	case len(all) > 0:
		const instead = "the default policy is in effect, observing only"
		return cfg, fmt.Sprintf("config %q: %s: %s", path, strings.Join(all, "; "), instead)
	}
	return cfg, ""
}

// Troubles are the findings about what went wrong in one step, until the step's result takes them.
type Troubles struct{ list []record.Finding }

func (f *Troubles) Add(found ...record.Finding) { f.list = append(f.list, found...) }

// Take returns the findings, and starts with an empty list again.
func (f *Troubles) Take() []record.Finding {
	all := f.list
	f.list = nil
	return all
}

// Once returns what was found without repeats: of earlier findings, and of those in said.
func Once(found, said []record.Finding) (news []record.Finding) {
	for _, f := range found {
		same := func(o record.Finding) bool {
			return o.Code == f.Code && o.GPU == f.GPU && o.Observed == f.Observed && o.Unknown == f.Unknown
		}
		if !slices.ContainsFunc(said, same) && !slices.ContainsFunc(news, same) {
			news = append(news, f)
		}
	}
	return news
}

// Try adds a finding for a failure of Bookend's own state, which never stops a hook.
func (f *Troubles) Try(err error) {
	switch {
	case err == nil:
	case errors.Is(err, state.ErrExists): // a prolog that ran twice: the first record counts
	case errors.As(err, new(state.Damage)):
		f.Add(record.Saw(catalog.StateDamage, err.Error(), "a whole record"))
	case errors.Is(err, state.ErrLocked):
		f.Add(record.Unsure(catalog.StateLock, err.Error()))
	default:
		f.Add(record.Saw(catalog.StateWrite, err.Error(), "state can be written"))
	}
}

// Defect reports whether an error is a panic of our own, and adds its finding.
func (d *Driver) Defect(err error) bool {
	var p *child.Panic
	if !errors.As(err, &p) {
		return false
	}
	d.Add(d.Panicked(p))
	return true
}

// Frame is a hook's deadline and its Checkpoint.
type Frame struct {
	Checkpoint
	Start    time.Duration // CLOCK_BOOTTIME at process start
	deadline time.Duration
	clock    child.Clock
	watchdog *time.Timer
}

// Checkpoint is all that SIGTERM and the watchdog publish when they stop a hook: the exit code reached so far, the end
// that it follows from, and the record of an end that the steps could not write. They run concurrently with the steps
// and touch nothing else.
type Checkpoint struct {
	exit       atomic.Int32
	judged     atomic.Pointer[record.End]
	unfinished atomic.Pointer[func(record.End)]
}

// KeepJudged sets what a drain's exit code follows from: a hook that is stopped leaves it on record.
func (c *Checkpoint) KeepJudged(e record.End) { c.judged.Store(&e) }

// Judged returns what KeepJudged set, empty if the exit code reached follows from something else.
func (c *Checkpoint) Judged() (e record.End) {
	if judged := c.judged.Load(); judged != nil && judged.Verdict.Exit == c.Reached() {
		e = *judged
	}
	return e
}

func (c *Checkpoint) Reach(exit int) { c.exit.Store(int32(exit)) }

func (c *Checkpoint) Reached() int { return int(c.exit.Load()) }

// Unfinished sets the function that records an end if the steps do not get that far.
func (c *Checkpoint) Unfinished(put func(record.End)) { c.unfinished.Store(&put) }

// Finish means that the steps write the record themselves.
func (c *Checkpoint) Finish() { c.unfinished.Store(nil) }

// GiveUp records e, unless a record is written already.
func (c *Checkpoint) GiveUp(e record.End) {
	if put := c.unfinished.Swap(nil); put != nil {
		(*put)(e)
	}
}

// NewFrame bounds a hook before its configuration is known: that may be on a disk that does not answer.
func NewFrame(now child.Clock) *Frame {
	const untilConfigured = 5 * time.Second
	start := now.Boot()
	return &Frame{Start: start, deadline: start + untilConfigured, clock: now, watchdog: time.NewTimer(untilConfigured)}
}

// Limit sets the one absolute deadline, counted from process start.
func (f *Frame) Limit(total time.Duration) {
	f.deadline = f.Start + total
	f.watchdog.Reset(f.Left(1<<62, 0))
}

// Left returns the time for a step: limit, or what the deadline leaves after reserve for the later steps.
func (f *Frame) Left(limit, reserve time.Duration) time.Duration {
	return max(0, min(limit, f.deadline-f.clock.Boot()-reserve))
}

// LastWords is the time to report a stop: slurmd grants 10 ms from SIGTERM to SIGKILL, and a killed hook has failed.
const LastWords = 5 * time.Millisecond

// Guard ends the process with the exit code reached, at the deadline or SIGTERM, even if the hook is stuck.
func (f *Frame) Guard(end func(int), onPanic func(*child.Panic), say func(why string)) (stop func()) {
	term := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(term, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // else Go ends a process whose stderr has no reader
	child.Go(onPanic, func() {
		why := "SIGTERM"
		select {
		case <-done:
			return
		case <-term:
		case <-f.watchdog.C:
			why = "the deadline"
		}
		said := make(chan struct{})
		child.Go(func(*child.Panic) {}, func() {
			defer close(said)
			say(why)
		})
		select {
		case <-said:
		case <-time.After(LastWords):
		}
		end(f.Reached())
	})
	return func() {
		close(done)
		f.watchdog.Stop()
		signal.Stop(term)
	}
}
