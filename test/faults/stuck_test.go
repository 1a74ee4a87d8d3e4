package faults

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/test/faultinject"
	"bookend/test/must"
)

// slurmd's own timeout: SIGTERM to the group, and 10 ms later SIGKILL, which counts as a failure. The hook ends
// with the verdict reached and takes its backend with it; what it says in that time is best effort.
func TestTerminated(t *testing.T) {
	for _, h := range hooks {
		t.Run(h.program, func(t *testing.T) {
			said := false
			for range 5 {
				if said = terminated(t, h) || said; said {
					break
				}
			}
			must.Not(t, !said, "never said nor recorded why it left")
		})
	}
}

// terminated stops a hook in the middle of a hanging driver, and reports whether it had time for last words.
func terminated(t *testing.T, h hook) (said bool) {
	t.Helper()
	n := newNode(t, "enforce")
	n.mount(n.conf.run, "size=1m") // the record's place is a tmpfs
	n.configure(func(c *conf) { c.onUnknown = "drain" })
	n.begun(h)
	n.set("on."+memoryCall, "hang-hard")
	p := n.start(h, newJob())
	o := p.terminate(p.child("backend"))
	must.Not(t, o.exit != 0, "%v", o)
	n.unharmed()
	return len(lines(o.output, "BKD-DEADLINE", "SIGTERM")) == 1 && has(n.findings(h), catalog.Deadline)
}

// A hook that slurmd ends, in whatever way, takes its children with it, also one that waits where the user keeps files.
func TestChildEndsWithItsHook(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			j := newJob().With("SLURM_JOB_STDOUT", n.home())
			n.clean(prolog, j)
			undo := must.Have(faultinject.MountSilent(n.in("home"), unix.S_IFDIR|0o755, ",allow_other"))(t)
			defer func() { _ = undo() }()
			n.set("on."+memoryCall, "hang")
			p := n.start(epilog, j)
			tail, uid := p.child("tail"), fmt.Sprintf("Uid:\t%[1]d\t%[1]d", user)
			await(t, "the child as the user", func() bool {
				return len(lines(n.get(fmt.Sprintf("/proc/%d/status", tail)), uid)) == 1
			})
			p.signal(sig)
			p.wait()
			await(t, "the child's end", func() bool { return gone(tail) })
		})
	}
}

// What a cgroup proves to be the ended job's is ended, and its user is told; what only exclusive use of the GPU makes
// the job's, and what is another's, stays and is reported.
func TestCleanUp(t *testing.T) {
	n := parallel(t, "enforce")
	n.configure(func(c *conf) { c.extra = "clean_up: {enabled: true, grace: 300ms}\n" })
	j := n.begin(newJob())
	n.clean(prolog, bystanding())
	proven, unproven := n.leftover("--name", "train"), n.leftover()
	n.inCgroup(proven, "100")
	login, guest := n.holder(60000, nil, "--mib", "600"), n.holder(bystander, nil, "--mib", "2048")
	n.inCgroup(guest, fmt.Sprint(bystanderID))
	told, exit := n.end(j, "0", "")
	if found := codes(n.endOf(100).Findings); exit != 10 || found != "BKD-ENDED BKD-FOREIGN? BKD-ORPHAN BKD-STRAY" {
		t.Errorf("exit %d, found %s: %+v", exit, found, n.endOf(100).Findings)
	}
	said := fmt.Sprintf("process %d (train) of your job was still on GPU 0 and was ended", proven.PID)
	must.Not(t, !strings.Contains(told, said), "the user reads %q", told)
	must.Not(t, !gone(proven.PID) || gone(unproven.PID) || gone(login.PID) || gone(guest.PID),
		"another process than the proven one was ended, or none")
}

// A hook that dies while it ends a leftover has asked it to end already: one that does not is killed all the same.
func TestCleanUpOutlivesItsHook(t *testing.T) {
	n := parallel(t, "enforce")
	n.configure(func(c *conf) {
		c.extra, c.settle = "clean_up: {enabled: true, grace: 2s}\n", "{max: 12s, stable: 800ms}"
	})
	n.clean(prolog, newJob())
	p := n.leftover("--stop")
	n.inCgroup(p, "100")
	h := n.start(epilog, newJob())
	await(t, "SIGTERM for the stopped leftover", func() bool {
		return len(lines(n.get(fmt.Sprintf("/proc/%d/status", p.PID)), "ShdPnd:\t0000000000004000")) == 1
	})
	h.signal(syscall.SIGKILL)
	h.wait()
	await(t, "the leftover's end", func() bool { return gone(p.PID) })
}

// Nobody reads what the hook says, and it has more to say than the pipe takes: it ends at its deadline, or where
// that is not known yet, after five seconds.
func TestWatchdog(t *testing.T) {
	for _, h := range hooks {
		t.Run(h.program, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.begun(h)
			n.configure(func(c *conf) { c.tight = true })
			if h == prolog {
				n.configure(func(c *conf) { c.extra = "nonsense: {}\n" })
			} else {
				n.unlogged()
			}
			r, w, err := os.Pipe()
			must.Do(t, err)
			defer r.Close()
			fd := int(w.Fd())
			must.Do(t, unix.SetNonblock(fd, true))
			for err == nil { // until there is no room left
				_, err = unix.Write(fd, make([]byte, 4096))
			}
			must.Do(t, unix.SetNonblock(fd, false))
			p := n.startWith(h, newJob(), w)
			w.Close()
			exit := p.over()
			must.Not(t, exit != 0, "exit %d", exit)
			n.unharmed()
		})
	}
}

// Nothing reads what the hook says, and its pipe is closed: it does its work all the same.
func TestClosedPipe(t *testing.T) {
	n := parallel(t, "enforce")
	n.clean(prolog, newJob())
	n.unlogged()
	r, w, err := os.Pipe()
	must.Do(t, err)
	r.Close()
	p := n.startWith(epilog, newJob(), w)
	w.Close()
	if exit := p.over(); exit != 0 || len(n.run(100).Ends) != 1 {
		t.Errorf("exit %d, %d ends on record; want 0 and 1", exit, len(n.run(100).Ends))
	}
}

// What wedged backends do around the driver's work: they write to a file system that can be frozen, before or after it.
const (
	writesFirst = ": > $MARK\nexec $BACKEND"
	writesLast  = "$BACKEND\n: > $MARK"
)

// wedged is a node whose backend sleeps in the kernel, in state D, as soon as the file system is frozen that it writes to.
func wedged(t *testing.T, mode, writes string) (*node, *faultinject.FS) {
	t.Helper()
	n := parallel(t, mode)
	n.ownPrograms()
	f := faultinject.NewFS(n, n.in("driver"))
	path := n.script("backend", strings.NewReplacer("$MARK", f.Dir+"/mark", "$BACKEND", n.conf.backend).Replace(writes))
	n.configure(func(c *conf) { c.backend = path })
	n.clean(n.own(prolog), bystanding())
	return n, f
}

// staysAlone asserts that one process is stuck, and that starts of jobs leave no other; then it lets that go, and all is
// well.
func (n *node) staysAlone(f *faultinject.FS, starts ...int) {
	left := n.unkillable()
	for _, id := range starts {
		n.exits(0, n.own(prolog), numbered(id))
	}
	n.unkillable(left...)
	f.Thaw()
	n.sound()
}

// A backend in state D costs the first hook its time, and the later ones none: they say since when. What a site decides
// of that is their exit code; shipped is a warning.
func TestBackendInUninterruptibleSleep(t *testing.T) {
	const drains = "policy:\n  prolog: {BKD-HANG: drain, BKD-STUCK: drain}\n  epilog: {BKD-HANG: drain, BKD-STUCK: drain}\n"
	for name, tt := range map[string]struct {
		mode, onUnknown, policy string
		hang, stuck             int
	}{
		"observe, drain":  {"observe", "drain", drains, 0, 0},
		"enforce, drain":  {"enforce", "drain", "", 0, 0},
		"enforce, drains": {"enforce", "warn", drains, 26, 25},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := wedged(t, tt.mode, writesFirst)
			n.clean(n.own(prolog), newJob())
			n.configure(func(c *conf) { c.onUnknown, c.extra, c.tight = tt.onUnknown, tt.policy, true })
			f.Freeze()
			n.exits(tt.hang, n.own(epilog), newJob())
			must.Not(n, !has(n.findings(epilog), catalog.Hang), "%+v", n.findings(epilog))
			left := n.unkillable()
			n.shows("driver not answering since ", "status")
			for i, h := range hooks {
				n.exits(tt.stuck, n.own(h), numbered(101+i))
			}
			n.saysTimes(2, string(catalog.Stuck), "looks=0")
			n.unkillable(left...)
			f.Thaw()
			n.sound()
		})
	}
}

// Many hooks at once, on a driver that has not answered for a while, leave one child: the others wait for the first one's
// answer.
func TestManyHooksOnAStuckDriver(t *testing.T) {
	n, f := wedged(t, "enforce", writesFirst)
	jobs := jobsFrom(100, 12)
	for _, j := range jobs {
		n.clean(n.own(prolog), j)
	}
	n.configure(func(c *conf) { c.onUnknown, c.tight = "drain", true })
	earlier := time.Now().Add(-time.Minute)
	must.Do(n, os.Chtimes(n.inState("driver-answered"), earlier, earlier))
	f.Freeze()
	n.together(n.own(epilog), jobs, nil)
	n.staysAlone(f, 300)
}

// Behind a backend that is stuck nobody else asks that driver: neither is the node asked which GPUs there are.
func TestStuckBackendLeavesOneChild(t *testing.T) {
	n, f := wedged(t, "enforce", writesFirst)
	n.clean(n.own(prolog), newJob())
	n.configure(func(c *conf) { c.onUnknown, c.tight = "drain", true })
	mend := n.deaf(n.world.DriverProc()+"/gpus", true)
	f.Freeze()
	n.exits(0, n.own(epilog), newJob())
	found := n.findings(epilog)
	must.Not(n, !has(found, catalog.Hang) || has(found, catalog.NoRecord), "%+v", found)
	left := n.unkillable()
	n.exits(0, n.own(prolog), numbered(101))
	n.unkillable(left...)
	mend()
	n.staysAlone(f)
}

// A backend that has answered and cannot end is on record: behind it nobody starts another.
func TestBackendStuckAfterItsAnswer(t *testing.T) {
	n, f := wedged(t, "enforce", writesLast)
	n.configure(func(c *conf) { c.tight = true })
	f.Freeze()
	n.exits(0, n.own(prolog), newJob())
	n.staysAlone(f, 101, 102, 103)
}

// A backend that has answered and takes long to end costs the next look its time, and no hook its deadline: what was
// seen is on record.
func TestBackendThatEndsLate(t *testing.T) {
	n := parallel(t, "enforce")
	n.clean(prolog, bystanding())
	n.set("gpu0.extra_mib", "2048")
	n.configure(func(c *conf) {
		c.tight, c.backend = true, n.script("backend", program("bookend-gpu")+"\nexec sleep 60")
	})
	const tight = "prolog: {total: 6s, driver: 2700ms, processes: 1200ms, probe: 300ms, records: 2700ms}"
	config := n.text()
	if !strings.Contains(config, tight) {
		t.Fatal(config)
	}
	n.put("bookend.yaml", strings.Replace(config, tight, "prolog: {total: 4s, driver: 2700ms, records: 500ms}", 1), 0o644)
	o := n.exits(0, prolog, newJob())
	if e := n.startOf(100); strings.Contains(o.output, string(catalog.Deadline)) || !has(e.Findings, catalog.Dirty) {
		t.Errorf("%v\n%+v", o, e.Findings)
	}
}

// Of two epilogs of one end beside each other the second may be the only one whose exit code anybody reads: where what
// the first left is on record still open, it judges as that one does, though Slurm tells no start time.
func TestSecondEpilogJudgesAsTheFirst(t *testing.T) {
	n := parallel(t, "enforce")
	n.configure(func(c *conf) { c.settle = "{max: 20s, stable: 2s}" }) // time enough for the second to begin
	n.clean(prolog, newJob())
	n.leftover()
	first := n.start(epilog, newJob())
	await(t, "the first epilog at work", func() bool { _, err := os.Stat(n.inState("lock-ends")); return err == nil })
	n.exits(10, epilog, newJob())
	o := first.wait()
	must.Not(t, o.exit != 10, "%v: %+v", o, n.run(100).Ends)
}
