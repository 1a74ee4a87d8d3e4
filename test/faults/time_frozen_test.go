package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

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
	tasks, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	for _, task := range tasks {
		exe, _ := os.Readlink(filepath.Join(task, "exe"))
		script := false
		if shell, _ := filepath.EvalSymlinks("/bin/sh"); exe == shell {
			line, _ := os.ReadFile(filepath.Join(task, "cmdline"))
			args := strings.Split(string(line), "\x00")
			script = len(args) > 1 && strings.HasPrefix(args[1], n.in("backend"))
		}
		pid, _ := strconv.Atoi(strings.Split(task, "/")[2])
		if (script || strings.HasPrefix(exe, n.in("bin/"))) && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// none asserts that nothing is left of this node's hooks. What was killed may take a moment to go.
func (n *node) none() {
	n.Helper()
	await(n, "the end of all that hooks started", func() bool { return len(n.left()) == 0 })
}

// unkillable asserts that so many processes of this node are left, and that SIGKILL, which their hook sent long ago, has
// not ended them: they sleep in the kernel.
func (n *node) unkillable(want int) []int {
	n.Helper()
	left := n.left()
	if len(left) != want {
		n.Fatalf("left: %v, want %d\n%s", left, want, n.log())
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
	n.configure(func(c *conf) { c.tight = false })
	later := numbered(900)
	n.clean(n.own(prolog), later)
	n.clean(n.own(epilog), later)
	n.unharmed(others)
	n.none()
	if shown, _ := n.bookend("status"); strings.Contains(shown, "not answering") {
		n.Errorf("status:\n%s", shown)
	}
}

// timely is a hook that must end by its deadline with this exit status, whatever hangs.
func (n *node) timely(h hook, j job, exit int) outcome {
	n.Helper()
	o := n.hook(n.own(h), j)
	if o.exit != exit {
		n.Errorf("%s: want exit %d: %v\n%s", h.program, exit, o, n.log())
	}
	return o
}
