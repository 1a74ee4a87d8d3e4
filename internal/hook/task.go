package hook

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/joblog"
	"bookend/internal/node"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/report"
	"bookend/internal/safefile"
	"bookend/internal/safetext"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// taskHook is a task hook. It runs as the user and in the user's environment: nothing in it is trusted. It always
// exits 0.
type taskHook struct {
	env      Env
	cfg      config.Config
	task     slurm.Task
	deadline node.Deadline
}

// ofUser frames a TaskProlog or TaskEpilog. Any exit code but 0 would fail the user's job.
func ofUser(env Env, body func(*taskHook)) int {
	quiet := func(*child.Panic) {} // Slurm would read a TaskProlog's stack as commands
	defer child.Recover(quiet)
	if !slurm.HasGPUs(env.Getenv) {
		return 0
	}
	start, watchdog := env.Clock.Boot(), newWatchdog()
	defer watchdog.guard(func() { env.Exit(0) }, quiet, func(string) {})()
	cfg, _ := node.LoadConfig(env) // root hooks report a bad configuration
	own, _ := node.OwnCgroup(cfg.Paths.Proc)
	t := &taskHook{env: env, cfg: cfg, task: slurm.TaskFromEnv(env.Getenv, own),
		deadline: node.Deadline{Start: start, End: start + time.Duration(cfg.Deadlines.Task), Clock: env.Clock}}
	watchdog.limit(t.deadline)
	body(t)
	return 0
}

// report returns what the root hooks told this user of the job.
func (t *taskHook) report() (state.Report, error) {
	return state.Users{Run: t.cfg.Paths.Run, Node: t.task.Node}.Report(uint32(t.env.EUID), t.task.Job())
}

func (t *taskHook) inScript() bool {
	return t.task.Step == slurm.StepBatch || t.task.Step == slurm.StepInteractive
}

const taskStep = 400 * time.Millisecond

// ofJob returns a request for the job's processes, as far as its user may see them.
func (t *taskHook) ofJob() procscan.JobRequest {
	paths := t.cfg.Paths
	return procscan.JobRequest{Proc: paths.Proc, Dev: paths.Dev, UID: uint32(t.env.EUID), Owner: t.task.Job()}
}

// taskProlog prints the start report once a node, at the start of the script, and one line at a step's if something is
// wrong. It also records where the job's output goes: for a script only its TaskEpilog can know, for a step it is what
// srun writes to, its own output or a file that it opened (srun -o).
func taskProlog(t *taskHook) {
	if t.task.LocalID > 0 {
		return
	}
	r, err := t.report()
	switch {
	case err != nil: // no prolog, or not this user's report
	case t.inScript():
		printLines(t.env.Stdout, r.Text)
	case !r.Clean:
		first, _, _ := strings.Cut(r.Text, "\n")
		printLines(t.env.Stdout, first)
	}
	if t.inScript() {
		t.record(func(*joblog.Drop) {})
		return
	}
	found, err := launchers.Ask(t.ofJob(), t.deadline.Left(taskStep, 0))
	t.record(func(d *joblog.Drop) {
		d.Note(found.Steps)
		d.Elsewhere = d.Elsewhere || err != nil || len(found.Steps) == 0 || found.Elsewhere
	})
}

// launchers finds the files that the job's srun processes on this node write to: Steps, or Elsewhere.
var launchers = child.NewOperation("launchers", func(r procscan.JobRequest) (found joblog.Drop, err error) {
	all, err := procscan.Named(r.Proc, "srun", r.UID, r.Owner)
	for _, p := range all {
		written, _ := joblog.Written(r.Proc, p.PID) // a process that has ended writes nothing more
		found.Steps = append(found.Steps, written...)
		found.Elsewhere = found.Elsewhere || joblog.Apart(r.Proc, p.PID)
	}
	slices.SortFunc(found.Steps, func(a, b joblog.Target) int { return cmp.Compare(a.Path, b.Path) })
	found.Steps = slices.Compact(found.Steps)
	return found, err
})

// printLines is the only writer to a TaskProlog's stdout: Slurm obeys "export" there and strips leading blanks.
func printLines(w io.Writer, text string) {
	var b bytes.Buffer
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "print | %s\n", safetext.Keep(strings.TrimSuffix(line, "\n"), report.Width))
	}
	w.Write(b.Bytes())
}

// taskEpilog records where a task's output went and, at the end of the script, names the job's own processes that still
// have a GPU open. Its stderr is the job's log, or the terminal of srun and salloc. The epilog's report does not reach
// a terminal, so what was wrong at the start is repeated there, and what the job has used until now is added, next to
// any error about memory on the screen.
func taskEpilog(t *taskHook) {
	// ENVIRONMENT is Slurm's mark of a job with a script; a step without its environment (--export=NONE) lacks it.
	terminal := !t.recordOutput() && t.task.LocalID == 0 && t.env.Getenv("ENVIRONMENT") != "BATCH"
	if r, err := t.report(); terminal && err == nil {
		if !r.Clean {
			io.WriteString(t.env.Stderr, joblog.Quote(r.Text))
		}
		io.WriteString(t.env.Stderr, joblog.Quote(r.Running))
	}
	if !t.inScript() {
		return
	}
	const most = 8                                                               // a job may have hundreds of workers
	open, _ := procscan.OpenDevices.Ask(t.ofJob(), t.deadline.Left(taskStep, 0)) // none if unknown
	var b strings.Builder
	for _, o := range open[:min(len(open), most)] {
		const words = "bookend: process %d (%s) still uses a GPU at the end of your script"
		line := fmt.Sprintf(words, o.PID, safetext.Clean(o.Name, 24))
		fmt.Fprintf(&b, "| %s\n", safetext.Keep(line, report.Width))
	}
	if len(open) > most {
		fmt.Fprintf(&b, "| bookend:   and %d more\n", len(open)-most)
	}
	io.WriteString(t.env.Stderr, b.String())
}

// recordOutput records where a task's errors went: the file of the TaskEpilog's own stderr, which is that of the first
// task on the node. A TaskProlog cannot know it: its stdout is a pipe to slurmstepd, and the task's own descriptors are
// closed to the user. It reports whether some output of the job is known to be a file.
func (t *taskHook) recordOutput() (file bool) {
	const stderr = 2
	request := joblog.LocateRequest{Proc: t.cfg.Paths.Proc, PID: t.env.PID, FD: stderr}
	found, err := joblog.LocateOutput.Ask(request, t.deadline.Left(taskStep, 0))
	t.record(func(d *joblog.Drop) {
		switch {
		case err != nil:
		case t.inScript():
			d.Target = found
		default:
			d.Note([]joblog.Target{found})
		}
		file = d.Target.Path != "" || len(d.Steps) > 0
	})
	return file
}

// record changes what this job's task hooks on this node leave for the epilog, in the file that the prolog made. Steps
// may begin at the same time; they write one after another, which takes only as long as the writes. A step's hook has
// no fact about the job that the script's does not have better.
func (t *taskHook) record(change func(*joblog.Drop)) {
	const longest = 100 * time.Millisecond
	drop := joblog.Drop{Array: t.task.Array, HetID: t.task.HetID, AddressSpace: t.addressSpace()}
	if name := t.env.Getenv("SLURM_JOB_NAME"); len(name) <= joblog.MaxName && utf8.ValidString(name) {
		drop.Name = name
	}
	dir, name := state.Users{Run: t.cfg.Paths.Run, Node: t.task.Node}.DropFile(uint32(t.env.EUID), t.task.Job())
	if dir == "" {
		return
	}
	// No file is normal, and so is one that another step's hook holds for long.
	_ = safefile.Edit(dir, name, t.deadline.Left(longest, 0), joblog.MaxDrop, func(raw []byte) ([]byte, error) {
		if old, err := joblog.ParseDrop(raw); err == nil && t.inScript() {
			drop.Target, drop.Steps, drop.Elsewhere = old.Target, old.Steps, old.Elsewhere
		} else if err == nil {
			drop = old
		}
		change(&drop)
		return drop.Encode()
	})
}

// addressSpace returns the soft limit of the address space of the job's tasks in bytes, diagnosis.Unlimited for none
// and 0 if unknown. slurmstepd limits a task only after its TaskProlog has run, and never the TaskEpilog (seen with
// 22.05). A limit that Slurm carries from the submitting host is in the environment of both, marked with a U if the
// user asked for it (--propagate). If Slurm carries none, a task has slurmstepd's own limit, as this process does. A
// limit that the script sets for itself is not visible.
func (t *taskHook) addressSpace() uint64 {
	if carried := t.env.Getenv("SLURM_RLIMIT_AS"); carried != "" {
		n, err := strconv.ParseUint(strings.TrimPrefix(carried, "U"), 10, 64)
		if err != nil {
			return 0
		}
		return min(n, record.Unlimited)
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &own); err != nil {
		return 0
	}
	return min(own.Cur, record.Unlimited)
}
