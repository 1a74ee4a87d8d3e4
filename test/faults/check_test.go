package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/state"
	"bookend/test/must"
)

// check runs the health check as slurmd does, which must end well, and returns what it kept.
func (n *node) check() record.Check {
	n.exits(0, healthcheck, bySlurm)
	c := must.Have(state.LastCheck.Load(n.store()))(n)
	if c == nil {
		n.Fatalf("no health check is on record\n%s", n.log())
	}
	return *c
}

func (n *node) checked(want string) record.Check {
	c := n.check()
	must.Not(n, codes(c.Findings) != want, "found %q, want %q: %+v", codes(c.Findings), want, c.Findings)
	return c
}

// A clean node's check logs nothing. What a job left on a GPU that nobody has now is found between jobs, and named by what its epilog recorded; a job's
// process on a GPU that it was not given while both run, but where a partition shares; the kernel's words once.
func TestCheckFinds(t *testing.T) {
	n := parallel(t, "observe")
	n.ownPrograms()
	n.configure(func(c *conf) { c.record = "100ms" })
	n.xid(0, 79, offTheBus)
	c := n.checked("") // from before the first check
	if len(c.Cards) != 2 || c.Stopped || c.Took <= 0 || c.Cards[1].Index != 1 || len(c.Snapshot.Readings) != 2 ||
		n.log() != "" || n.metric(`bookend_hook_runs_total{hook="health_check",action="ignore"}`) != 1 {
		t.Errorf("%+v, logged: %s", c, n.log())
	}
	n.clean(n.own(prolog), newJob())
	p := n.leftover()
	n.inCgroup(p, "100")
	n.checked("") // the job runs: it is on its own GPU
	n.recorded("its process", func(r record.GPURecording) bool { return len(r.Processes) == 1 && r.Processes[0].Owner.ID == 100 })
	n.clean(prolog, bystanding())
	strays := n.leftover("--gpu", "1")
	n.inCgroup(strays, "100")
	f := n.checked("BKD-TRESPASS").Findings[0]
	must.Not(t, f.Holder.PID != strays.PID || f.Owner.Job != 100 || f.Index == nil || *f.Index != 1, "%+v", f)
	n.saysTimes(1, "BKD-TRESPASS", "GPU 1", "job 100 (cgroup)", "was not given this GPU")
	n.configure(func(c *conf) { c.shards = `"no", shared_partitions: [main]` })
	n.checked("")
	n.configure(func(c *conf) { c.shards = "" })
	must.Do(t, strays.Kill())
	n.escape(p)
	n.hook(epilog, newJob())
	c = n.checked("BKD-ORPHAN")
	f = c.Findings[0]
	must.Not(t, f.Owner == nil || f.Owner.Job != 100 || f.Owner.Level != record.BySighting || f.Holder.PID != p.PID ||
		c.Verdict.Exit != 0 || c.Leaked[c.Cards[0].Device.ID] < 100<<20, "%+v", c)
	n.check()
	n.saysTimes(1, "bookend-healthcheck", "BKD-ORPHAN", "GPU 0")
	n.xid(1, 48, "DBE")
	if c := n.check(); !has(c.Findings, catalog.XidFatal) {
		t.Errorf("%+v", c.Findings)
	}
	n.checked("BKD-ORPHAN")
}

// What can go wrong around a health check is said and counted, never fails it, and leaves nothing half written.
func TestCheckFaults(t *testing.T) {
	type row struct {
		harm  func(*node)
		finds catalog.Code
		says  string
	}
	each(t, "enforce", map[string]row{
		"bad configuration": {func(n *node) {
			n.configure(func(c *conf) { c.extra = "policy: {health_check: {BKD-ORPHAN: drain}}\n" })
		}, catalog.BadConfig, "the health check never drains"},
		"no backend": {noBackend, catalog.BackendMissing, "nothing"},
		"a lost GPU": {driver(memoryCall+".gpu1", "rc 15"), catalog.Lost, ""},
		"damaged records": {func(n *node) { n.put(n.inState("check.json"), "{", 0o600) }, catalog.StateDamage,
			"not a whole record"},
		"no log": {(*node).unlogged, "", ""},
	}, func(n *node, tt row) {
		n.clean(prolog, bystanding())
		n.check()
		n.configure(func(c *conf) { c.onUnknown = "drain" })
		tt.harm(n)
		c := n.check()
		must.Not(n, tt.finds != "" && !has(c.Findings, tt.finds) || c.Stopped || c.Verdict.Action == "drain",
			"want %q: %+v", tt.finds, c)
		if tt.finds != "" {
			n.says("program=bookend-healthcheck", string(tt.finds), tt.says)
		}
		n.unharmed()
	})
}

// unlogged takes the log's folder away: a problem to be said on stderr.
func (n *node) unlogged() {
	must.Do(n, os.RemoveAll(n.in("log")))
	n.put("log", "", 0o600)
}

// A machine without GPUs is none of its business: nothing is said, nothing made. With jobs on record it is. A timer
// tells it nothing: it is the node that the hooks know; among several nobody guesses.
func TestCheckWithoutGPUs(t *testing.T) {
	n := parallel(t, "enforce")
	n.configure(func(c *conf) { c.driverProc, c.extra = n.in("nothing"), "nonsense: 1\n" })
	n.clean(healthcheck, bySlurm)
	for _, made := range []string{"run", "var", "log"} {
		_, err := os.Lstat(n.in(made))
		must.Not(t, !os.IsNotExist(err), "%s: %v", made, err)
	}
	n.configure(func(c *conf) { c.driverProc, c.extra = n.world.DriverProc(), "" })
	n.clean(prolog, newJob())
	n.clean(healthcheck, job{})
	n.configure(func(c *conf) { c.driverProc = n.in("nothing") })
	n.checked("BKD-NODRIVER?")
	must.Do(t, os.Mkdir(filepath.Join(n.conf.run, "state/n2"), 0o700))
	o := n.exits(31, healthcheck, job{})
	must.Not(t, !strings.Contains(o.output, "may be any of 2 nodes"), "%v", o)
	n.says("BKD-ENV")
}

// Stopped by Slurm it ends at once and says that it did not check; a second one beside it leaves everything to it.
func TestCheckStopped(t *testing.T) {
	n := parallel(t, "enforce")
	n.clean(prolog, bystanding())
	n.set("on."+memoryCall, "hang-hard")
	p := n.start(healthcheck, bySlurm)
	backend := p.child("backend")
	await(t, "the driver to be asked", func() bool { return len(n.mapping(n.world.NVML())) == 1 })
	n.clean(healthcheck, bySlurm) // a second one beside it
	n.oneStuck(backend)
	o := p.terminate(backend)
	must.Not(t, o.exit != 42, "%v", o)
	n.unharmed()
}

// Errors that a job met whose end did not look for them are not the next one's.
func TestBriefEndBlamesNobody(t *testing.T) {
	n := parallel(t, "observe")
	n.job(101)
	n.checked("")
	n.clean(prolog, numbered(102))
	n.set("gpu0.ecc_uncorrected", "3")
	n.clean(epilog, numbered(102))
	n.clean(prolog, numbered(103))
	n.hook(epilog, failed(numbered(103)))
	for _, f := range n.endOf(103).Findings {
		must.Not(t, f.Code == catalog.ECC && f.Unknown == "", "job 103: %+v", f)
	}
}

// What an end did not read it does not deny: the program ran out of memory, and ended well.
func TestBriefEndDeniesNothing(t *testing.T) {
	n := parallel(t, "observe")
	n.job(101)
	n.checked("")
	n.end(n.begin(newJob()), "0", ranOut)
	d := n.endOf(100).Diagnosis
	if d == nil {
		t.Fatal("no diagnosis")
	}
	c := d.Cause(record.CauseFault)
	must.Not(t, c.Answer != record.CannotTell, "%+v", c)
}

// On a host with several slurmd the check of one node leaves the jobs of another alone, by their records and cgroups.
func TestCheckOfOneNodeOfSeveral(t *testing.T) {
	n := parallel(t, "observe")
	n.clean(prolog, bystanding())
	theirs := newJob().With("SLURMD_NODENAME", "n2")
	n.clean(prolog, theirs)
	n.leftover()
	n.checked("")
	onOurs := n.leftover("--gpu", "1")
	n.inScope(onOurs, "n2", "100")
	n.checked("")
	must.Do(t, onOurs.Kill())
	n.hook(epilog, theirs)
	n.checked("BKD-STRAY")
}
