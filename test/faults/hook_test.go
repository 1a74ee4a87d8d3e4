package faults

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bookend/internal/slurm"
	"bookend/test/rig"
)

// hook is one of the programs that slurmd runs as root, or slurmstepd as the user.
type hook struct {
	program string
	context slurm.Context
	limit   time.Duration // its deadline with tight times
}

var (
	prolog = hook{"bookend-prolog", slurm.Prolog, 6 * time.Second}
	epilog = hook{"bookend-epilog", slurm.Epilog, 9 * time.Second}
	hooks  = []hook{prolog, epilog}

	taskProlog = hook{"bookend-prolog", slurm.TaskProlog, margin}
	taskEpilog = hook{"bookend-epilog", slurm.TaskEpilog, margin}

	// healthcheck is told no job, and nothing but the node.
	healthcheck = hook{"bookend-healthcheck", slurm.HealthCheck, 12 * time.Second}
	bySlurm     = job{"SLURMD_NODENAME": nodeName}
)

// outcome is what slurmd sees of a hook.
type outcome struct {
	exit   int // -1: ended by a signal
	output string
}

func (o outcome) String() string { return fmt.Sprintf("exit %d: %s", o.exit, o.output) }

// running is a hook that has not ended.
type running struct {
	*node
	cmd    *exec.Cmd
	limit  time.Duration
	pipe   *os.File // our end of the hook's stdout and stderr
	output chan string
	ended  chan struct{}
	// forUser: the job's user reads what it writes.
	forUser bool
}

// margin is what a busy machine may add to a hook's deadline. A hook that hangs never ends; how long one takes is
// measured by test/bench.
const margin = time.Minute

// start runs a hook as slurmd does: nothing on stdin, one pipe for all output, a process group of its own.
func (n *node) start(h hook, j job) *running {
	n.Helper()
	r, w, err := os.Pipe()
	must(n, err)
	p := n.startWith(h, j, w)
	w.Close()
	p.pipe = r
	go func() {
		text, _ := io.ReadAll(r)
		p.output <- string(text)
	}()
	return p
}

// startWith is start with the hook's end of a pipe.
func (n *node) startWith(h hook, j job, w *os.File) *running {
	n.Helper()
	p := &running{node: n, limit: 4 * time.Minute, output: make(chan string, 1), ended: make(chan struct{})}
	if n.conf.tight {
		p.limit = h.limit
	}
	path := h.program
	if !filepath.IsAbs(path) {
		path = program(path)
	}
	p.cmd = exec.Command(path)
	if n.gated {
		p.cmd = exec.Command("/usr/bin/env", path)
	}
	p.cmd.Env, p.cmd.Dir = j.Environ(n.config, h.context), "/"
	p.cmd.Stdout, p.cmd.Stderr = w, w
	p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	if h.context == slurm.TaskProlog || h.context == slurm.TaskEpilog {
		p.cmd.SysProcAttr, p.forUser = rig.As(user), true
	}
	p.cmd.SysProcAttr.Setpgid = true
	must(n, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return p
}

// wait returns when the hook has ended, which it must by its deadline, and its pipe with it: while a child holds
// that, slurmd keeps the node completing.
func (p *running) wait() outcome {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(p.limit + margin):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		p.Fatalf("%s: still there %v after its deadline of %v", p.cmd, margin, p.limit)
	}
	o := outcome{exit: p.cmd.ProcessState.ExitCode()}
	select {
	case o.output = <-p.output:
		p.pipe.Close()
		if p.forUser {
			p.heard.shows(o.output)
		}
	case <-time.After(margin):
		p.Fatalf("%s has ended, but something still holds its stdout", p.cmd)
	}
	return o
}

// signal sends one to the hook's group, as slurmd does.
func (p *running) signal(s syscall.Signal) {
	p.Helper()
	must(p, syscall.Kill(-p.cmd.Process.Pid, s))
}

// hook runs one to its end.
func (n *node) hook(h hook, j job) outcome {
	n.Helper()
	return n.start(h, j).wait()
}

// exits runs a hook that must end with a code, whatever it finds.
func (n *node) exits(want int, h hook, j job) outcome {
	n.Helper()
	o := n.hook(h, j)
	if o.exit != want {
		n.Errorf("%s of job %s: want exit %d: %v\n%s", h.program, j["SLURM_JOB_ID"], want, o, n.log())
	}
	return o
}

// together runs one hook of each job at the same moment: all must end with 0, and judge may look closer.
func (n *node) together(h hook, jobs []job, judge func(job, outcome)) {
	n.Helper()
	var all sync.WaitGroup
	for _, j := range jobs {
		p := n.start(h, j)
		all.Go(func() {
			o := p.wait()
			if judge != nil {
				judge(j, o)
			} else if o.exit != 0 {
				n.Errorf("%s of job %s: %v", h.program, j["SLURM_JOB_ID"], o)
			}
		})
	}
	all.Wait()
}

// jobsFrom are so many jobs, numbered from one on.
func jobsFrom(first, count int) (all []job) {
	for id := first; id < first+count; id++ {
		all = append(all, numbered(id))
	}
	return all
}

// clean runs a hook that must find nothing.
func (n *node) clean(h hook, j job) {
	n.Helper()
	if o := n.hook(h, j); o.exit != 0 || o.output != "" {
		n.Fatalf("a clean %s: %v\n%s", h.program, o, n.log())
	}
}

// job runs a job with which all is well.
func (n *node) job(id int) { n.Helper(); n.clean(prolog, numbered(id)); n.clean(epilog, numbered(id)) }

// task runs a task hook as slurmstepd does for a batch script: as the user, in the user's environment.
func (n *node) task(h hook, j job) outcome {
	n.Helper()
	j = j.With("PATH", "/usr/bin", "LD_PRELOAD", "/nowhere.so")
	for _, name := range []string{"SLURM_PROCID", "SLURM_LOCALID"} {
		j[name] = cmp.Or(j[name], "0")
	}
	return n.hook(h, j)
}

// bookend runs the command line.
func (n *node) bookend(args ...string) (string, int) { n.Helper(); return n.bookendAs(0, args...) }

// bookendAs runs the command line as somebody.
func (n *node) bookendAs(uid int, args ...string) (string, int) {
	n.Helper()
	cmd := exec.Command(program("bookend"), args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{"BOOKEND_CONFIG=" + n.config, "TZ=UTC"}, "/", rig.As(uid)
	text, err := cmd.CombinedOutput()
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		n.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// shows requires that a command line of root's tells something.
func (n *node) shows(want string, args ...string) {
	n.Helper()
	if text, _ := n.bookend(args...); !strings.Contains(text, want) {
		n.Errorf("bookend %s: want %q in\n%s", strings.Join(args, " "), want, text)
	}
}

// lines returns the lines of a text that contain all parts.
func lines(text string, parts ...string) (found []string) {
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

// script writes a script of root's.
func (n *node) script(name, text string) string {
	n.Helper()
	return n.executable(name, "#!/bin/sh\n"+text+"\n")
}

// executable writes a program of root's.
func (n *node) executable(name, data string) string {
	n.Helper()
	// a child that another test starts now would have it open for writing, and nobody could run it
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return n.put(name, data, 0o755)
}

// await waits for something that comes about in another process and cannot be waited for otherwise.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(margin); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
