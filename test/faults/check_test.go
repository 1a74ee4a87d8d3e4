package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/ledger"
)

// lastCheck is what the node's last health check kept.
func (n *node) lastCheck() ledger.Check {
	n.Helper()
	c, err := n.store().LastCheck()
	must(n, err)
	if c == nil {
		n.Fatalf("no health check is on record\n%s", n.log())
	}
	return *c
}

// check runs the health check as slurmd does, which must end well.
func (n *node) check() ledger.Check {
	n.Helper()
	if o := n.hook(healthcheck, bySlurm); o.exit != 0 || o.output != "" {
		n.Errorf("health check: %v", o)
	}
	return n.lastCheck()
}

// checked requires what a health check finds.
func (n *node) checked(want string) ledger.Check {
	n.Helper()
	c := n.check()
	if codes(c.Findings) != want {
		n.Errorf("found %q, want %q: %+v", codes(c.Findings), want, c.Findings)
	}
	return c
}

// A clean node's check logs nothing, and leaves its figures.
func TestCheckOfACleanNode(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	c := n.checked("")
	if len(c.Cards) != 2 || c.Stopped || c.Took <= 0 || c.Cards[1].Index != 1 || len(c.Snapshot.Readings) != 2 ||
		n.log() != "" {
		t.Errorf("%+v, logged: %s", c, n.log())
	}
	for _, want := range []string{`bookend_gpu_used_bytes{gpu="1",uuid="`, `bookend_gpu_leaked_bytes{gpu="0",uuid="`,
		`bookend_hook_runs_total{hook="health_check",action="ignore"} 1`, "bookend_health_check_duration_seconds 0."} {
		if !strings.Contains(n.metrics(), want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}

// What a job left on a GPU that nobody has now is found between jobs, and named by what its epilog recorded.
func TestCheckFindsWhatWasLeft(t *testing.T) {
	t.Parallel()
	n := newNode(t, "observe")
	n.clean(prolog, newJob())
	p := n.leftover()
	n.inCgroup(p, "100")
	n.checked("") // the job runs: it is on its own GPU
	n.escape(p)
	n.hook(epilog, newJob())
	c := n.checked("BKD-ORPHAN")
	f := c.Findings[0]
	if f.Owner == nil || f.Owner.Job != 100 || f.Owner.Level != attrib.BySighting || f.Holder.PID != p.PID ||
		c.Verdict.Exit != 0 || c.Leaked[c.Cards[0].Device.ID] < 100<<20 {
		t.Errorf("%+v", c)
	}
	n.check()
	n.saysTimes(1, "bookend-healthcheck", "BKD-ORPHAN", "GPU 0")
}

// What can go wrong around a health check is said and counted, never fails it, and leaves nothing half written.
func TestCheckFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		harm  func(*node)
		finds code.Code
		says  string
	}{
		"bad configuration": {func(n *node) {
			n.configure(func(c *conf) { c.extra = "policy: {health_check: {BKD-ORPHAN: drain}}\n" })
		}, code.BadConfig, "the health check never drains"},
		"no backend": {func(n *node) { n.configure(func(c *conf) { c.backend = n.in("nobody") }) },
			code.BackendMissing, "nobody"},
		"a crash":    {driver(memoryCall, "crash"), code.BackendCrash, ""},
		"a lost GPU": {driver(memoryCall+".gpu1", "rc 15"), code.Lost, ""},
		"damaged records": {func(n *node) { n.put(n.inState("sighted.json"), "{", 0o600) }, code.StateDamage,
			"not a whole record"},
		"an Xid": {func(n *node) { n.kernel(n.xidLine(1, 79, offTheBus)) }, code.XidFatal,
			"fallen off the bus"},
		"no log": {(*node).unlogged, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.clean(prolog, bystanding())
			n.check()
			others := n.record()
			n.configure(func(c *conf) { c.onUnknown = "drain" })
			tt.harm(n)
			n.exits(0, healthcheck, bySlurm)
			c := n.lastCheck()
			if tt.finds != "" && !has(c.Findings, tt.finds) || c.Stopped || c.Verdict.Action == "drain" {
				t.Errorf("want %q: %+v", tt.finds, c)
			}
			if tt.finds != "" {
				n.says("program=bookend-healthcheck", string(tt.finds), tt.says)
			}
			n.unharmed(others)
		})
	}
}

// unlogged takes the log's folder away: a problem to be said on stderr.
func (n *node) unlogged() {
	n.Helper()
	must(n, os.RemoveAll(n.in("log")))
	n.put("log", "", 0o600)
}

// A machine without GPUs is none of its business: nothing is said, nothing made. With jobs on record it is.
func TestCheckWithoutGPUs(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.driverProc, c.extra = n.in("nothing"), "nonsense: 1\n" })
	n.clean(healthcheck, bySlurm)
	for _, made := range []string{"run", "var", "log"} {
		if _, err := os.Lstat(n.in(made)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", made, err)
		}
	}
	n.configure(func(c *conf) { c.driverProc, c.extra = n.world.DriverProc(), "" })
	n.clean(prolog, newJob())
	n.configure(func(c *conf) { c.driverProc = n.in("nothing") })
	if n.exits(0, healthcheck, bySlurm); !has(n.lastCheck().Findings, code.NoDriver) {
		t.Errorf("%+v", n.lastCheck())
	}
}

// A timer tells the health check nothing: it is the node that the hooks know; among several nobody guesses.
func TestCheckNamesItsNode(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	if n.clean(healthcheck, job{}); n.lastCheck().At == 0 {
		t.Error("the check is not the node's")
	}
	must(t, os.Mkdir(filepath.Join(n.conf.run, "state/n2"), 0o700))
	if o := n.exits(31, healthcheck, job{}); !strings.Contains(o.output, "may be any of 2 nodes") {
		t.Errorf("%v", o)
	}
	n.says("BKD-ENV")
}

// Stopped by Slurm it ends at once and says that it did not check; a second one beside it leaves everything to it.
func TestCheckStopped(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	others := n.record()
	n.set("on."+memoryCall, "hang-hard")
	p := n.start(healthcheck, bySlurm)
	backend := p.child("backend")
	n.clean(healthcheck, bySlurm) // a second one beside it
	n.oneStuck(backend)
	if o := p.terminate(backend); o.exit != 42 {
		t.Errorf("%v", o)
	}
	n.unharmed(others)
}

// A job's process on a GPU that it was not given is found while both run; a partition that shares is left alone.
func TestCheckFindsATrespasser(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	n.clean(prolog, bystanding())
	p := n.leftover("--gpu", "1")
	n.inCgroup(p, "100")
	f := n.checked("BKD-TRESPASS").Findings[0]
	if f.Holder.PID != p.PID || f.Owner.Job != 100 || f.Index == nil || *f.Index != 1 {
		t.Errorf("%+v", f)
	}
	n.saysTimes(1, "BKD-TRESPASS", "GPU 1", "job 100 (cgroup)", "was not given this GPU")
	n.configure(func(c *conf) { c.shards = `"no", shared_partitions: [main]` })
	n.checked("")
}

// What the kernel wrote since the last check is told once.
func TestCheckTellsWhatIsNew(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.kernel(n.xidLine(0, 79, offTheBus))
	if n.checked("").Kernel == nil { // from before the first check
		t.Error("the kernel's log was not read")
	}
	n.kernel(n.xidLine(1, 48, "DBE"))
	if c := n.check(); !has(c.Findings, code.XidFatal) || has(c.Findings, code.Untraced) {
		t.Errorf("%+v", c.Findings)
	}
	n.checked("")
}
