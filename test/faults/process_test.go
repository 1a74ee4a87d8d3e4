package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/fakegpu"
	"bookend/test/frozen"
	"bookend/test/rig"
)

// holder is a process on the first GPU.
func (n *node) holder(uid int, env []string, args ...string) *fakegpu.Program {
	n.Helper()
	p, err := n.world.StartAs(rig.As(uid).Credential, env, append([]string{"alloc"}, args...)...)
	must(n, err)
	n.Cleanup(p.End)
	return p
}

// leftover is a process of the job's user that stays on the first GPU, service one of root's.
func (n *node) leftover(args ...string) *fakegpu.Program {
	n.Helper()
	return n.holder(user, nil, append([]string{"--mib", "2048"}, args...)...)
}

func (n *node) service() { n.Helper(); n.holder(0, nil, "--mib", "2048") }

// guest is a process of another user's.
func (n *node) guest() *fakegpu.Program {
	n.Helper()
	return n.holder(bystander, nil, "--mib", "100000")
}

// exported is memory of the first GPU that no process is listed for: its descriptor lives on in another process.
func (n *node) exported(mib int) {
	n.Helper()
	folder := n.in("sockets")
	must(n, os.Mkdir(folder, 0o755))
	n.give(folder, user)
	socket := filepath.Join(folder, "export")
	holder, err := n.world.StartAs(rig.As(user).Credential, nil, "holdfd", socket)
	must(n, err)
	n.Cleanup(holder.End)
	must(n, n.leftover("--mib", fmt.Sprint(mib), "--export", socket).Kill())
}

// program runs a CUDA program of the user's to its end, and returns what it said and its PID.
func (n *node) program(args ...string) (said string, pid int) {
	n.Helper()
	return n.wrapped(exec.Command(n.world.FakeCUDA(), args...))
}

func (n *node) wrapped(cmd *exec.Cmd) (said string, pid int) {
	n.Helper()
	cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{}, "/", rig.As(user)
	text, err := cmd.CombinedOutput()
	if ended := new(exec.ExitError); err != nil && !errors.As(err, &ended) {
		n.Fatal(err)
	}
	return string(text), cmd.Process.Pid
}

// does reports whether a user succeeds with a line of the shell.
func does(uid int, line string) bool {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.SysProcAttr = rig.As(uid)
	return cmd.Run() == nil
}

func reads(uid int, path string) bool { return does(uid, "cat "+path) }

// unified is where this host mounts the cgroup v2 hierarchy.
func (n *node) unified() string {
	n.Helper()
	for _, line := range lines(n.get("/proc/self/mounts"), " cgroup2 ") {
		return strings.Fields(line)[1]
	}
	n.Fatal("no cgroup v2 hierarchy is mounted")
	return ""
}

// inCgroup moves a process into a cgroup as Slurm names a job's, on a node that no Slurm of this host has.
func (n *node) inCgroup(p *fakegpu.Program, job string) {
	n.Helper()
	n.move(p, filepath.Base(n.dir)+"_slurmstepd.scope", "job_"+job+"/step_batch/user/task_0")
}

// move puts a process into a cgroup below the system's slice, made for it and removed with the test.
func (n *node) move(p *fakegpu.Program, unit, below string) {
	n.Helper()
	scope := filepath.Join(n.unified(), "system.slice", unit)
	leaf := filepath.Join(scope, below)
	must(n, os.MkdirAll(leaf, 0o755))
	n.Cleanup(func() {
		p.End()
		for dir := leaf; len(dir) >= len(scope); dir = filepath.Dir(dir) {
			n.removeCgroup(dir)
		}
	})
	must(n, os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(p.PID)), 0))
}

// escape moves a process out of all jobs, as a daemon of root's does.
func (n *node) escape(p *fakegpu.Program) {
	n.Helper()
	must(n, os.WriteFile(filepath.Join(n.unified(), "cgroup.procs"), []byte(strconv.Itoa(p.PID)), 0))
}

// removeCgroup waits for what was killed there to be gone.
func (n *node) removeCgroup(dir string) {
	for end := time.Now().Add(margin); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			n.Errorf("remove cgroup %q: %v", dir, err)
			return
		}
	}
}

// statOf are the fields of a process from its state on; none for one that is gone.
func statOf(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}

func stateOf(pid int) string {
	if fields := statOf(pid); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

// gone reports that nothing is left of a process, or a zombie.
func gone(pid int) bool { return stateOf(pid) == "" || stateOf(pid) == "Z" }

// processes are those of this machine that are so.
func processes(are func(pid int) bool) (pids []int) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		if pid, err := strconv.Atoi(filepath.Base(entry)); err == nil && are(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// doing is the operation that a process is a child for; empty for a hook itself.
func doing(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	switch {
	case filepath.Base(args[0]) == "bookend-gpu":
		return "backend"
	case len(args) == 3 && args[1] == "--child":
		return args[2]
	}
	return ""
}

// child waits for the one that a hook has started for an operation, and returns its process.
func (p *running) child(op string) int {
	p.Helper()
	var pids []int
	await(p, "the child "+op, func() bool {
		pids = processes(func(pid int) bool {
			fields := statOf(pid)
			return len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(p.cmd.Process.Pid) &&
				doing(pid) == op
		})
		return len(pids) == 1
	})
	return pids[0]
}

// terminate ends a hook as slurmd does at its own timeout, and its backend with it.
func (p *running) terminate(backend int) outcome {
	p.Helper()
	p.signal(syscall.SIGTERM)
	o := p.wait()
	await(p, "the backend's end", func() bool { return gone(backend) })
	return o
}

// stuck are the backends of this node that live, by the world whose library they have loaded.
func (n *node) stuck() []int { return n.mapping(n.world.NVML()) }

func (n *node) mapping(library string) []int {
	return processes(func(pid int) bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		return strings.Contains(string(text), library)
	})
}

// oneStuck requires that just one backend lives, and the same as before.
func (n *node) oneStuck(before ...int) []int {
	n.Helper()
	now := n.stuck()
	if len(now) != 1 || len(before) == 1 && now[0] != before[0] {
		n.Fatalf("stuck: %v, then %v\n%s", before, now, n.log())
	}
	return now
}

// memoryCall is what the driver is asked for memory with.
const memoryCall = "nvmlDeviceGetMemoryInfo_v2"

// unstick lets a driver answer again that a call had frozen, and waits until whoever was in it is gone.
func (n *node) unstick(call string) {
	n.Helper()
	left := n.stuck()
	n.set("on."+call, "")
	must(n, n.world.Thaw())
	await(n, "the stuck backend's end", func() bool { // it leaves its cgroup only after its memory
		return !slices.ContainsFunc(left, func(pid int) bool { return !gone(pid) })
	})
}

// ownPrograms makes a node's processes its own to be told from all others': links to the hooks and the backend, in a
// folder of its own, that its processes show as what they run.
func (n *node) ownPrograms() {
	n.Helper()
	must(n, os.Mkdir(n.in("bin"), 0o755))
	for _, name := range []string{"bookend-prolog", "bookend-epilog", "bookend-gpu", "bookend"} {
		must(n, os.Link(program(name), n.in("bin/"+name)))
	}
	n.configure(func(c *conf) { c.backend = n.in("bin/bookend-gpu") })
}

// own is a hook as this node runs it.
func (n *node) own(h hook) hook {
	h.program = n.in("bin/" + h.program)
	return h
}

// left are the processes of this node's hooks and of its backend that live. Of one that was killed all threads may have
// gone but the one that cannot, and only that tells what it runs.
func (n *node) left() (pids []int) {
	return processes(func(pid int) bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid))
		return slices.ContainsFunc(tasks, n.runsOurs)
	})
}

func (n *node) runsOurs(task string) bool {
	exe, _ := os.Readlink(filepath.Join(task, "exe"))
	if shell, _ := filepath.EvalSymlinks("/bin/sh"); exe == shell {
		line, _ := os.ReadFile(filepath.Join(task, "cmdline"))
		args := strings.Split(string(line), "\x00")
		return len(args) > 1 && strings.HasPrefix(args[1], n.in("backend"))
	}
	return strings.HasPrefix(exe, n.in("bin/"))
}

// none asserts that nothing is left of this node's hooks. What was killed may take a moment to go.
func (n *node) none() {
	n.Helper()
	await(n, "the end of all that hooks started", func() bool { return len(n.left()) == 0 })
}

// unkillable asserts that so many processes of this node are left, and that SIGKILL, which their hook sent long ago,
// has not ended them: they sleep in the kernel. Given those of before, they must be the same.
func (n *node) unkillable(want int, before ...int) []int {
	n.Helper()
	left := n.left()
	if len(left) != want || len(before) > 0 && !slices.Equal(left, before) {
		n.Fatalf("left: %v, want %d of %v\n%s", left, want, before, n.log())
	}
	for _, pid := range left {
		statuses, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		asleep := slices.ContainsFunc(statuses, func(file string) bool {
			status, _ := os.ReadFile(file)
			return len(lines(string(status), "State:", "D (disk sleep)")) == 1 && killed(string(status))
		})
		if !asleep {
			n.Errorf("no thread of process %d is in state D, with SIGKILL waiting for it", pid)
		}
	}
	return left
}

// killed reports whether SIGKILL waits for a thread or its process, by the masks in its status.
func killed(status string) bool {
	return slices.ContainsFunc(lines(status, "Pnd:"), func(line string) bool {
		pending, err := strconv.ParseUint(strings.Fields(line)[1], 16, 64)
		return err == nil && pending&(1<<(syscall.SIGKILL-1)) != 0
	})
}

// sound asserts that both hooks of another job find nothing, and that nobody harmed the bystander or left anything.
func (n *node) sound(others string) {
	n.Helper()
	n.none()
	n.configure(func(c *conf) { c.tight = false })
	n.clean(n.own(prolog), numbered(900))
	n.clean(n.own(epilog), numbered(900))
	n.unharmed(others)
	n.none()
	if shown, _ := n.bookend("status"); strings.Contains(shown, "not answering") {
		n.Errorf("status:\n%s", shown)
	}
}

// silence makes a folder answer nothing.
func (n *node) silence(folder string) (undo func() error) {
	n.Helper()
	undo, err := frozen.Silent(folder, unix.S_IFDIR|0o755, ",allow_other")
	must(n, err)
	n.Cleanup(func() { _ = undo() })
	return undo
}

// mount mounts a file system of memory; "ro," before the options makes it read-only.
func (n *node) mount(path, options string) {
	n.Helper()
	must(n, os.MkdirAll(path, 0o755))
	text, readOnly := strings.CutPrefix(options, "ro,")
	must(n, unix.Mount("none", path, "tmpfs", 0, "mode=0755,"+text))
	n.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	if readOnly {
		must(n, unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
}

// mountRun mounts a small file system for the state, as the package's unit does.
func (n *node) mountRun(options string) { n.Helper(); n.mount(n.conf.run, options) }

// fill leaves no room on a file system.
func (n *node) fill(folder string) {
	n.Helper()
	f, err := os.Create(filepath.Join(folder, "filler"))
	must(n, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 1024))
	}
}

// copiedProc makes a /proc with what a hook reads there of itself and of nobody else.
func (n *node) copiedProc() string {
	n.Helper()
	proc := n.in("proc")
	for _, name := range []string{"self/cgroup", "sys/kernel/random/boot_id"} {
		must(n, os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755))
		n.put(filepath.Join(proc, name), n.get(filepath.Join("/proc", name)), 0o644)
	}
	return proc
}

// copyOf puts a process into a copied /proc, in another cgroup.
func (n *node) copyOf(pid int, cgroup string) (entry string) {
	n.Helper()
	entry = n.in(fmt.Sprintf("proc/%d", pid))
	must(n, os.Mkdir(entry, 0o755))
	for _, name := range []string{"stat", "status", "environ"} {
		n.put(filepath.Join(entry, name), n.get(fmt.Sprintf("/proc/%d/%s", pid, name)), 0o644)
	}
	n.put(filepath.Join(entry, "cgroup"), cgroup, 0o644)
	return entry
}
