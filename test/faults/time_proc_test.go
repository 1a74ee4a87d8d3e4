package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
)

// hangs makes a process's entry in this node's /proc, or one file of it, hang whoever reads it, until undo. A process whose
// lock of its memory is held hangs only who asks for that memory, such as its environment; here nobody else on the machine
// meets it.
func (n *node) hangs(proc string, pid int, file, cgroup string) (undo func()) {
	n.Helper()
	entry := filepath.Join(proc, strconv.Itoa(pid))
	must(n, os.Mkdir(entry, 0o755))
	for _, name := range []string{"stat", "status", "environ"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		must(n, err)
		must(n, os.WriteFile(filepath.Join(entry, name), text, 0o644))
	}
	must(n, os.WriteFile(filepath.Join(entry, "cgroup"), []byte(cgroup), 0o644))
	at, mode := filepath.Join(entry, file), "100444"
	if file == "" {
		mode = "40555"
	}
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	must(n, err)
	must(n, unix.Mount("none", at, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=%s,user_id=0,group_id=0,allow_other", fuse.Fd(), mode)))
	undo = func() {
		_ = unix.Unmount(at, unix.MNT_DETACH)
		fuse.Close() // who waits gets an error
	}
	n.Cleanup(undo)
	return undo
}

// orphans are the processes that an end names as the job's, by number.
func (n *node) orphans() map[int]finding.Finding {
	n.Helper()
	named := map[int]finding.Finding{}
	for _, f := range n.findings(epilog) {
		if f.Code == code.Orphan && f.Holder != nil && f.Owner != nil {
			named[f.Holder.PID] = f
		}
	}
	return named
}

// A process whose entry in /proc hangs is unknown itself, unless its cgroup has said whose it is: nobody is blamed for it,
// and what is certain of the others beside it drains.
func TestHungProcessBlindsNobody(t *testing.T) {
	const none, ofJob = "0::/\n", "0::/system.slice/n1_slurmstepd.scope/job_100/step_0/user/task_0\n"
	for name, tt := range map[string]struct {
		file, cgroup string
		other        bool // there is a leftover beside it
		proven       bool // the one that hangs is the job's
		exit         int
	}{
		"its entry":                          {},
		"its entry, beside another":          {other: true, exit: 10},
		"its environment":                    {file: "environ", cgroup: none},
		"its environment, beside another":    {file: "environ", cgroup: none, other: true, exit: 10},
		"its environment, proven by cgroup":  {file: "environ", cgroup: ofJob, proven: true, exit: 10},
		"what it is, whatever its cgroup is": {file: "status", cgroup: ofJob},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.ownPrograms()
			n.clean(n.own(prolog), bystanding())
			proc := n.copiedProc()
			n.configure(func(c *conf) { c.proc = proc })
			n.clean(n.own(prolog), newJob())
			others := n.record()
			hung, other := n.leftover(), 0
			undo := n.hangs(proc, hung.PID, tt.file, tt.cgroup)
			if tt.other {
				other = n.leftover().PID
				must(t, os.Symlink("/proc/"+strconv.Itoa(other), filepath.Join(proc, strconv.Itoa(other))))
			}
			if o := n.hook(n.own(epilog), newJob()); o.exit != tt.exit {
				t.Errorf("%v, want exit %d\n%+v", o, tt.exit, n.findings(epilog))
			}
			orphans := n.orphans()
			if f, is := orphans[hung.PID]; is != tt.proven || tt.proven && f.Owner.Level != attrib.ByCgroup {
				t.Errorf("the one that hangs: %+v", orphans)
			}
			if f, is := orphans[other]; is != tt.other || tt.other && f.Owner.Level != attrib.ByExclusive {
				t.Errorf("the other: %+v", orphans)
			}
			if found := n.findings(epilog); has(found, code.Hang) || has(found, code.Stuck) || has(found, code.BackendCrash) || has(found, code.Untraced) {
				t.Errorf("%+v", found)
			}
			n.none()
			undo()
			n.unharmed(others)
		})
	}
}

// With little time the hooks end in it all the same, and the driver is blamed for nothing.
func TestHungProcessInTime(t *testing.T) {
	t.Parallel()
	for _, h := range hooks {
		n := newNode(t, "enforce")
		n.ownPrograms()
		n.clean(n.own(prolog), bystanding())
		others, proc := n.record(), n.copiedProc()
		hung := n.leftover()
		undo := n.hangs(proc, hung.PID, "", "")
		n.configure(func(c *conf) { c.tight, c.onUnknown, c.proc, c.extra = true, "drain", proc, certainOnes })
		n.timely(h, newJob(), 0)
		n.none()
		undo()
		hung.End()
		n.configure(func(c *conf) { c.proc, c.extra = "", "" })
		n.sound(others)
	}
}
