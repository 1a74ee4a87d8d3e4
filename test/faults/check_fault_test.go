package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/diagnosis"
	"bookend/internal/state"
)

// What can go wrong around a health check is said and counted, never fails it, and leaves nothing half written.
func TestCheckFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		harm  func(*node)
		finds code.Code
		says  string
	}{
		"bad configuration": {func(n *node) {
			n.configure(func(c *conf) { c.extra = "policy: {health_check: {BKD-ORPHAN: drain}}\n" })
		},
			code.BadConfig, "the health check never drains"},
		"no backend":      {func(n *node) { n.configure(func(c *conf) { c.backend = n.in("nobody") }) }, code.BackendMissing, "nobody"},
		"no library":      {func(n *node) { must(n, os.Remove(n.world.NVML())) }, code.NoDriver, "libnvidia-ml.so.1"},
		"a crash":         {func(n *node) { must(n, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "crash")) }, code.BackendCrash, ""},
		"a lost card":     {func(n *node) { must(n, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2.gpu1", "rc 15")) }, code.Lost, ""},
		"damaged records": {func(n *node) { n.ruin("sighted.json", "check.json") }, code.StateDamage, "not a whole record"},
		"no log":          {(*node).unlogged, "", ""},
		"a card's fault in the kernel's log": {func(n *node) {
			n.kernel(n.xidLine(1, 79, "GPU has fallen off the bus."))
		}, code.XidFatal, "fallen off the bus"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.clean(prolog, bystanding())
			n.check()
			others := n.record()
			n.configure(func(c *conf) { c.onUnknown = "drain" })
			tt.harm(n)
			if o := n.hook(healthcheck, bySlurm); o.exit != 0 {
				t.Errorf("%v", o)
			}
			c := n.lastCheck()
			if tt.finds != "" && !has(c.Findings, tt.finds) || c.Stopped || c.Verdict.Action == "drain" {
				t.Errorf("want %q: %+v", tt.finds, c)
			}
			if tt.finds != "" && len(lines(n.log(), "program=bookend-healthcheck", string(tt.finds), tt.says)) == 0 {
				t.Errorf("not said:\n%s", n.log())
			}
			n.unharmed(others)
		})
	}
}

// ruin cuts files of the node's state.
func (n *node) ruin(names ...string) {
	n.Helper()
	for _, name := range names {
		must(n, os.WriteFile(filepath.Join(n.conf.run, "state", nodeName, name), []byte(`{"version":1,"val`), 0o600))
	}
}

// A machine without GPUs is none of its business: nothing is said, nothing made. With jobs on record it is.
func TestCheckWithoutGPUs(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.driverProc = n.in("nothing"); c.extra = "nonsense: 1\n" })
	if o := n.hook(healthcheck, bySlurm); o.exit != 0 || o.output != "" {
		t.Errorf("%v", o)
	}
	for _, made := range []string{"run", "var", "log"} {
		if _, err := os.Lstat(n.in(made)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", made, err)
		}
	}
	n.configure(func(c *conf) { c.driverProc, c.extra = n.world.DriverProc(), "" })
	n.clean(prolog, newJob())
	n.configure(func(c *conf) { c.driverProc = n.in("nothing") })
	if o := n.hook(healthcheck, bySlurm); o.exit != 0 || !has(n.lastCheck().Findings, code.NoDriver) {
		t.Errorf("%v\n%s", o, n.log())
	}
}

// A health check that finds another one at work leaves everything to that one.
func TestCheckBesideAnother(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.check()
	before, err := os.ReadFile(filepath.Join(n.varDir(), "bookend.prom"))
	must(t, err)
	store, err := state.Open(n.conf.run, nodeName)
	must(t, err)
	release, err := store.BeOnlyCheck()
	must(t, err)
	defer release()
	first := n.lastCheck()
	n.exported(100000)
	if o := n.hook(healthcheck, bySlurm); o.exit != 0 || o.output != "" || n.log() != "" || n.lastCheck().At != first.At {
		t.Errorf("%v\n%s", o, n.log())
	}
	after, err := os.ReadFile(filepath.Join(n.varDir(), "bookend.prom"))
	if must(t, err); string(after) != string(before) {
		t.Errorf("metrics changed: %s", after)
	}
}

// A timer tells the health check nothing: it is the node that the hooks know, or else the host; among several nobody guesses.
func TestCheckNamesItsNode(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	if o := n.hook(healthcheck, job{}); o.exit != 0 || n.lastCheck().At == 0 {
		t.Errorf("%v", o)
	}
	must(t, os.Mkdir(filepath.Join(n.conf.run, "state/n2"), 0o700))
	if o := n.hook(healthcheck, job{}); o.exit != 31 || !strings.Contains(o.output, "may be any of 2 nodes") || len(lines(n.log(), "BKD-ENV")) == 0 {
		t.Errorf("%v\n%s", o, n.log())
	}
	if o := n.hook(healthcheck, job{"SLURMD_NODENAME": "../n1"}); o.exit != 31 || !strings.Contains(o.output, "is not a node's name") {
		t.Errorf("%v", o)
	}
	n.check()

	host, err := os.Hostname()
	must(t, err)
	short, _, _ := strings.Cut(host, ".")
	alone := newNode(t, "enforce")
	if o := alone.hook(healthcheck, job{}); o.exit != 0 {
		t.Errorf("%v", o)
	}
	if _, err := os.Stat(filepath.Join(alone.conf.run, "state", short, "check.json")); err != nil {
		t.Error(err)
	}
}

// A driver that even SIGKILL cannot free keeps one child, whoever comes: health check, hook, health check.
func TestCheckBesideAStuckDriver(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	others := n.record()
	n.configure(func(c *conf) { c.tight, c.onUnknown = true, "drain" })
	must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "freeze"))
	if o := n.hook(healthcheck, bySlurm); o.exit != 0 || !has(n.lastCheck().Findings, code.Hang) {
		t.Errorf("%v\n%s", o, n.log())
	}
	frozen := n.stuck()
	if len(frozen) != 1 {
		t.Fatalf("stuck: %v", frozen)
	}
	n.hook(prolog, newJob())
	if !has(n.findings(prolog), code.Stuck) {
		t.Errorf("the hook after it: %+v", n.findings(prolog))
	}
	if o := n.hook(healthcheck, bySlurm); o.exit != 0 || !has(n.lastCheck().Findings, code.Stuck) {
		t.Errorf("%v\n%s", o, n.log())
	}
	if now := n.stuck(); len(now) != 1 || now[0] != frozen[0] {
		t.Errorf("stuck: %v, then %v", frozen, now)
	}
	n.unharmed(others)
	n.unstick("nvmlDeviceGetMemoryInfo_v2")
	n.configure(func(c *conf) { c.tight = false })
	if c := n.check(); len(c.Findings) > 0 {
		t.Errorf("once it answers: %+v", c.Findings)
	}
}

// Stopped by Slurm, or at its own deadline with nobody who reads what it says, it ends at once and says that it did not check.
func TestCheckStopped(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	others := n.record()
	must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "hang-hard"))
	p := n.start(healthcheck, bySlurm)
	backend := p.backend()
	began := time.Now()
	if o := n.hook(healthcheck, bySlurm); o.exit != 0 || o.output != "" || time.Since(began) > margin {
		t.Errorf("a second one beside it, after %v: %v", time.Since(began), o)
	}
	if now := n.stuck(); len(now) != 1 || now[0] != backend {
		t.Errorf("in the driver: %v, and of the first %d", now, backend)
	}
	if o := p.terminate(backend); o.exit != 42 {
		t.Errorf("%v", o)
	}
	n.unharmed(others)

	must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", ""))
	n.configure(func(c *conf) { c.tight = true })
	n.unlogged()
	n.leftover() // something to log
	if exit := n.unheard(healthcheck, bySlurm); exit != 42 {
		t.Errorf("exit %d", exit)
	}
	n.unharmed(others)
}

// A full tmpfs or a full disk costs what would be kept, and nothing that is.
func TestCheckOnFullFileSystems(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.mountRun("size=1m")
	n.clean(prolog, bystanding())
	n.check()
	others := n.record()
	n.fill()
	if o := n.hook(healthcheck, bySlurm); o.exit != 0 || len(lines(n.log(), "bookend-healthcheck", "BKD-ST-WRITE", "no space")) == 0 {
		t.Errorf("%v\n%s", o, n.log())
	}
	must(t, os.Remove(filepath.Join(n.conf.run, "filler")))
	n.unharmed(others)

	must(t, os.Mkdir(n.in("small"), 0o755))
	must(t, unix.Mount("none", n.in("small"), "tmpfs", 0, "mode=0755,size=4k"))
	t.Cleanup(func() { must(t, unix.Unmount(n.in("small"), unix.MNT_DETACH)) })
	n.configure(func(c *conf) { c.varDir = n.in("small") })
	if o := n.hook(healthcheck, bySlurm); o.exit != 0 || len(lines(o.output, "no space")) == 0 {
		t.Errorf("%v", o)
	}
	n.unharmed(others)
}

// A process whose entry in /proc hangs keeps the check no longer than its deadline, and is unknown.
func TestCheckBesideAHungProcess(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	p := n.leftover()
	proc := n.in("proc")
	for _, dir := range []string{"self", "sys/kernel"} {
		must(t, os.MkdirAll(filepath.Join(proc, dir), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(proc, "self/cgroup"), []byte("0::/\n"), 0o644))
	must(t, os.MkdirAll(filepath.Join(proc, "sys/kernel/random"), 0o755))
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(proc, "sys/kernel/random/boot_id"), boot, 0o644))
	undo := n.hangs(proc, p.PID, "status", "0::/\n")
	n.configure(func(c *conf) { c.proc, c.tight, c.settle = proc, true, "{max: 300ms, flat: 200ms}" })
	began := time.Now()
	o := n.hook(healthcheck, bySlurm)
	if took := time.Since(began); o.exit != 0 && o.exit != 42 || took > healthcheck.limit+margin {
		t.Errorf("after %v: %v", took, o)
	}
	found := n.lastCheck().Findings
	for _, f := range found {
		if f.Owner != nil || f.Code == code.Orphan || f.Unknown == "" {
			t.Errorf("the process is blamed, or not said to be unknown: %+v", f)
		}
	}
	if len(found) == 0 && o.exit == 0 {
		t.Error("the process is not mentioned")
	}
	undo()
}

// A job's process on a card that it was not given is found while both run, on all cards; a partition that shares is left alone.
func TestCheckFindsATrespasser(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	n.clean(prolog, bystanding())
	p := n.leftover("--gpu", "1")
	n.inCgroup(p, "100")
	c := n.check()
	if len(c.Findings) != 1 || c.Findings[0].Code != code.Trespass || c.Findings[0].Holder.PID != p.PID || c.Findings[0].Owner.Job != 100 ||
		c.Findings[0].Index == nil || *c.Findings[0].Index != 1 {
		t.Errorf("%+v", c.Findings)
	}
	if said := lines(n.log(), "BKD-TRESPASS", "GPU 1", "job 100 (cgroup)", "was not given this GPU"); len(said) != 1 {
		t.Errorf("%s", n.log())
	}
	n.share("main")
	if c := n.check(); len(c.Findings) > 0 {
		t.Errorf("where sharing is legal: %+v", c.Findings)
	}
}

// A job of which nobody has a record is unknown: one finding, with a reason, and no word of a leftover.
func TestCheckBesideAJobWithoutARecord(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	p := n.leftover()
	n.inCgroup(p, "77")
	c := n.check()
	if len(c.Findings) != 1 || c.Findings[0].Code != code.Trespass || !strings.Contains(c.Findings[0].Unknown, "no record") || len(c.Leaked) != 0 && c.Leaked[c.Cards[0].Device.ID] != 0 {
		t.Errorf("%+v, leaked %v", c.Findings, c.Leaked)
	}
}

// What the kernel wrote since the last check is told once; an error counter that has risen since then as well.
func TestCheckTellsWhatIsNew(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.kernel(n.xidLine(0, 79, "GPU has fallen off the bus."))
	if c := n.check(); len(c.Findings) > 0 || c.Kernel == nil {
		t.Errorf("from before the first check: %+v", c)
	}
	n.kernel(n.xidLine(1, 48, "DBE"))
	if c := n.check(); !has(c.Findings, code.XidFatal) || has(c.Findings, code.Untraced) {
		t.Errorf("%+v", c.Findings)
	}
	if c := n.check(); len(c.Findings) > 0 {
		t.Errorf("told again: %+v", c.Findings)
	}
	must(t, n.world.Set("gpu1.ecc_uncorrected", "3"))
	n.check()
	must(t, n.world.Set("gpu1.ecc_uncorrected", "5"))
	if c := n.check(); !has(c.Findings, code.ECC) || !strings.Contains(fmt.Sprint(c.Findings), "3") {
		t.Errorf("%+v", c.Findings)
	}
	if c := n.check(); has(c.Findings, code.ECC) {
		t.Errorf("told again: %+v", c.Findings)
	}
}

// share names a partition that hands one card to several jobs.
func (n *node) share(partition string) {
	n.Helper()
	text, err := os.ReadFile(n.config)
	must(n, err)
	must(n, os.WriteFile(n.config, []byte(strings.Replace(string(text), "slurm: {", "slurm: {shared_partitions: ["+partition+"], ", 1)), 0o644))
}

// Who was seen on a job's card by a health check between its two ends stands in the answer to why it ran out of memory.
func TestCheckAnswersWhy(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	j := n.begin(newJob())
	guest := n.holder(bystander, nil, "--mib", "2048", "--gpu", "0")
	n.check()
	guest.End()
	n.check()
	n.finish(j, failed, "RuntimeError: something else\n")
	d := n.endOf(100).Diagnosis
	if d == nil {
		t.Fatalf("nobody asked why: %+v", n.endOf(100))
	}
	if c := d.Cause(diagnosis.Others); c.Answer != diagnosis.Yes || !strings.Contains(c.Evidence, "while your job ran") || !strings.Contains(c.Detail, strconv.Itoa(guest.PID)) {
		t.Errorf("%+v", c)
	}
	n = newNode(t, "enforce")
	quiet := n.begin(newJob())
	n.check()
	n.finish(quiet, failed, "RuntimeError: something else\n")
	if c := n.endOf(100).Diagnosis.Cause(diagnosis.Others); c.Answer != diagnosis.Unknown || !strings.Contains(c.Evidence, "nor at one look between") {
		t.Errorf("one look between proves nothing: %+v", c)
	}
}

// A run whose epilog never came is closed once its card was another's, alone and clean; that judges nothing, and its epilog
// may still come.
func TestCheckSettlesARunWithoutAnEnd(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	next := newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101")
	n.check()
	if r := n.run(100); r.Closed() {
		t.Fatalf("closed while nobody else had its card: %+v", r.Ends)
	}
	n.hook(prolog, next)
	n.hook(epilog, next)
	n.check()
	r := n.run(100)
	if !r.Closed() || r.EndSeen() || !r.Ends[0].Presumed || len(r.Ends[0].Findings) > 0 || r.Ends[0].Verdict.Action != "" {
		t.Fatalf("%+v", r.Ends)
	}
	if shown, _ := n.bookend("show", "100"); !strings.Contains(shown, "not seen: job 101 was given its GPU") {
		t.Errorf("%s", shown)
	}
	if o := n.hook(epilog, newJob()); o.exit != 0 || !n.run(100).EndSeen() || has(n.findings(epilog), code.Again) {
		t.Errorf("the epilog that came after all: %v, %+v", o, n.run(100).Ends)
	}
}

// Records are moved to disk, and drop folders that were put aside are removed, by whoever comes: also a health check.
func TestCheckMovesRecords(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	for i := range 3 {
		id := strconv.Itoa(200 + i)
		j := newJob().with("SLURM_JOB_ID", id, "SLURM_JOBID", id)
		n.clean(prolog, j)
		n.clean(epilog, j)
	}
	must(t, os.RemoveAll(filepath.Join(n.varDir(), "history"))) // the disk was not there
	aside := filepath.Join(n.conf.run, "drop", fmt.Sprintf("%s_%d.aside-0", nodeName, 200))
	must(t, os.Mkdir(aside, 0o700))
	for _, r := range []int{200, 201, 202} {
		files, _ := filepath.Glob(filepath.Join(n.conf.run, "state", nodeName, strconv.Itoa(r), "*.json"))
		n.replace(files[0], `"archived":true`, `"archived":false`)
	}
	n.check()
	if kept, _ := filepath.Glob(filepath.Join(n.varDir(), "history", nodeName, "*.json")); len(kept) != 3 {
		t.Errorf("on disk: %q", kept)
	}
	if _, err := os.Lstat(aside); !os.IsNotExist(err) {
		t.Errorf("the folder aside: %v", err)
	}
}
