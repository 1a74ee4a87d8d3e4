package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/diagnosis"
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

// A clean node's check logs nothing, and leaves its figures. A daemon outside of jobs that keeps the driver open is
// counted, once an hour.
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
	n = newNode(t, "observe")
	n.service()
	first := n.check().Keepers
	if first == nil || first.Count != 1 || n.metric("bookend_driver_kept_open_processes") != 1 {
		t.Fatalf("%+v\n%s", first, n.metrics())
	}
	if second := n.check().Keepers; second == nil || *second != *first {
		t.Errorf("searched again: %+v, then %+v", first, second)
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

// A health check that finds another one at work leaves everything to that one.
func TestCheckBesideAnother(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	first, before := n.check(), n.metrics()
	release, err := n.store().BeOnlyCheck()
	must(t, err)
	defer release()
	n.extra("700")
	if n.clean(healthcheck, bySlurm); n.log() != "" || n.lastCheck().At != first.At || n.metrics() != before {
		t.Errorf("log %s, metrics %s", n.log(), n.metrics())
	}
}

// A timer tells the health check nothing: it is the node that the hooks know, or else the host; among several nobody
// guesses.
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
	if o := n.exits(31, healthcheck, job{"SLURMD_NODENAME": "../n1"}); !strings.Contains(o.output,
		"is not a node's name") {
		t.Errorf("%v", o)
	}
	n.check()
	host, err := os.Hostname()
	must(t, err)
	short, _, _ := strings.Cut(host, ".")
	alone := newNode(t, "enforce")
	alone.clean(healthcheck, job{})
	if _, err := os.Stat(filepath.Join(alone.conf.run, "state", short, "check.json")); err != nil {
		t.Error(err)
	}
}

// Stopped by Slurm, or at its own deadline with nobody who reads what it says, it ends at once and says that it did not
// check.
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

	n.set("on."+memoryCall, "")
	n.configure(func(c *conf) { c.tight = true })
	n.unlogged()
	n.leftover() // something to log
	if exit := n.unheard(healthcheck, bySlurm); exit != 42 {
		t.Errorf("exit %d", exit)
	}
	n.unharmed(others)
}

// A job's process on a GPU that it was not given is found while both run; a partition that shares is left alone. A job
// of which nobody has a record is unknown: one finding, with a reason, and no word of a leftover.
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

	n = newNode(t, "enforce")
	n.clean(prolog, bystanding())
	n.inCgroup(n.leftover(), "77")
	c := n.checked("BKD-TRESPASS*")
	if !strings.Contains(c.Findings[0].Unknown, "no record") || c.Leaked[c.Cards[0].Device.ID] != 0 {
		t.Errorf("%+v, leaked %v", c.Findings, c.Leaked)
	}
}

// What the kernel wrote since the last check is told once; an error counter that has risen since then as well.
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
	n.set("gpu1.ecc_uncorrected", "3")
	n.check()
	n.set("gpu1.ecc_uncorrected", "5")
	if c := n.check(); !has(c.Findings, code.ECC) || !strings.Contains(fmt.Sprint(c.Findings), "3") {
		t.Errorf("%+v", c.Findings)
	}
	n.checked("")
}

// Who was seen on a job's GPU by a health check between its two ends stands in the answer to why it ran out of memory.
func TestCheckAnswersWhy(t *testing.T) {
	t.Parallel()
	for _, visited := range []bool{true, false} {
		n := newNode(t, "enforce")
		j := n.begin(newJob())
		answer, evidence, pid := diagnosis.Unknown, "nor at one look between", ""
		if visited {
			guest := n.guest()
			n.check()
			guest.End()
			answer, evidence, pid = diagnosis.Yes, "while your job ran", strconv.Itoa(guest.PID)
		}
		n.check()
		n.finish(j, failed, "RuntimeError: something else\n")
		c := n.endOf(100).Diagnosis.Cause(diagnosis.Others)
		if c.Answer != answer || !strings.Contains(c.Evidence, evidence) || !strings.Contains(c.Detail, pid) {
			t.Errorf("%+v", c)
		}
	}
}

// A run whose epilog never came is closed once its GPU was another's, alone and clean; that judges nothing, and its
// epilog may still come.
func TestCheckSettlesARunWithoutAnEnd(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	n.check()
	if r := n.run(100); r.Closed() {
		t.Fatalf("closed while no one else had its GPU: %+v", r.Ends)
	}
	n.hook(prolog, numbered(101))
	n.hook(epilog, numbered(101))
	n.check()
	r := n.run(100)
	if !r.Closed() || r.EndSeen() || !r.Ends[0].Presumed || len(r.Ends[0].Findings) > 0 ||
		r.Ends[0].Verdict.Action != "" {
		t.Fatalf("%+v", r.Ends)
	}
	n.shows("not seen: job 101 was given its GPU", "show", "100")
	n.exits(0, epilog, newJob())
	if !n.run(100).EndSeen() || has(n.findings(epilog), code.Again) {
		t.Errorf("the epilog that came after all: %+v", n.run(100).Ends)
	}
}

// Records are moved to disk by whoever comes: also a health check. Whose turn with the disk does not come has nothing to tell the admin.
func TestCheckMovesRecords(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	release := n.lock(filepath.Join(n.conf.run, "state"), "disk.lock")
	for id := 200; id < 203; id++ {
		n.job(id)
	}
	n.untroubled()
	history := filepath.Join(n.conf.varDir, "history", nodeName, "*.json")
	if kept, _ := filepath.Glob(history); len(kept) != 0 {
		t.Errorf("moved beside the other: %q", kept)
	}
	release()
	n.check()
	if kept, _ := filepath.Glob(history); len(kept) != 3 {
		t.Errorf("on disk: %q", kept)
	}
}
