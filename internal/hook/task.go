package hook

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/joblog"
	"bookend/internal/leftover"
	"bookend/internal/node"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// taskHook runs as the user and in the user's environment: nothing in it is trusted. It always exits 0.
type taskHook struct {
	a      *node.Access
	task   slurm.Task
	cgroup string // the text of the hook's own cgroup file
}

// ofUser frames a TaskProlog or TaskEpilog. Any exit code but 0 would fail the user's job.
func ofUser(env Env, phase slurm.Context, body func(*taskHook)) int {
	quiet := func(*child.Panic) {} // Slurm would read a TaskProlog's stack as commands
	defer child.Recover(quiet)
	if !slurm.HasGPUs(env.Getenv) {
		return 0
	}
	start, watchdog := env.Clock.Boot(), newWatchdog()
	defer watchdog.guard(func() { env.Exit(0) }, quiet, func(string) {})()
	a, _ := node.Configured(env, phase, start) // root hooks report a bad configuration
	own, _ := os.ReadFile(filepath.Join(a.Config.Paths.Proc, "self/cgroup"))
	watchdog.limit(a.Deadline)
	body(&taskHook{a, slurm.TaskFromEnv(env.Getenv, string(own)), string(own)})
	return 0
}

func (t *taskHook) report() (state.Report, error) {
	return t.users().Report(uint32(t.a.Env.EUID), t.task.Job())
}

// users returns the files that root hooks share with the job's user.
func (t *taskHook) users() state.Users {
	return state.Users{Run: t.a.Config.Paths.Run, Node: t.task.Node}
}

func (t *taskHook) inScript() bool {
	return t.task.Step == slurm.StepBatch || t.task.Step == slurm.StepInteractive
}

// step returns the time for a child: two fifths of the hook's.
func (t *taskHook) step() time.Duration {
	return t.a.Deadline.Left(time.Duration(t.a.Config.Deadlines.Task)*2/5, 0)
}

// ofJob returns a request for the job's processes, as far as its user may see them.
func (t *taskHook) ofJob() procscan.JobRequest {
	paths := t.a.Config.Paths
	return procscan.JobRequest{Proc: paths.Proc, Dev: paths.Dev, UID: uint32(t.a.Env.EUID), Owner: t.task.Job()}
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
		io.WriteString(t.a.Env.Stdout, report.Printed(r.Text))
	case !r.Clean:
		first, _, _ := strings.Cut(r.Text, "\n")
		io.WriteString(t.a.Env.Stdout, report.Printed(first))
	}
	if t.inScript() {
		t.record(func(*joblog.Drop) {})
		t.compare(r)
		return
	}
	found, err := t.launchers()
	t.record(func(d *joblog.Drop) {
		d.Note(found.Steps)
		d.Elsewhere = d.Elsewhere || err != nil || len(found.Steps) == 0 || found.Elsewhere
	})
}

// compare prints a line if the user's last runs of a batch job's name used more than one of its GPUs has. What their
// spool holds is the user's own, as is this process. A child that hangs there is in the job's cgroup until its end.
func (t *taskHook) compare(r state.Report) {
	get, name := t.a.Env.Getenv, t.jobName()
	// Threat: root must not open a user's files.
	if !t.a.Config.JobLog.Peaks || r.Memory == 0 || name == "" || t.task.Step != slurm.StepBatch || t.a.Env.EUID == 0 {
		return
	}
	line, _ := joblog.MayNotFit.Ask(joblog.FitRequest{
		Dir: t.a.Config.Spool, User: get("SLURM_JOB_USER"), Home: get("HOME"), UID: uint32(t.a.Env.EUID),
		Cluster: get(leftover.ClusterVariable), Name: name, GPU: joblog.Model{Name: r.GPU, Total: r.Memory},
	}, t.step())
	io.WriteString(t.a.Env.Stdout, report.Printed(line))
}

// jobName returns the job's name; empty in a step, where the variable has the step's, and if it is an odd one.
func (t *taskHook) jobName() string {
	name := t.a.Env.Getenv("SLURM_JOB_NAME")
	if !t.inScript() || len(name) > joblog.MaxName || !utf8.ValidString(name) {
		return ""
	}
	return name
}

// launchers finds the files that the job's srun processes on this node write to. A job of one step, as srun starts it,
// has none in its cgroup: that takes neither a child nor a search of /proc. An srun in a shell that salloc opened on
// this very node is missed: where its output goes is then unknown.
func (t *taskHook) launchers() (found joblog.Drop, err error) {
	if onlyStep(t.a.Config.Paths.Sys, t.cgroup) {
		return found, nil
	}
	return launchers.Ask(t.ofJob(), t.step())
}

// onlyStep reports whether the job of a cgroup (v2) has no other step, but for that of shells from elsewhere (extern).
func onlyStep(sys, ownCgroup string) bool {
	job, own := slurm.StepCgroup(ownCgroup)
	// Threat: none: the kernel lists it, of a directory that Slurm made.
	steps, err := os.ReadDir(filepath.Join(sys, "fs/cgroup", job))
	return own != "" && err == nil && !slices.ContainsFunc(steps, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "step_") && e.Name() != own && e.Name() != "step_extern"
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

// taskEpilog records where a task's output went and, at the end of the script, names the job's own processes that still
// have a GPU open. Its stderr is the job's log, or the terminal of srun and salloc. A terminal does
// not get the epilog's report: there it writes what the job has used until now, or what was wrong at the start. For
// a cancelled job it writes nothing: its processes are still being ended.
func taskEpilog(t *taskHook) {
	file, cancelled := t.recordOutput()
	if cancelled {
		return
	}
	// ENVIRONMENT is Slurm's mark of a job with a script; a step without its environment (--export=NONE) lacks it.
	terminal := !file && t.task.LocalID == 0 && t.a.Env.Getenv("ENVIRONMENT") != "BATCH"
	if r, err := t.report(); terminal && err == nil {
		text := r.Running
		if first, _, _ := strings.Cut(r.Text, "\n"); text == "" && !r.Clean {
			text = first + "\n"
		}
		io.WriteString(t.a.Env.Stderr, joblog.Quote(text))
	}
	if !t.inScript() {
		return
	}
	open, _ := procscan.OpenDevices.Ask(t.ofJob(), t.step()) // none if unknown
	var processes []record.Process
	for _, o := range open {
		processes = append(processes, record.Process{PID: o.PID, Name: o.Name})
	}
	io.WriteString(t.a.Env.Stderr, report.StillOpen(processes))
}

// recordOutput records where a task's errors went: the file of the TaskEpilog's own stderr, which is that of the first
// task on the node. A TaskProlog cannot know it: its stdout is a pipe to slurmstepd, and the task's own descriptors are
// closed to the user. It reports whether some output of the job is known to be a file, and whether that file says that
// the job was cancelled.
func (t *taskHook) recordOutput() (file, cancelled bool) {
	const stderr = 2
	request := joblog.LocateRequest{Proc: t.a.Config.Paths.Proc, PID: t.a.Env.PID, FD: stderr}
	found, err := joblog.Located{}, joblog.ErrNotFile
	// A step's is a pipe to srun: no file system need be asked, so no child.
	open, _ := os.Readlink(fmt.Sprintf("%s/%d/fd/%d", request.Proc, request.PID, stderr))
	if filepath.IsAbs(open) {
		found, err = joblog.LocateOutput.Ask(request, t.step())
	}
	t.record(func(d *joblog.Drop) {
		switch {
		case err != nil:
		case t.inScript():
			d.Target = found.Target
		default:
			d.Note([]joblog.Target{found.Target})
		}
		file = d.Target.Path != "" || len(d.Steps) > 0
	})
	return file, found.Cancelled
}

// record changes what this job's task hooks on this node leave for the epilog, in the file that the prolog made. Steps
// may begin at the same time; they write one after another, which takes only as long as the writes. A step's hook has
// no fact about the job that the script's does not have better.
func (t *taskHook) record(change func(*joblog.Drop)) {
	drop := joblog.Drop{Array: t.task.Array, HetID: t.task.HetID, Name: t.jobName(), AddressSpace: t.addressSpace()}
	edit := func(raw []byte) ([]byte, error) {
		if old, err := joblog.ParseDrop(raw); err == nil && t.inScript() {
			drop.Target, drop.Steps, drop.Elsewhere = old.Target, old.Steps, old.Elsewhere
		} else if err == nil {
			drop = old
		}
		change(&drop)
		return drop.Encode()
	}
	limit := t.a.Deadline.Left(100*time.Millisecond, 0)
	// No file is normal, and so is one that another step's hook holds for long.
	_ = t.users().EditDrop(uint32(t.a.Env.EUID), t.task.Job(), limit, edit)
}

// addressSpace returns the soft limit of the address space of the job's tasks in bytes, diagnosis.Unlimited for none
// and 0 if unknown. slurmstepd limits a task only after its TaskProlog has run, and never the TaskEpilog (seen with
// 22.05). A limit that Slurm carries from the submitting host is in the environment of both, marked with a U if the
// user asked for it (--propagate). If Slurm carries none, a task has slurmstepd's own limit, as this process does. A
// limit that the script sets for itself is not visible.
func (t *taskHook) addressSpace() uint64 {
	if carried := t.a.Env.Getenv("SLURM_RLIMIT_AS"); carried != "" {
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
