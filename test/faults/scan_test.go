package faults

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
)

// copiedProc makes a /proc in which an opened folder can be noticed, with what a hook reads there of itself.
func (n *node) copiedProc() string {
	n.Helper()
	proc := n.in("proc")
	for _, name := range []string{"self/cgroup", "sys/kernel/random/boot_id"} {
		text, err := os.ReadFile(filepath.Join("/proc", name))
		must(n, err)
		must(n, os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755))
		must(n, os.WriteFile(filepath.Join(proc, name), text, 0o644))
	}
	return proc
}

// watchFolder tells how often a folder itself was opened since: whoever lists it has to.
func (n *node) watchFolder(folder string) (opened func() int) {
	n.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(n, err)
	n.Cleanup(func() { unix.Close(fd) })
	_, err = unix.InotifyAddWatch(fd, folder, unix.IN_OPEN)
	must(n, err)
	return func() int {
		buf := make([]byte, 64<<10)
		times := 0
		for {
			got, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				return times
			}
			must(n, err)
			for at := 0; at < got; {
				// struct inotify_event: watch, mask, cookie, length of the name; a name means an entry, not the folder.
				length := int(buf[at+12]) | int(buf[at+13])<<8
				if length == 0 {
					times++
				}
				at += unix.SizeofInotifyEvent + length
			}
		}
	}
}

// Clean cards cost no look at the processes of the node, at neither end; what nobody explains costs one.
func TestCleanPathDoesNotSearch(t *testing.T) {
	n := newNode(t, "enforce")
	proc := n.copiedProc()
	n.configure(func(c *conf) { c.proc, c.settle = proc, "{max: 1s, flat: 800ms}" })
	opened := n.watchFolder(proc)
	first := newJob().with("SLURM_JOB_ID", "99", "SLURM_JOBID", "99")
	n.clean(prolog, first)
	n.clean(epilog, first)
	if got := opened(); got != 0 {
		t.Errorf("%s was listed %d times between clean ends", proc, got)
	}
	n.clean(prolog, newJob())
	n.leftover() // this /proc has no such process: the driver lists one that is gone
	n.hook(epilog, newJob())
	found := n.findings(epilog)
	if len(found) == 0 || found[0].Code != code.Phantom {
		t.Fatalf("findings %+v, want a process that is gone", found)
	}
	if got := opened(); got == 0 {
		t.Error("nobody searched for the holder of what a dead process is listed for")
	}
}
