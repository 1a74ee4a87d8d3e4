package faults

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/slurm"
	"bookend/test/fakegpu"
	"bookend/test/must"
	"bookend/test/rig"
)

// hook is one of the programs that slurmd runs as root, or slurmstepd as the user.
type hook struct {
	program string
	context slurm.Context
}

var (
	prolog = hook{"bookend-prolog", slurm.Prolog}
	epilog = hook{"bookend-epilog", slurm.Epilog}
	hooks  = []hook{prolog, epilog}

	taskProlog = hook{"bookend-prolog", slurm.TaskProlog}
	taskEpilog = hook{"bookend-epilog", slurm.TaskEpilog}

	// healthcheck is told no job, and nothing but the node.
	healthcheck = hook{"bookend-healthcheck", slurm.HealthCheck}
	bySlurm     = job{"SLURMD_NODENAME": nodeName}
)

type outcome struct {
	exit   int // -1: ended by a signal
	output string
}

func (o outcome) String() string { return fmt.Sprintf("exit %d: %s", o.exit, o.output) }

type running struct {
	*node
	cmd    *exec.Cmd
	limit  time.Duration
	pipe   *os.File // our end of the hook's stdout and stderr
	output chan string
	ended  chan struct{}
}

// tightest is the longest of the tight deadlines; margin is what a busy machine may add to a hook's deadline. A
// hook that hangs never ends; how long one takes is measured by test/bench.
const (
	tightest = 12 * time.Second
	margin   = time.Minute
)

// start runs a hook as slurmd does: nothing on stdin, one pipe for all output, a process group of its own.
func (n *node) start(h hook, j job) *running {
	r, w, err := os.Pipe()
	must.Do(n, err)
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
	p := &running{node: n, limit: 4 * time.Minute, output: make(chan string, 1), ended: make(chan struct{})}
	if n.conf.tight {
		p.limit = tightest
	}
	path := h.program
	if !filepath.IsAbs(path) {
		path = program(path)
	}
	p.cmd = exec.Command(path)
	p.cmd.Env, p.cmd.Dir = j.Environ(n.config, h.context), "/"
	p.cmd.Stdout, p.cmd.Stderr = w, w
	p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	if h.context == slurm.TaskProlog || h.context == slurm.TaskEpilog {
		p.cmd.SysProcAttr = rig.As(user)
	}
	p.cmd.SysProcAttr.Setpgid = true
	wait := p.cmd.Wait
	if n.watch != nil {
		wait = must.Have(n.watch(p.cmd))(n)
	} else {
		must.Do(n, p.cmd.Start())
	}
	go func() {
		_ = wait()
		close(p.ended)
	}()
	return p
}

// over waits until the hook has ended, which it must by its deadline, and returns its exit code.
func (p *running) over() int {
	select {
	case <-p.ended:
	case <-time.After(p.limit + margin):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		p.Fatalf("%s: still there %v after its deadline of %v", p.cmd, margin, p.limit)
	}
	return p.cmd.ProcessState.ExitCode()
}

// wait returns when the hook is over, and its pipe with it: while a child holds that, slurmd keeps the node completing.
func (p *running) wait() outcome {
	o := outcome{exit: p.over()}
	select {
	case o.output = <-p.output:
		p.pipe.Close()
	case <-time.After(margin):
		p.Fatalf("%s has ended, but something still holds its stdout", p.cmd)
	}
	rig.Written(p.conf.run)
	return o
}

// signal sends one to the hook's group, as slurmd does.
func (p *running) signal(s syscall.Signal) {
	must.Do(p, syscall.Kill(-p.cmd.Process.Pid, s))
}

// terminate ends a hook as slurmd does at its own timeout, and its backend with it.
func (p *running) terminate(backend int) outcome {
	p.signal(syscall.SIGTERM)
	o := p.wait()
	await(p, "the backend's end", func() bool { return gone(backend) })
	return o
}

func (n *node) hook(h hook, j job) outcome {
	o := n.start(h, j).wait()
	if h.context == slurm.Prolog && j["SLURM_JOB_ID"] == strconv.Itoa(bystanderID) {
		n.others = n.record()
	}
	return o
}

// begun has the bystander's job begin, and for an epilog job 100 too.
func (n *node) begun(h hook) {
	n.clean(prolog, bystanding())
	if h == epilog {
		n.clean(prolog, newJob())
	}
}

// exits runs a hook that must end with a code, whatever it finds.
func (n *node) exits(want int, h hook, j job) outcome {
	o := n.hook(h, j)
	must.Not(n, o.exit != want, "%s of job %s: want exit %d: %v\n%s", h.program, j["SLURM_JOB_ID"], want, o, n.log())
	return o
}

func (n *node) clean(h hook, j job) {
	if o := n.hook(h, j); o.exit != 0 || o.output != "" {
		n.Fatalf("a clean %s: %v\n%s", h.program, o, n.log())
	}
}

func (n *node) job(id int) { n.clean(prolog, numbered(id)); n.clean(epilog, numbered(id)) }

// together runs one hook of each job at the same moment: all must end with 0, and judge may look closer.
func (n *node) together(h hook, jobs []job, judge func(job, outcome)) {
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

// task runs a task hook as slurmstepd does for a batch script: as the user, in the user's environment.
func (n *node) task(h hook, j job) outcome {
	j = j.With("PATH", "/usr/bin", "LD_PRELOAD", "/nowhere.so")
	for _, name := range []string{"SLURM_PROCID", "SLURM_LOCALID"} {
		j[name] = cmp.Or(j[name], "0")
	}
	o := n.hook(h, j)
	n.heard += o.output
	return o
}

func (n *node) bookend(args ...string) (string, int) {
	cmd := exec.Command(program("bookend"), args...)
	cmd.Env, cmd.Dir = []string{"BOOKEND_CONFIG=" + n.config, "TZ=UTC"}, "/"
	text, err := cmd.CombinedOutput()
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		n.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// shows requires that a command line of root's tells something.
func (n *node) shows(want string, args ...string) {
	text, _ := n.bookend(args...)
	must.Not(n, !strings.Contains(text, want), "bookend %s: want %q in\n%s", strings.Join(args, " "), want, text)
}

func (n *node) holder(uid int, env []string, args ...string) *fakegpu.Program {
	p := must.Have(n.world.StartAs(rig.As(uid).Credential, env, append([]string{"alloc"}, args...)...))(n)
	n.Cleanup(p.End)
	return p
}

// leftover is a process of the job's user that stays on the first GPU.
func (n *node) leftover(args ...string) *fakegpu.Program {
	return n.holder(user, nil, append([]string{"--mib", "2048"}, args...)...)
}

// does reports whether a user succeeds with a line of the shell.
func does(uid int, line string) bool {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.SysProcAttr = rig.As(uid)
	return cmd.Run() == nil
}

func reads(uid int, path string) bool { return does(uid, "cat "+path) }

// inCgroup moves a process into a cgroup as Slurm names a job's.
func (n *node) inCgroup(p *fakegpu.Program, job string) { n.inScope(p, nodeName, job) }

// inScope is inCgroup for a job of any of the host's nodes, in a directory of this process alone.
func (n *node) inScope(p *fakegpu.Program, node, job string) {
	unit := fmt.Sprintf("%s-%d", filepath.Base(n.dir), p.PID)
	n.move(p, unit, node+"_slurmstepd.scope/job_"+job+"/step_batch/user/task_0")
}

// move puts a process into a cgroup below the system's slice, made for it and removed with the test once what was
// killed there has gone.
func (n *node) move(p *fakegpu.Program, unit, below string) {
	scope := filepath.Join(n.hierarchy(), "system.slice", unit)
	leaf := filepath.Join(scope, below)
	must.Do(n, os.MkdirAll(leaf, 0o755))
	n.Cleanup(func() {
		p.End()
		for dir := leaf; len(dir) >= len(scope); dir = filepath.Dir(dir) {
			await(n, "an empty cgroup", func() bool {
				err := unix.Rmdir(dir)
				return err == nil || errors.Is(err, fs.ErrNotExist)
			})
		}
	})
	must.Do(n, os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(p.PID)), 0))
}

// hierarchy is where this host mounts cgroup v2.
func (n *node) hierarchy() string {
	return strings.Fields(lines(n.get("/proc/self/mounts"), " cgroup2 ")[0])[1]
}

// escape moves a process out of all jobs, as a daemon of root's does.
func (n *node) escape(p *fakegpu.Program) {
	must.Do(n, os.WriteFile(filepath.Join(n.hierarchy(), "cgroup.procs"), []byte(strconv.Itoa(p.PID)), 0))
}

func stateOf(pid int) string { return rig.ReadProcess(pid).State }

// gone reports that nothing is left of a process, or a zombie.
func gone(pid int) bool { return rig.ReadProcess(pid).Over() }

// processes are those of this machine that are so.
func processes(are func(rig.Process) bool) (pids []int) {
	for _, p := range rig.Processes(are) {
		pids = append(pids, p.PID)
	}
	return pids
}

// doing is the operation that a process is a child for; empty for a hook itself.
func doing(pid int) string { return rig.Doing(rig.Process{PID: pid}.Args()) }

// child waits for the one that a hook has started for an operation, and returns its process.
func (p *running) child(op string) int {
	var pids []int
	await(p, "the child "+op, func() bool {
		pids = processes(func(c rig.Process) bool {
			return !c.Over() && c.Parent == p.cmd.Process.Pid && doing(c.PID) == op
		})
		return len(pids) == 1
	})
	return pids[0]
}

// mapping are the processes that have loaded a library of this node's world.
func (n *node) mapping(library string) []int {
	return processes(func(p rig.Process) bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
		return strings.Contains(string(text), library)
	})
}

// oneStuck requires that just one backend lives, and the same as before.
func (n *node) oneStuck(before ...int) []int {
	now := n.mapping(n.world.NVML())
	if len(now) != 1 || len(before) == 1 && now[0] != before[0] {
		n.Fatalf("stuck: %v, then %v\n%s", before, now, n.log())
	}
	return now
}

// memoryCall is what the driver is asked for memory with.
const memoryCall = "nvmlDeviceGetMemoryInfo_v2"

// unstick lets a driver answer again that a call had frozen, and waits until whoever was in it is gone.
func (n *node) unstick(call string) {
	left := n.mapping(n.world.NVML())
	n.set("on."+call, "")
	must.Do(n, n.world.Thaw())
	await(n, "the stuck backend's end", func() bool { // it leaves its cgroup only after its memory
		return !slices.ContainsFunc(left, func(pid int) bool { return !gone(pid) })
	})
}

// ownPrograms makes a node's processes its own to be told from all others': links to the hooks and the backend, in a
// folder of its own, that its processes show as what they run.
func (n *node) ownPrograms() {
	must.Do(n, os.Mkdir(n.in("bin"), 0o755))
	for _, name := range []string{"bookend-prolog", "bookend-epilog", "bookend-healthcheck", "bookend-gpu"} {
		must.Do(n, os.Link(program(name), n.in("bin/"+name)))
	}
	n.configure(func(c *conf) { c.backend = n.in("bin/bookend-gpu") })
	n.Cleanup(func() { rig.EndRecorders(n.dir) })
}

func (n *node) own(h hook) hook {
	h.program = n.in("bin/" + h.program)
	return h
}

// left are the processes of this node's hooks and of its backend that live. Of one that was killed all threads may have
// gone but the one that cannot, and only that tells what it runs.
func (n *node) left() (pids []int) {
	return processes(func(p rig.Process) bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", p.PID))
		return slices.ContainsFunc(tasks, func(task string) bool {
			exe, _ := os.Readlink(task + "/exe")
			line, _ := os.ReadFile(task + "/cmdline") // of a script its second word
			return strings.HasPrefix(exe, n.in("bin/")) || strings.Contains(string(line), "\x00"+n.in("backend")+"\x00")
		})
	})
}

// none asserts that nothing is left of this node's hooks. What was killed may take a moment to go.
func (n *node) none() {
	await(n, "the end of all that hooks started", func() bool { return len(n.left()) == 0 })
}

// unkillable asserts that one process of this node is left, and that SIGKILL, which its hook sent long ago, has not ended
// it: it sleeps in the kernel. Given that of before, it must be the same.
func (n *node) unkillable(before ...int) []int {
	left := n.left()
	if len(left) != 1 || len(before) > 0 && !slices.Equal(left, before) {
		n.Fatalf("left: %v, want one, of before %v\n%s", left, before, n.log())
	}
	must.Not(n, !rig.Process{PID: left[0]}.Killed(), "SIGKILL does not wait for process %d", left[0])
	return left
}

// sound asserts that both hooks of another job find nothing, and that nobody harmed the bystander or left anything.
func (n *node) sound() {
	n.none()
	n.configure(func(c *conf) { c.tight = false })
	n.clean(n.own(prolog), numbered(900))
	n.clean(n.own(epilog), numbered(900))
	n.unharmed()
	n.none()
	shown, _ := n.bookend("status")
	must.Not(n, strings.Contains(shown, "not answering"), "status:\n%s", shown)
}
