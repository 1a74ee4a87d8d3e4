package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/joblog"
	"bookend/test/rig"
)

// hostile is a process name that would become a command to slurmstepd, a line of its own in a log, and an
// escape sequence in a terminal.
const hostile = "\nexport PATH=/x"

// A process may call itself anything. Wherever its name is shown it is printable text on a line of ours.
func TestHostileName(t *testing.T) {
	n := newNode(t, "enforce")
	path := n.home()
	j := newJob().With("SLURM_JOB_STDOUT", path, "SLURM_JOB_PARTITION", "main"+hostile, "SLURM_JOB_USER",
		"nobody"+hostile)
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
	texts["log"], texts["job's output"] = n.log(), n.get(path)
	for _, where := range []string{"task prolog", "job's output", "bookend show", "bookend snapshot"} {
		if !strings.Contains(texts[where], `\x0aexport PATH=/x`) {
			t.Errorf("%s does not name the process:\n%s", where, texts[where])
		}
	}
	for where, text := range texts {
		if strings.Contains(text, hostile) || !printable(text) {
			t.Errorf("%s:\n%q", where, text)
		}
	}
	for line := range strings.Lines(start.output) {
		if !strings.HasPrefix(line, "print | ") || !strings.HasSuffix(line, "\n") {
			t.Errorf("the task prolog says %q", line)
		}
	}
}

// A task hook that fails would fail the user's job. Whatever is wrong, it exits with 0 and says nothing that
// slurmstepd could obey.
func TestTaskHooksNeverFail(t *testing.T) {
	with := func(pairs ...string) job { return newJob().With(pairs...) }
	for name, tt := range map[string]struct {
		harm func(n *node)
		job  job
	}{
		"nothing":            {job: newJob()},
		"no configuration":   {func(n *node) { must(n, os.Remove(n.config)) }, newJob()},
		"bad configuration":  {func(n *node) { n.put(n.config, "x", 0o644) }, newJob()},
		"his configuration":  {func(n *node) { n.give(n.config, user) }, newJob()},
		"hidden":             {func(n *node) { must(n, os.Chmod(n.config, 0o600)) }, newJob()},
		"no drop directory":  {func(n *node) { must(n, os.RemoveAll(n.conf.run+"/drop")) }, newJob()},
		"another's report":   {job: newJob().Numbered(7)},
		"no job":             {job: with("SLURM_JOB_ID", "", "SLURM_JOBID", "")},
		"garbage for a job":  {job: with("SLURM_JOB_ID", "../7", "SLURM_JOBID", "../7")},
		"garbage for a node": {job: with("SLURMD_NODENAME", "../n1")},
		"garbage for a GPU":  {job: with("SLURM_JOB_GPUS", hostile)},
		"garbage for a step": {job: with("SLURM_STEP_ID", hostile, "SLURM_LOCALID", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			n.clean(prolog, bystanding())
			n.clean(prolog, newJob())
			others := n.record()
			if tt.harm != nil {
				tt.harm(n)
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
			n.unharmed(others)
		})
	}
}

// What a job's steps write to is on record for its epilog: what srun has open on this node, and one file a task. What
// the script's hooks add later takes nothing of it away.
func TestStepsRecorded(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	folder := filepath.Dir(n.home())
	in := func(name string) string { return filepath.Join(folder, name) }
	open := func(name string) *os.File {
		f, err := os.Create(in(name))
		must(t, err)
		must(t, f.Chown(user, user))
		t.Cleanup(func() { f.Close() })
		return f
	}
	task := func(procid, localid string) job {
		return newJob().With("SLURM_STEP_ID", "0", "SLURM_PROCID", procid, "SLURM_LOCALID", localid, "SLURM_JOB_NAME",
			"a name")
	}
	end := n.srun(in("srun"), open("step.txt"))
	n.recorded(func(d joblog.Drop) bool { return len(d.Steps) == 0 && d.Name == "" && !d.Elsewhere })
	n.task(taskProlog, task("0", "0"))
	n.recorded(func(d joblog.Drop) bool {
		return len(d.Steps) == 1 && d.Steps[0].Path == in("step.txt") && !d.Elsewhere
	})
	end()

	errs := open("e.0")
	open("e.1")
	<-n.startWith(taskEpilog, task("1", "1"), errs).ended
	n.recorded(func(d joblog.Drop) bool {
		return len(d.Steps) == 2 && d.Steps[0].Path == in("e.1") && d.Steps[1].Path == in("step.txt") && d.More == 0
	})
	<-n.startWith(taskEpilog, task("2", "2"), errs).ended
	n.recorded(func(d joblog.Drop) bool { return len(d.Steps) == 3 && d.Steps[0].Path == in("e.0") && d.More == 1 })

	n.task(taskProlog, task("0", "0"))
	n.recorded(func(d joblog.Drop) bool { return d.Elsewhere })
	<-n.startWith(taskEpilog, newJob().With("SLURM_JOB_NAME", "a name"), open("slurm-100.out")).ended
	n.recorded(func(d joblog.Drop) bool {
		return d.Target.Path == in("slurm-100.out") && len(d.Steps) == 3 && d.Elsewhere && d.Name == "a name"
	})
}

// srun is a process of that name of the job's user, which writes to a file until it is ended.
func (n *node) srun(path string, out *os.File) (end func()) {
	n.Helper()
	n.put(path, n.get("/bin/sleep"), 0o755)
	cmd := exec.Command(path, "60")
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = []string{"SLURM_JOB_ID=100"}, out, out, rig.As(user)
	must(n, cmd.Start())
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	n.Cleanup(end)
	return end
}

// recorded checks what the task hooks left so far.
func (n *node) recorded(as func(joblog.Drop) bool) {
	n.Helper()
	raw := n.get(n.dropped())
	var drop joblog.Drop
	if raw != "" {
		var err error
		drop, err = joblog.ParseDrop([]byte(raw))
		must(n, err)
	}
	if !as(drop) {
		n.Errorf("the record is %s", raw)
	}
}
