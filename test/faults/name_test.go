package faults

import (
	"os"
	"strings"
	"testing"

	"bookend/internal/slurm"
)

// hostile is a process name that would become a command to slurmstepd, a line of its own in a log, and an
// escape sequence in a terminal.
const hostile = "\nexport PATH=/x"

// A process may call itself anything. Wherever its name is shown it is printable text on a line of ours.
func TestHostileName(t *testing.T) {
	n := newNode(t, "enforce")
	path := n.home()
	j := newJob().with("SLURM_JOB_STDOUT", path, "SLURM_JOB_PARTITION", "main"+hostile, "SLURM_JOB_USER", "nobody"+hostile)
	n.leftover("--name", hostile) // before the job, so that its start is told as well
	texts := map[string]string{}
	texts["prolog"] = n.hook(prolog, j).output
	start := n.task(taskProlog, j)
	texts["task prolog"] = start.output
	n.leftover("--name", hostile)
	texts["epilog"] = n.hook(epilog, j).output
	for _, args := range [][]string{{"show", "100"}, {"status"}, {"snapshot"}} {
		texts["bookend "+args[0]], _ = n.bookend(args...)
	}
	appended, err := os.ReadFile(path)
	must(t, err)
	texts["log"], texts["job's output"] = n.log(), string(appended)
	for _, where := range []string{"task prolog", "job's output", "bookend show", "bookend snapshot"} {
		if !strings.Contains(texts[where], `\x0aexport PATH=/x`) {
			t.Errorf("%s does not name the process:\n%s", where, texts[where])
		}
	}
	for where, text := range texts {
		if strings.Contains(text, hostile) || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
			t.Errorf("%s:\n%q", where, text)
		}
	}
	for line := range strings.Lines(start.output) {
		if !strings.HasPrefix(line, "print | ") || !strings.HasSuffix(line, "\n") {
			t.Errorf("the task prolog says %q", line)
		}
	}
}

var (
	taskProlog = hook{"bookend-prolog", slurm.TaskProlog, margin}
	taskEpilog = hook{"bookend-epilog", slurm.TaskEpilog, margin}
)

// task runs a task hook as slurmstepd does for a batch script: as the user, in the user's environment.
func (n *node) task(h hook, j job) outcome {
	n.Helper()
	return n.start(h, j.with("PATH", "/usr/bin", "LD_PRELOAD", "/nowhere.so", "SLURM_PROCID", "0", "SLURM_LOCALID", "0")).wait()
}

// A task hook that fails would fail the user's job. Whatever is wrong, it exits with 0 and says nothing that
// slurmstepd could obey.
func TestTaskHooksNeverFail(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(n *node)
		job  job
	}{
		"nothing":             {},
		"no configuration":    {harm: func(n *node) { must(n, os.Remove(n.config)) }},
		"bad configuration":   {harm: func(n *node) { must(n, os.WriteFile(n.config, []byte("x"), 0o644)) }},
		"his configuration":   {harm: func(n *node) { must(n, os.Chown(n.config, user, 0)) }},
		"hidden":              {harm: func(n *node) { must(n, os.Chmod(n.config, 0o600)) }},
		"no state":            {harm: func(n *node) { must(n, os.RemoveAll(n.conf.run)) }},
		"no drop folder":      {harm: func(n *node) { must(n, os.RemoveAll(n.conf.run+"/drop")) }},
		"another's report":    {job: newJob().with("SLURM_JOB_ID", "7", "SLURM_JOBID", "7")},
		"no job":              {job: newJob().with("SLURM_JOB_ID", "", "SLURM_JOBID", "")},
		"garbage for a job":   {job: newJob().with("SLURM_JOB_ID", "../7", "SLURM_JOBID", "../7")},
		"no node":             {job: newJob().with("SLURMD_NODENAME", "")},
		"garbage for a node":  {job: newJob().with("SLURMD_NODENAME", "../n1")},
		"garbage for a GPU":   {job: newJob().with("SLURM_JOB_GPUS", "\nexport PATH=/x")},
		"garbage for a step":  {job: newJob().with("SLURM_STEP_ID", "\nexport PATH=/x")},
		"garbage for a local": {job: newJob().with("SLURM_LOCALID", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			n.clean(prolog, bystanding())
			n.clean(prolog, newJob())
			others := n.record()
			if tt.harm != nil {
				tt.harm(n)
			}
			if tt.job == nil {
				tt.job = newJob()
			}
			for _, h := range []hook{taskProlog, taskEpilog} {
				o := n.task(h, tt.job)
				if o.exit != 0 || strings.Contains(o.output, "export") || strings.Contains(o.output, "goroutine") {
					t.Errorf("%s: %v", h.context, o)
				}
				for line := range strings.Lines(o.output) {
					if !strings.HasPrefix(line, "print | bookend: ") {
						t.Errorf("%s says %q", h.context, line)
					}
				}
			}
			if name != "no state" {
				n.unharmed(others)
			}
		})
	}
}
