package stage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/operation"
	"bookend/internal/routine"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Driver is one run of a root hook: what it was told, what it works with, and its dealings with the driver and with
// /proc; it is the Eyes that a hook looks with. Its Troubles are what went wrong since they were taken last, its Case
// is what it knows so far.
type Driver struct {
	operation.Env
	*Frame
	Troubles
	judge.Case
	Times  config.HookDeadline
	Settle config.SettleTimes
	Store  *state.Store // nil where state cannot be used; the hook goes on without

	contact contact
	unkept  bool // a reader of /proc is stuck, and could not be put on record
	looks   int  // that came back so far
	// neighbours are, of a health check, the GPUs that it does not look at more closely.
	neighbours *gpu.Snapshot
}

// New frames a hook, of which nothing is known yet.
func New(env operation.Env, phase slurm.Context) *Driver {
	return &Driver{
		Env: env, Frame: NewFrame(env.Clock), Case: judge.Case{Phase: phase}, contact: contact{met: func(bool) {}},
	}
}

// Configure loads the configuration; a bad one becomes a fault and the shipped, observing default. Problem is what is
// wrong with it, in one line.
func (d *Driver) Configure() (problem string) {
	d.Config, problem = LoadConfig(d.Env)
	d.Times, d.Settle = d.Config.Deadlines.Epilog, d.Config.Settle.Epilog
	switch d.Phase {
	case slurm.Prolog:
		d.Times, d.Settle = d.Config.Deadlines.Prolog, d.Config.Settle.Prolog
	case slurm.HealthCheck: // nobody waits for it: it watches as an end does
		d.Times = d.Config.Deadlines.HealthCheck.Hook()
	}
	d.Limit(time.Duration(d.Times.Total))
	if problem != "" {
		d.fault(finding.Saw(code.BadConfig, problem, "a valid configuration that only root can write"))
	}
	return problem
}

// fault adds what went wrong before the GPUs are looked at.
func (d *Driver) fault(f finding.Finding) { d.Faults = append(d.Faults, f) }

// IdentifyJob reads the job from the environment; without a job nothing can be said about anybody's GPUs.
func (d *Driver) IdentifyJob() (ok bool) {
	job, err := slurm.FromEnv(d.Getenv)
	if err != nil {
		fmt.Fprintf(d.Stderr, "bookend: %v\n", err)
		d.fault(finding.Saw(code.BadEnv, err.Error(), "the environment Slurm gives its hooks"))
		return false
	}
	if d.Job = job; job.GPUProblem != "" {
		d.fault(finding.Unsure(code.Ambiguous, job.GPUProblem))
	}
	own, err := OwnCgroup(d.Config.Paths.Proc)
	if err != nil {
		d.fault(finding.Unsure(code.BadEnv, err.Error()))
	}
	if d.InJob = slurm.InJob(own); d.InJob {
		d.Job.Exit = slurm.ExitStatus{Why: "hooks under RunInJob are always told 0"}
		observed := "this hook runs inside the job (PrologFlags=RunInJob)"
		if d.blinded() {
			observed += ": no GPU is looked at (slurm.run_in_job_backend)"
		}
		d.fault(finding.Saw(code.RunInJob, observed, "hooks run by slurmd itself"))
	}
	return true
}

// blinded reports that the driver is not to be asked: from inside a job, unless the admin allows it there. That is how
// the site has Slurm run its hooks, and no fault of the node's: the one finding is BKD-RUNINJOB.
func (d *Driver) blinded() bool { return d.InJob && !d.Config.Slurm.RunInJobBackend }

// MayAsk reports whether the driver is to be asked for the job's GPUs at all.
func (d *Driver) MayAsk() bool { return d.Job.GPUProblem == "" && !d.blinded() }

// OpenState opens the node's state, in the name of the job's node.
func (d *Driver) OpenState() {
	store, err := state.Open(d.Config.Paths.Run, d.Job.Node)
	if err == nil {
		d.Store = store
	}
	d.Try(err)
	d.Faults = append(d.Faults, d.Take()...)
}

// Reserve is what the steps after looking need.
func (d *Driver) Reserve() time.Duration {
	return time.Duration(d.Times.Outputs) + time.Duration(d.Times.Append)
}

// At words a moment since boot.
func (d *Driver) At(sinceBoot time.Duration) string {
	return d.Clock.Wall().Add(sinceBoot - d.Clock.Boot()).UTC().Format("2006-01-02 15:04:05 UTC")
}

// Alive reports whether a child that could not be killed is still there.
func (d *Driver) Alive(s state.Stuck) bool {
	return child.Alive(d.Config.Paths.Proc, s.PID, s.StartTicks)
}

// Visit readies a child among the files of the job's user, which leaves the hook the reserve.
func (d *Driver) Visit(reserve time.Duration) *operation.Visit {
	return &operation.Visit{
		Store: d.Store, UID: d.Job.UID, Now: d.Clock.Boot, Alive: d.Alive,
		Left: func() time.Duration { return d.Left(time.Duration(d.Times.Append), reserve) },
	}
}

// Visited tells what went wrong with the record of a visit that is over.
func (d *Driver) Visited(v *operation.Visit) {
	for _, err := range v.Troubles {
		d.Try(err)
	}
	v.Troubles = nil
}

// Panicked makes a panic a finding. The stack goes to slurmd's log.
func (d *Driver) Panicked(p *routine.Panic) finding.Finding {
	fmt.Fprintf(d.Stderr, "bookend: %v\n%s", p, p.Stack)
	return finding.Saw(code.Panicked, p.Error(), "no panic")
}

// OwnCgroup reads this process's cgroup file.
func OwnCgroup(proc string) (string, error) { return ReadOwn(filepath.Join(proc, "self/cgroup")) }

// ReadOwn reads a file about this very process, or of the kernel's own: it is answered without waiting for anybody.
func ReadOwn(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read %q: %w", path, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10)) // a cgroup file has a dozen lines
	if err != nil {
		return "", fmt.Errorf("read %q: %w", path, err)
	}
	return string(b), nil
}

// ReadConfig reads the configuration that this process is to use, and says where it lies. With problems, or an
// error when it cannot be read or trusted, the Config is what config.Parse keeps of a bad file: it observes and
// never drains.
func ReadConfig(env operation.Env) (cfg config.Config, path string, problems []config.Problem, err error) {
	if path = env.Getenv("BOOKEND_CONFIG"); path == "" {
		path = config.DefaultFile
	}
	// Threat: whoever can write the configuration chooses programs that root runs. Task hooks check alike:
	// there the variable is the user's.
	data, err := safefile.ReadTrusted(path, config.MaxBytes)
	if err != nil {
		return config.Default(), path, nil, err
	}
	cfg, problems = config.Parse(data)
	return cfg, path, problems, nil
}

// LoadConfig is ReadConfig with everything that is wrong in one line, empty when all is well.
func LoadConfig(env operation.Env) (config.Config, string) {
	cfg, path, problems, err := ReadConfig(env)
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && env.Getenv("BOOKEND_CONFIG") == "":
		return cfg, fmt.Sprintf("config %q: missing: shipped defaults in force", path)
	case err != nil:
		return cfg, fmt.Sprintf("config %q: %v: shipped defaults in force, observing only", path, err)
	case len(problems) > 0:
		all := strings.Join(lines, "; ")
		return cfg, fmt.Sprintf("config %q: %s: shipped policy in force, observing only", path, all)
	}
	return cfg, ""
}

// Troubles are what went wrong in one step, on its way to the step's value.
type Troubles struct{ list []finding.Finding }

// Add adds a finding.
func (f *Troubles) Add(found ...finding.Finding) { f.list = append(f.list, found...) }

// Take hands over what there is, and begins anew.
func (f *Troubles) Take() []finding.Finding {
	all := f.list
	f.list = nil
	return all
}

// Once leaves out of what was found what is said in the same words before, there or among what was said.
func Once(found, said []finding.Finding) (news []finding.Finding) {
	for _, f := range found {
		same := func(o finding.Finding) bool {
			return o.Code == f.Code && o.GPU == f.GPU && o.Observed == f.Observed && o.Unknown == f.Unknown
		}
		if !slices.ContainsFunc(said, same) && !slices.ContainsFunc(news, same) {
			news = append(news, f)
		}
	}
	return news
}

// Try adds a failure of Bookend's own state, which never stops a hook.
func (f *Troubles) Try(err error) {
	switch {
	case err == nil:
	case errors.Is(err, state.ErrExists): // a prolog run twice: the first look counts
	case errors.As(err, new(state.Damage)):
		f.Add(finding.Saw(code.StateDamage, err.Error(), "a whole record"))
	case errors.Is(err, state.ErrLocked):
		f.Add(finding.Unsure(code.StateLock, err.Error()))
	default:
		f.Add(finding.Saw(code.StateWrite, err.Error(), "state can be written"))
	}
}

// Defect reports whether an error is a panic of ours, and adds it.
func (d *Driver) Defect(err error) bool {
	var p *routine.Panic
	if !errors.As(err, &p) {
		return false
	}
	d.Add(d.Panicked(p))
	return true
}
