package faults

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// frozen is a file system of a node's own that can stop taking writes: who writes to it then sleeps in state D, and not
// even SIGKILL ends it before the thaw. Nothing of that is faked.
type frozen struct {
	*node
	dir    string
	keeper io.Closer // closing it makes the keeper thaw
	thawed func()    // waits for that
}

// freezable mounts an empty ext4, from an image on a loop device that goes with the mount.
func (n *node) freezable(name string) *frozen {
	n.Helper()
	f := &frozen{node: n, dir: n.in(name)}
	image, err := os.OpenFile(f.dir+".image", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	must(n, err)
	defer image.Close()
	must(n, image.Truncate(2<<20))
	if text, err := exec.Command("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image.Name()).CombinedOutput(); err != nil {
		n.Fatalf("mkfs.ext4: %v: %s", err, text)
	}
	must(n, os.Mkdir(f.dir, 0o755))
	device := attach(n, image)
	defer device.Close() // the mount holds it from now on
	must(n, unix.Mount(device.Name(), f.dir, "ext4", 0, ""))
	n.Cleanup(func() {
		f.thaw()
		_ = unix.Unmount(f.dir, unix.MNT_DETACH)
	})
	return f
}

// attach gives an image a loop device that is detached with its last user.
func attach(n *node, image *os.File) *os.File {
	n.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	must(n, err)
	defer control.Close()
	for range 100 {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		must(n, err)
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
		must(n, err)
		config := unix.LoopConfig{Fd: uint32(image.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &config); err == nil {
			return device
		}
		device.Close()
		if err != unix.EBUSY { // somebody else took it meanwhile
			must(n, err)
		}
	}
	n.Fatal("no free loop device")
	return nil
}

// freeze stops all writes until thaw. A keeper thaws also when this process dies in between: a file system that stays
// frozen outlives its mount, and wedges the machine.
func (f *frozen) freeze() {
	f.Helper()
	keeper := exec.Command("/bin/sh", "-c", `read -r end; exec fsfreeze --unfreeze "$1"`, "thaw", f.dir)
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := keeper.StdinPipe()
	must(f, err)
	must(f, keeper.Start())
	if text, err := exec.Command("fsfreeze", "--freeze", f.dir).CombinedOutput(); err != nil {
		f.Errorf("freeze: %v: %s", err, text)
	}
	f.keeper, f.thawed = in, func() { must(f, keeper.Wait()) }
}

// thaw lets everybody go. One that is not frozen stays as it is.
func (f *frozen) thaw() {
	f.Helper()
	if f.keeper == nil {
		return
	}
	must(f, f.keeper.Close())
	f.keeper = nil
	f.thawed()
}

// ownPrograms makes a node's processes its own to be told from all others': links to the hooks and the backend, in a
// folder of its own, that its processes show as what they run.
func (n *node) ownPrograms() {
	n.Helper()
	must(n, os.Mkdir(n.in("bin"), 0o755))
	for _, name := range []string{"bookend-prolog", "bookend-epilog", "bookend-gpu"} {
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
