package faults

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"bookend/internal/slurm"
)

// job is what slurmd tells a hook, and what a test changes of it.
type job map[string]string

// newJob is the environment that slurmd 22.05 builds from scratch for job 100 on the first card.
func newJob() job {
	return job{
		"SLURMD_NODENAME": nodeName, "SLURM_CLUSTER_NAME": "lab", "SLURM_CONF": "/etc/slurm/slurm.conf",
		"SLURM_JOB_ID": "100", "SLURM_JOBID": "100",
		"SLURM_JOB_UID": strconv.Itoa(user), "SLURM_UID": strconv.Itoa(user), "SLURM_JOB_GID": strconv.Itoa(user),
		"SLURM_JOB_USER": "nobody", "SLURM_NODELIST": nodeName, "SLURM_JOB_PARTITION": "main", "SLURM_JOB_CONSTRAINTS": "(null)",
		"SLURM_JOB_WORK_DIR": "/", "SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0", "GPU_DEVICE_ORDINAL": "0",
		"SLURM_JOB_ACCOUNT": "(null)", "SLURM_JOB_COMMENT": "a \"comment\" of the user's", "SLURM_JOB_CPUS_PER_NODE": "1",
		"SLURM_JOB_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_RESERVATION": "(null)", "SLURM_JOB_RESTART_COUNT": "0",
	}
}

// bystanding is another user's job on the last card.
func bystanding() job {
	return newJob().with("SLURM_JOB_ID", strconv.Itoa(bystanderID), "SLURM_JOBID", strconv.Itoa(bystanderID),
		"SLURM_JOB_UID", strconv.Itoa(bystander), "SLURM_UID", strconv.Itoa(bystander), "SLURM_JOB_GID", strconv.Itoa(bystander), "SLURM_JOB_USER", bystanderName,
		"SLURM_JOB_GPUS", "1", "CUDA_VISIBLE_DEVICES", "1", "GPU_DEVICE_ORDINAL", "1")
}

// with returns a job with variables changed; an empty value removes one.
func (j job) with(pairs ...string) job {
	changed := maps.Clone(j)
	for i := 0; i+1 < len(pairs); i += 2 {
		if changed[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
			delete(changed, pairs[i])
		}
	}
	return changed
}

// hook is one of the programs that slurmd runs as root.
type hook struct {
	program string
	context slurm.Context
	limit   time.Duration // its deadline with tight times
}

var (
	prolog = hook{"bookend-prolog", slurm.Prolog, 6 * time.Second}
	epilog = hook{"bookend-epilog", slurm.Epilog, 9 * time.Second}
	hooks  = []hook{prolog, epilog}

	// healthcheck is told no job, and nothing but the node.
	healthcheck = hook{"bookend-healthcheck", slurm.HealthCheck, 12 * time.Second}
)

func (h hook) environ(n *node, j job) []string {
	all := j
	if h.context == slurm.HealthCheck {
		return h.bare(n, j)
	}
	if _, set := j["SLURM_SCRIPT_CONTEXT"]; !set {
		all = j.with("SLURM_SCRIPT_CONTEXT", string(h.context))
	}
	if h.context == slurm.Epilog {
		all = all.with("SLURM_JOB_EXIT_CODE", "0", "SLURM_JOB_EXIT_CODE2", "0:0", "SLURM_JOB_DERIVED_EC", "0")
	}
	env := []string{"BOOKEND_CONFIG=" + n.config}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != absent {
			env = append(env, name+"="+all[name])
		}
	}
	return env
}

// bare is the environment of a health check: what the test gives it, and where its configuration is.
func (h hook) bare(n *node, j job) []string {
	env := []string{"BOOKEND_CONFIG=" + n.config}
	for name, value := range j {
		env = append(env, name+"="+value)
	}
	return env
}

// bySlurm is all that slurmd tells its health check.
var bySlurm = job{"SLURMD_NODENAME": nodeName}

// absent is the value of a variable that environ is not to add.
const absent = "\x00"

// outcome is what slurmd sees of a hook.
type outcome struct {
	exit   int // -1: ended by a signal
	output string
}

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
	p.cmd.Env, p.cmd.Dir = h.environ(n, j), "/"
	p.cmd.Stdout, p.cmd.Stderr = w, w
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if h.context == slurm.TaskProlog || h.context == slurm.TaskEpilog {
		p.cmd.SysProcAttr.Credential, p.forUser = &syscall.Credential{Uid: user, Gid: user}, true
	}
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

// hook runs one to its end.
func (n *node) hook(h hook, j job) outcome {
	n.Helper()
	return n.start(h, j).wait()
}

// clean runs a hook that must find nothing.
func (n *node) clean(h hook, j job) {
	n.Helper()
	if o := n.hook(h, j); o.exit != 0 || o.output != "" {
		n.Fatalf("a clean %s: exit %d: %s", h.program, o.exit, o.output)
	}
}

// bookend runs the command line.
func (n *node) bookend(args ...string) (string, int) {
	n.Helper()
	cmd := exec.Command(program("bookend"), args...)
	cmd.Env = []string{"BOOKEND_CONFIG=" + n.config, "TZ=UTC"}
	text, err := cmd.CombinedOutput()
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		n.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
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

// script writes a program of root's.
func (n *node) script(name, text string) string {
	n.Helper()
	path := n.in(name)
	syscall.ForkLock.RLock() // a child that another test starts now would have it open for writing, and nobody could run it
	defer syscall.ForkLock.RUnlock()
	must(n, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	return path
}

func (o outcome) String() string { return fmt.Sprintf("exit %d: %s", o.exit, o.output) }
