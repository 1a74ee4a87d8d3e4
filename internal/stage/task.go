package stage

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/joblog"
	"bookend/internal/operation"
	"bookend/internal/report"
	"bookend/internal/routine"
	"bookend/internal/safefile"
	"bookend/internal/session"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// task is one run of a task hook. It runs as the user, in the user's environment: nothing it is told is
// trusted, nothing it does can hurt anybody but that user, and it always ends with 0.
type task struct {
	*session.Frame
	env Env
	cfg config.Config
	slurm.Task
}

// taskHook frames a TaskProlog or TaskEpilog. Anything but exit code 0 would fail the user's job.
func taskHook(env Env, body func(*task)) int {
	quiet := func(*routine.Panic) {} // a stack in a TaskProlog would be read as commands
	defer routine.Recover(quiet)
	if !slurm.HasGPUs(env.Getenv) {
		return 0
	}
	t := &task{Frame: session.NewFrame(env.Clock), env: env}
	defer t.Guard(env.Exit, quiet, func(string) {})()
	t.cfg, _ = session.LoadConfig(env) // root hooks report a bad configuration
	own, _ := session.OwnCgroup(t.cfg.Paths.Proc)
	t.Task = slurm.TaskFromEnv(env.Getenv, own)
	t.Limit(time.Duration(t.cfg.Deadlines.Task))
	body(t)
	return 0
}

// taskProlog prints the start report once a node, and records what the epilog is to know of the job's outputs.
func taskProlog(t *task) {
	if t.LocalID > 0 {
		return
	}
	t.greet()
	if t.inScript() {
		t.record(func(*joblog.Drop) {})
	} else {
		t.recordLauncher()
	}
}

// greet prints the start report, if there is one: at the start of the script, and of what is wrong a line at a step's.
func (t *task) greet() {
	r, err := state.GetReport(t.cfg.Paths.Run, t.Node, t.Job())
	if err != nil {
		return // no prolog, or not this user's report
	}
	text := r.Text
	if !t.inScript() {
		if text, _, _ = strings.Cut(r.Text, "\n"); r.Clean {
			return
		}
	}
	printLines(t.env.Stdout, text)
}

func (t *task) inScript() bool { return t.Step == slurm.StepBatch || t.Step == slurm.StepInteractive }

// printLines is the one function that writes to a TaskProlog's stdout. Slurm obeys "export" and "unset" lines
// there, strips leading blanks, and ends a line without newline with a NUL byte.
func printLines(w io.Writer, text string) {
	var b bytes.Buffer
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "print | %s\n", report.Keep(strings.TrimSuffix(line, "\n"), report.Width))
	}
	w.Write(b.Bytes())
}

// quote puts the mark of the start's lines in front of each line of a text.
func quote(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("| " + line)
	}
	return b.String()
}

// taskStep leaves a task hook time to print.
const taskStep = 400 * time.Millisecond

// taskEpilog records where a task's output went, and names, at the end of the script, the job's own processes that
// still have a GPU open. Its stderr is the job's log.
func taskEpilog(t *task) {
	t.recordOutput()
	if !t.inScript() {
		return
	}
	paths := t.cfg.Paths
	request := operation.JobRequest{Proc: paths.Proc, Dev: paths.Dev, UID: uint32(t.env.EUID), Owner: t.Job()}
	open, err := operation.OpenDevices.Ask(request, t.Left(taskStep, 0))
	if err != nil || len(open) == 0 {
		return
	}
	var b strings.Builder
	for i, o := range open {
		if i == maxOpen {
			fmt.Fprintf(&b, "| bookend:   and %d more\n", len(open)-i)
			break
		}
		const words = "bookend: process %d (%s) still uses a GPU at the end of your script"
		line := fmt.Sprintf(words, o.PID, report.Clean(o.Name, 24))
		fmt.Fprintf(&b, "| %s\n", report.Keep(line, report.Width))
	}
	io.WriteString(t.env.Stderr, b.String())
}

// maxOpen keeps a job with hundreds of workers from filling its own log.
const maxOpen = 8

// recordOutput leaves where a task's errors went: to the file of the TaskEpilog's own stderr, which is that of the
// first task on the node; the others' have names like it. A TaskProlog cannot know: its stdout is a pipe to slurmstepd,
// and the task's own descriptors are closed to the user.
func (t *task) recordOutput() {
	const stderr = 2
	request := operation.LocateRequest{Proc: t.cfg.Paths.Proc, PID: t.env.PID, FD: stderr}
	if !t.inScript() {
		request.Task, request.Others = t.numbers()
	}
	found, err := operation.Locate.Ask(request, t.Left(taskStep, 0))
	switch {
	case t.inScript():
		t.record(func(d *joblog.Drop) {
			if err == nil {
				d.Target = found.Target
			}
		})
	case err == nil:
		t.record(func(d *joblog.Drop) { note(d, found) })
	}
}

// note adds a task's file to the record; without one, that of the first task, and that one is missing.
func note(d *joblog.Drop, found operation.Located) {
	if found.Own.Path != "" {
		d.Note([]joblog.Target{found.Own})
		return
	}
	d.Note([]joblog.Target{found.Target})
	if found.Lost {
		d.More++
	}
}

// numbers are the task's own, and those that the first task of its step on this node may have: tasks are dealt out in
// blocks, or one node after the other.
func (t *task) numbers() (own int, first []int) {
	own, err := strconv.Atoi(t.env.Getenv("SLURM_PROCID"))
	if err != nil || own < 0 || t.LocalID < 0 {
		return 0, nil
	}
	first = []int{max(0, own-t.LocalID)}
	node, err := strconv.Atoi(t.env.Getenv("SLURM_NODEID"))
	if err == nil && node >= 0 && node != first[0] && t.LocalID > 0 {
		first = append(first, node)
	}
	return own, first
}

// recordLauncher leaves where a step's output goes that srun writes: to its own output, or to a file that it opened
// (srun -o).
func (t *task) recordLauncher() {
	request := operation.JobRequest{Proc: t.cfg.Paths.Proc, UID: uint32(t.env.EUID), Owner: t.Job()}
	found, err := operation.Launchers.Ask(request, t.Left(taskStep, 0))
	t.record(func(d *joblog.Drop) {
		d.Note(found.Files)
		d.Elsewhere = d.Elsewhere || err != nil || len(found.Files) == 0 || found.Apart
	})
}

// record changes what the task hooks of this job on this node leave for the epilog, in the file that the prolog made.
// Steps may begin at the same time: one after the other writes.
func (t *task) record(change func(*joblog.Drop)) {
	drop := t.drop()
	dir, name := state.DropFile(t.cfg.Paths.Run, t.Node, t.Job())
	if dir == "" {
		return
	}
	// Threat: none but the user's own: this is his file, and his process. Without one there is no record: that is normal.
	release, err := safefile.Lock(filepath.Join(dir, name), t.Left(dropWait, 0), true)
	if err != nil {
		return
	}
	defer release()
	t.recall(dir, name, &drop)
	change(&drop)
	if data, err := drop.Encode(); err == nil {
		_ = safefile.Rewrite(dir, name, data)
	}
}

// dropWait is the longest wait for other writers, which take no longer than it takes to write.
const dropWait = 100 * time.Millisecond

// recall adds what was left so far. A step's hook knows nothing of the job that the script's would not know better.
func (t *task) recall(dir, name string, d *joblog.Drop) {
	raw, err := safefile.Read(dir, name, joblog.MaxDrop)
	if err != nil {
		return
	}
	old, err := joblog.ParseDrop(raw)
	switch {
	case err != nil:
	case t.inScript():
		d.Target, d.Steps, d.More, d.Elsewhere = old.Target, old.Steps, old.More, old.Elsewhere
	default:
		*d = old
	}
}

// drop is what a task hook knows of the job.
func (t *task) drop() joblog.Drop {
	d := joblog.Drop{Array: t.Array, HetID: t.HetID, AddressSpace: t.addressSpace()}
	if name := t.env.Getenv("SLURM_JOB_NAME"); len(name) <= joblog.MaxName && utf8.ValidString(name) {
		d.Name = name
	}
	return d
}

// addressSpace is the soft limit of address space of the job's tasks, bytes, joblog.Unlimited for none and 0 where
// nobody can tell. slurmstepd limits a task only after its TaskProlog has run, and never the TaskEpilog (seen with
// 22.05): what Slurm carries from the submitting host stands in the environment of both, marked with a U where the user
// asked for it (--propagate). Where it carries nothing a task has slurmstepd's own limit, as this process does. A limit
// that the script sets for itself shows nowhere.
func (t *task) addressSpace() uint64 {
	if carried := t.env.Getenv("SLURM_RLIMIT_AS"); carried != "" {
		n, err := strconv.ParseUint(strings.TrimPrefix(carried, "U"), 10, 64)
		if err != nil {
			return 0
		}
		return min(n, joblog.Unlimited)
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &own); err != nil {
		return 0
	}
	return min(own.Cur, joblog.Unlimited)
}
