package stage

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"bookend/internal/config"
	"bookend/internal/joblog"
	"bookend/internal/operation"
	"bookend/internal/report"
	"bookend/internal/routine"
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
	request := operation.OpenRequest{Proc: paths.Proc, Dev: paths.Dev, UID: uint32(t.env.EUID), Owner: t.Job()}
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
