package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/test/fakegpu"
)

// lockedMemory is a leftover of the job's whose memory nobody can look into: one of its threads holds the lock of it, and
// waits for another that sleeps in the kernel. Whoever reads its environment in /proc waits as long.
func (n *node) lockedMemory(cgroup bool) *fakegpu.Program {
	n.Helper()
	f := n.freezable("job")
	library, file, when := n.in("mmaplock.so"), filepath.Join(f.dir, "file"), n.in("now")
	if text, err := exec.Command("gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, "mmaplock/lock.c", "-lpthread").CombinedOutput(); err != nil {
		n.Fatalf("gcc: %v: %s", err, text)
	}
	must(n, os.WriteFile(file, make([]byte, 4096), 0o666))
	must(n, os.Chmod(file, 0o666))
	p := n.holder(user, []string{"LD_PRELOAD=" + library, "MMAPLOCK_FILE=" + file, "MMAPLOCK_WHEN=" + when}, "--mib", "2048")
	if cgroup {
		n.inCgroup(p, "100")
	}
	n.Cleanup(f.thaw) // before the program is ended and waited for
	await(n, "its thread", func() bool {
		maps, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/maps")
		return strings.Contains(string(maps), file)
	})
	f.freeze()
	must(n, os.WriteFile(when, nil, 0o644))
	await(n, "one thread that writes, and one that waits for it", func() bool { return asleep(p.PID) == 2 })
	return p
}

// asleep are the threads of a process in state D.
func asleep(pid int) (threads int) {
	stats, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	for _, file := range stats {
		text, _ := os.ReadFile(file)
		if at := strings.LastIndex(string(text), ") D"); at >= 0 {
			threads++
		}
	}
	return threads
}

// holdersOf are the processes that an end's findings name, with what is said of each.
func (n *node) holdersOf(c code.Code) map[int]finding.Finding {
	n.Helper()
	named := map[int]finding.Finding{}
	for _, f := range n.findings(epilog) {
		if f.Code == c && f.Holder != nil {
			named[f.Holder.PID] = f
		}
	}
	return named
}

// A process whose entry in /proc hangs is unknown itself, unless its cgroup has said whose it is: nobody is blamed for it,
// and what is certain of the others beside it drains.
func TestHungProcessBlindsNobody(t *testing.T) {
	for name, tt := range map[string]struct {
		cgroup bool // the one that hangs is in the job's
		other  bool // there is a leftover beside it
		exit   int
	}{
		"alone":               {},
		"beside another":      {other: true, exit: 10},
		"proven by a cgroup":  {cgroup: true, exit: 10},
		"proven, and another": {cgroup: true, other: true, exit: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.ownPrograms()
			n.clean(n.own(prolog), bystanding())
			n.clean(n.own(prolog), newJob())
			others := n.record()
			hung := n.lockedMemory(tt.cgroup)
			var other *fakegpu.Program
			if tt.other {
				other = n.leftover()
			}
			o := n.hook(n.own(epilog), newJob())
			if o.exit != tt.exit {
				t.Errorf("%v, want exit %d\n%+v", o, tt.exit, n.findings(epilog))
			}
			orphans := n.holdersOf(code.Orphan)
			if _, is := orphans[hung.PID]; is != tt.cgroup {
				t.Errorf("the one that hangs: %+v", orphans)
			}
			if tt.other && (orphans[other.PID].Owner == nil || orphans[other.PID].Owner.Level != attrib.ByExclusive) {
				t.Errorf("the other: %+v", orphans)
			}
			if tt.cgroup && orphans[hung.PID].Owner.Level != attrib.ByCgroup {
				t.Errorf("%+v", orphans[hung.PID].Owner)
			}
			if found := n.findings(epilog); has(found, code.Hang) || has(found, code.Stuck) || has(found, code.BackendCrash) {
				t.Errorf("%+v", found)
			}
			n.none()
			n.unharmed(others)
		})
	}
}
