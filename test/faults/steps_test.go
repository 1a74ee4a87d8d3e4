package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"bookend/internal/joblog"
	"bookend/internal/state"
)

// What a job's steps write to is on record for its epilog: what srun has open on this node, and one file a task. What the script's
// hooks add later takes nothing of it away.
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
	step := newJob().with("SLURM_STEP_ID", "0", "SLURM_PROCID", "1", "SLURM_LOCALID", "1", "SLURM_JOB_NAME", "a name")
	end := n.srun(in("srun"), open("step.txt"))
	n.recorded(func(d joblog.Drop) bool { return len(d.Steps) == 0 && d.Name == "" && !d.Elsewhere })
	n.task(taskProlog, step)
	n.recorded(func(d joblog.Drop) bool {
		return len(d.Steps) == 1 && d.Steps[0].Path == in("step.txt") && !d.Elsewhere
	})
	end()

	errs := open("e.0")
	open("e.1")
	<-n.startWith(taskEpilog, step, errs).ended
	n.recorded(func(d joblog.Drop) bool {
		return len(d.Steps) == 2 && d.Steps[0].Path == in("e.1") && d.Steps[1].Path == in("step.txt") && d.More == 0
	})
	<-n.startWith(taskEpilog, step.with("SLURM_PROCID", "2", "SLURM_LOCALID", "2"), errs).ended
	n.recorded(func(d joblog.Drop) bool { return len(d.Steps) == 3 && d.Steps[0].Path == in("e.0") && d.More == 1 })

	n.task(taskProlog, step)
	n.recorded(func(d joblog.Drop) bool { return d.Elsewhere })
	<-n.startWith(taskEpilog, newJob().with("SLURM_JOB_NAME", "a name"), open("slurm-100.out")).ended
	n.recorded(func(d joblog.Drop) bool {
		return d.Target.Path == in("slurm-100.out") && len(d.Steps) == 3 && d.Elsewhere && d.Name == "a name"
	})
}

// srun is a process of that name of the job's user, which writes to a file until it is ended.
func (n *node) srun(path string, out *os.File) (end func()) {
	n.Helper()
	program, err := os.ReadFile("/bin/sleep")
	must(n, err)
	must(n, os.WriteFile(path, program, 0o755))
	cmd := exec.Command(path, "60")
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"SLURM_JOB_ID=100"}, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
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
	var drop joblog.Drop
	raw, err := os.ReadFile(filepath.Join(n.conf.run, "drop", nodeName+"_100", state.DropFile))
	if err == nil {
		drop, err = joblog.ParseDrop(raw)
		must(n, err)
	}
	if !as(drop) {
		n.Errorf("the record is %s", raw)
	}
}
