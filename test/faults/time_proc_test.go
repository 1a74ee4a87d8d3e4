package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/state"
	"bookend/test/frozen"
)

// The cgroups of processes in a copied /proc: of no job, and of job 100.
const outside, ofJob = "0::/\n", "0::/system.slice/n1_slurmstepd.scope/job_100/step_0/user/task_0\n"

// hangs makes a process's entry in this node's /proc, or one file of it, hang whoever reads it, until undo. A process
// whose lock of its memory is held hangs only who asks for that memory, such as its environment; here nobody else on
// the machine meets it.
func (n *node) hangs(pid int, file, cgroup string) (undo func()) {
	n.Helper()
	at, mode := filepath.Join(n.copyOf(pid, cgroup), file), uint32(unix.S_IFREG|0o444)
	if file == "" {
		mode = unix.S_IFDIR | 0o555
	}
	mend, err := frozen.Silent(at, mode, ",allow_other")
	must(n, err)
	undo = func() { _ = mend() }
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

// blameless requires that the driver is blamed for nothing.
func (n *node) blameless() {
	n.Helper()
	for _, c := range []code.Code{code.Hang, code.Stuck, code.BackendCrash, code.Untraced} {
		if has(n.findings(epilog), c) {
			n.Errorf("%+v", n.findings(epilog))
		}
	}
}

// A process whose entry in /proc hangs is unknown itself, unless its cgroup has said whose it is: nobody is blamed for
// it, and what is certain of the others beside it drains.
func TestHungProcessBlindsNobody(t *testing.T) {
	for name, tt := range map[string]struct {
		file, cgroup string
		other        bool // there is a leftover beside it
		proven       bool // the one that hangs is the job's
		exit         int
	}{
		"its entry, beside another":         {other: true, exit: 10},
		"its environment, beside another":   {file: "environ", cgroup: outside, other: true, exit: 10},
		"its environment, proven by cgroup": {file: "environ", cgroup: ofJob, proven: true, exit: 10},
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
			undo := n.hangs(hung.PID, tt.file, tt.cgroup)
			if tt.other {
				other = n.leftover().PID
				must(t, os.Symlink(fmt.Sprint("/proc/", other), filepath.Join(proc, strconv.Itoa(other))))
			}
			n.exits(tt.exit, n.own(epilog), newJob())
			orphans := n.orphans()
			if f, is := orphans[hung.PID]; is != tt.proven || tt.proven && f.Owner.Level != attrib.ByCgroup {
				t.Errorf("the one that hangs: %+v", orphans)
			}
			if f, is := orphans[other]; is != tt.other || tt.other && f.Owner.Level != attrib.ByExclusive {
				t.Errorf("the other: %+v", orphans)
			}
			n.blameless()
			n.none()
			undo()
			n.unharmed(others)
		})
	}
}

// stuckAt requires that one reader of /proc is left behind, on record at most at a process, 0 for none.
func (n *node) stuckAt(pid int) {
	n.Helper()
	on := n.store().Readers(func(s state.Stuck) bool { return child.Alive("/proc", s.PID, s.StartTicks) })
	if pid == 0 && len(on) > 0 || pid != 0 && (len(on) != 1 || len(on[0].At) != 1 || on[0].At[0].PID != pid ||
		on[0].At[0].Start == 0) {
		n.Errorf("on record %+v, want process %d", on, pid)
	}
	if pid != 0 {
		n.unkillable(1)
	}
}

// A process whose environment nobody can read, and whose reader nobody can end, costs one stuck child: what was read of
// the others counts, the driver is asked as before, and following hooks leave that process alone.
func TestHungProcessCostsOneReader(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.ownPrograms()
	n.clean(n.own(prolog), newJob())
	left, odd := n.leftover(), n.leftover()
	n.inCgroup(left, "100")
	undo, err := frozen.Deaf(fmt.Sprintf("/proc/%d/environ", odd.PID), unix.S_IFREG|0o444)
	must(t, err)
	defer undo()
	for run := range 2 {
		n.hook(n.own(epilog), newJob())
		orphans := n.orphans()
		if o := orphans[left.PID].Owner; o == nil || o.Level != attrib.ByCgroup || orphans[odd.PID].Owner != nil {
			t.Errorf("end %d: %+v\n%s", run, orphans, n.log())
		}
		n.blameless()
		n.stuckAt(odd.PID)
	}
	undo()
	n.none()
	n.stuckAt(0)
	n.hook(n.own(epilog), newJob())
	if found := n.findings(epilog); len(about(found, odd.PID)) == 0 {
		t.Errorf("once it can be read: %+v", found)
	}
}
