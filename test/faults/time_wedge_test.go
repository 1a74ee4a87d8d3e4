package faults

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"bookend/internal/code"
	"bookend/internal/slurm"
	"bookend/test/frozen"
)

// wedged is a node whose backend sleeps in the kernel, in state D, as soon as the file system is frozen that it writes to
// before it asks its driver.
func wedged(t *testing.T, mode string, change func(*conf)) (*node, *frozen.FS) {
	t.Helper()
	n := newNode(t, mode)
	n.ownPrograms()
	f := frozen.New(n, n.in("driver"))
	path := n.script("backend", ": > "+f.Dir+"/mark\nexec "+n.in("bin/bookend-gpu"))
	n.configure(func(c *conf) {
		change(c)
		c.backend = path
	})
	n.clean(n.own(prolog), bystanding())
	return n, f
}

// certainOnes lets a site drain for a driver that does not answer.
const certainOnes = "policy:\n  prolog: {BKD-HANG: drain, BKD-STUCK: drain}\n  epilog: {BKD-HANG: drain, BKD-STUCK: drain}\n"

// A backend in state D costs the first hook its time, and the later ones none: they say since when. What a site decides
// of that is their exit code; shipped is a warning.
func TestBackendInUninterruptibleSleep(t *testing.T) {
	for name, tt := range map[string]struct {
		mode, onUnknown, policy string
		first                   hook
		hang, stuck             int
	}{
		"observe, warn":             {"observe", "warn", "", prolog, 0, 0},
		"observe, drain":            {"observe", "drain", certainOnes, epilog, 0, 0},
		"enforce, warn":             {"enforce", "warn", "", epilog, 0, 0},
		"enforce, drain":            {"enforce", "drain", "", prolog, 0, 0},
		"enforce, drains":           {"enforce", "warn", certainOnes, epilog, 26, 25},
		"enforce, drains at starts": {"enforce", "warn", certainOnes, prolog, 26, 25},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, f := wedged(t, tt.mode, func(c *conf) { c.onUnknown, c.extra = tt.onUnknown, tt.policy })
			others := n.record()
			if tt.first == epilog {
				n.clean(n.own(prolog), newJob())
			}
			n.configure(func(c *conf) { c.tight = true })
			f.Freeze()
			n.timely(tt.first, newJob(), tt.hang)
			if found := n.findings(tt.first); !has(found, code.Hang) {
				t.Errorf("%+v", found)
			}
			left := n.unkillable(1)
			for i, h := range hooks {
				n.timely(h, numbered(slurm.JobID(101+i)), tt.stuck)
			}
			if got := len(lines(n.log(), string(code.Stuck), "looks=0")); got != 2 {
				t.Errorf("%d hooks said so:\n%s", got, n.log())
			}
			if now := n.unkillable(1); now[0] != left[0] {
				t.Errorf("left: %v, then %v", left, now)
			}
			f.Thaw()
			n.none()
			n.sound(others)
		})
	}
}

// However many hooks come while the driver is wedged, one by one or at once, the first one's backend stays the only one.
func TestTwentyHooksLeaveOneChild(t *testing.T) {
	t.Parallel()
	const each = 10 // prologs, and epilogs
	n, f := wedged(t, "enforce", func(*conf) {})
	for i := range each {
		n.clean(n.own(prolog), numbered(slurm.JobID(100+i)))
	}
	others := n.record()
	n.configure(func(c *conf) { c.tight = true })
	f.Freeze()
	n.timely(epilog, numbered(100), 0)
	left := n.unkillable(1)
	var all sync.WaitGroup
	begin := func(h hook, id slurm.JobID) {
		p := n.start(n.own(h), numbered(id))
		all.Go(func() {
			if o := p.wait(); o.exit != 0 {
				t.Errorf("%s of job %d: %v", h.program, id, o)
			}
		})
	}
	for i := 1; i < each; i++ {
		begin(epilog, slurm.JobID(100+i))
	}
	for i := range each {
		begin(prolog, slurm.JobID(200+i))
	}
	all.Wait()
	if now := n.unkillable(1); now[0] != left[0] {
		t.Errorf("left: %v, then %v", left, now)
	}
	if hung, stuck := len(lines(n.log(), "findings: ", string(code.Hang))), len(lines(n.log(), "findings: ", string(code.Stuck))); hung != 1 || stuck != 2*each-1 {
		t.Errorf("%d hung, %d found the driver stuck:\n%s", hung, stuck, n.log())
	}
	f.Thaw()
	n.none()
	n.sound(others)
}

// So does the first of twenty that come at once on a driver that nobody knows to be wedged: the others wait for what
// becomes of it, and start nothing.
func TestTwentyHooksAtOnceLeaveOneChild(t *testing.T) {
	t.Parallel()
	n, f := wedged(t, "enforce", func(*conf) {})
	others := n.record()
	n.configure(func(c *conf) { c.tight = true })
	// An answer of a moment ago vouches for the driver; here it is longer ago.
	must(t, os.Remove(filepath.Join(n.conf.run, "state", nodeName, "answered.json")))
	f.Freeze()
	var all sync.WaitGroup
	for i := range 20 {
		p := n.start(n.own(prolog), numbered(slurm.JobID(200+i)))
		all.Go(func() {
			if o := p.wait(); o.exit != 0 {
				t.Errorf("job %d: %v", 200+i, o)
			}
		})
	}
	all.Wait()
	n.unkillable(1)
	log := n.log()
	hung, told := len(lines(log, "findings: ", string(code.Hang))), len(lines(log, "findings: ", string(code.Stuck)))+len(lines(log, "findings: ", string(code.Slow)))
	if hung != 1 || told != 19 {
		t.Errorf("%d hung, %d waited or found the driver stuck:\n%s", hung, told, log)
	}
	f.Thaw()
	n.none()
	n.sound(others)
}

// A driver that is slow to start is none that hangs, however many hooks begin at once, and none of them waits in vain: what
// a hook waited for another leaves no certainty for its own attempt.
func TestSlowStartOfTwoAtOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.extra = certainOnes })
	must(t, n.world.Set("on.nvmlInit_v2", "sleep 700"))
	n.configure(func(c *conf) { c.tight = true })
	var all sync.WaitGroup
	for i := range 4 {
		p := n.start(prolog, numbered(slurm.JobID(200+i)))
		all.Go(func() {
			if o := p.wait(); o.exit != 0 {
				t.Errorf("job %d: %v\n%s", 200+i, o, n.log())
			}
		})
	}
	all.Wait()
	if hung := lines(n.log(), "findings: ", string(code.Hang)); len(hung) > 1 { // only of the one that did not wait
		t.Errorf("%q", hung)
	}
}

// slurmd may end a hook while its child is stuck: the next hooks know of that child all the same, and start none.
func TestKilledHooksLeaveOneChild(t *testing.T) {
	t.Parallel()
	n, f := wedged(t, "enforce", func(*conf) {})
	others := n.record()
	must(t, os.Remove(filepath.Join(n.conf.run, "state", nodeName, "answered.json")))
	f.Freeze()
	p := n.start(n.own(prolog), numbered(200))
	stuck := func() bool {
		for _, pid := range n.left() {
			if pid != p.cmd.Process.Pid && stateOf(pid) == "D" {
				return true
			}
		}
		return false
	}
	await(t, "the stuck backend", stuck)
	must(t, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL))
	<-p.ended
	for _, id := range []slurm.JobID{201, 202} {
		n.timely(prolog, numbered(id), 0)
	}
	if left := n.left(); len(left) != 1 {
		t.Errorf("left: %v\n%s", left, n.log())
	}
	if told := lines(n.log(), "findings: ", string(code.Stuck)); len(told) != 2 {
		t.Errorf("%s", n.log())
	}
	f.Thaw()
	n.none()
	n.sound(others)
}
