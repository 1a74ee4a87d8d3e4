package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/probe"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/fakegpu"
)

// endOf is the record of the last end of a job.
func (n *node) endOf(id slurm.JobID) ledger.End {
	n.Helper()
	for _, r := range n.runs(id) {
		if len(r.Ends) > 0 {
			return r.Ends[len(r.Ends)-1]
		}
	}
	n.Fatalf("job %d has no end on record", id)
	return ledger.End{}
}

// probed is the one test allocation of an end.
func (n *node) probed(e ledger.End) gpu.Probe {
	n.Helper()
	if len(e.Probes) != 1 || e.Probes[0].Device != gpu.ID(n.world.UUID(0)) {
		n.Fatalf("want one test, of card %s: %+v", n.world.UUID(0), e.Probes)
	}
	return e.Probes[0]
}

// tests are the node's last tests.
func (n *node) tests() map[gpu.ID]probe.Record {
	n.Helper()
	store, err := state.Open(n.conf.run, nodeName)
	must(n, err)
	all, err := store.Probes()
	must(n, err)
	return all
}

// unprobed makes any test allocation show: nothing else calls this function.
func (n *node) unprobed() { n.Helper(); must(n, n.world.Set("on.cuInit", "crash")) }

// kernel writes a line of the kernel's log, one second after the other.
func (n *node) kernel(text string) {
	n.Helper()
	path := filepath.Join(n.world.Dev(), "kmsg")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	must(n, err)
	defer f.Close()
	now, err := os.ReadFile(path)
	must(n, err)
	seq := 100 + strings.Count(string(now), "\n")
	_, err = fmt.Fprintf(f, "3,%d,%d,-;%s\n", seq, seq*1_000_000, text)
	must(n, err)
}

// xid is how the kernel's module reports an error of a card.
func (n *node) xid(card int) {
	n.Helper()
	n.kernel(fmt.Sprintf("NVRM: Xid (PCI:%s): 94, pid=1, name=x, Contained: SM", strings.TrimSuffix(n.world.BusID(card), ".0")))
}

// As shipped each end tests a card that it has seen clean, and says so where an admin looks.
func TestProbeAtTheEnd(t *testing.T) {
	n := newNode(t, "observe")
	n.clean(prolog, newJob())
	if tests := n.startOf(100).Probes; len(tests) != 0 {
		t.Errorf("a start without an earlier test has one: %+v", tests)
	}
	n.clean(epilog, newJob())
	p := n.probed(n.endOf(100))
	if p.Result != gpu.ProbeOK || p.Method != gpu.Contextless || p.Largest.Bytes != p.Free.Bytes-2<<20 || p.Free.Bytes < 100<<30 || p.At <= n.endOf(100).At {
		t.Errorf("%+v", p)
	}
	if r, known := n.tests()[p.Device]; !known || r.Probe.Result != gpu.ProbeOK || r.Seen != 1 {
		t.Errorf("for later starts: %+v", r)
	}
	if shown, _ := n.bookend("show", "100"); len(lines(shown, "GPU 0", "test allocation: ok, largest block ")) != 1 {
		t.Errorf("show:\n%s", shown)
	}
	if shown, _ := n.bookend("snapshot"); len(lines(shown, "last test of "+n.world.UUID(0), "test allocation: ok")) != 1 {
		t.Errorf("snapshot:\n%s", shown)
	}
}

func TestProbeNever(t *testing.T) {
	for name, extra := range map[string]string{
		"everywhere": "probe: {at: never}\n", "in the partition": "probe: {at: both, partitions: {main: never}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "observe")
			n.configure(func(c *conf) { c.extra = extra })
			n.unprobed()
			n.clean(prolog, newJob())
			n.clean(epilog, newJob())
			if tests := append(n.startOf(100).Probes, n.endOf(100).Probes...); len(tests)+len(n.tests()) != 0 {
				t.Errorf("%+v", tests)
			}
		})
	}
}

// A start believes the last test while nothing has changed, and does not make it again.
func TestStartTrustsTheLastTest(t *testing.T) {
	n := newNode(t, "observe")
	n.configure(func(c *conf) { c.extra = "probe: {at: both}\n" })
	n.kernel("eth0: link is up")
	n.clean(prolog, numbered(101))
	if e := n.startOf(101); n.probed(e).Result != gpu.ProbeOK || n.probed(e).At <= e.At {
		t.Errorf("a start that knows of no test makes one: %+v", e.Probes)
	}
	n.clean(epilog, numbered(101))
	n.xid(1)
	n.unprobed()
	n.clean(prolog, numbered(102))
	if e := n.startOf(102); n.probed(e).Result != gpu.ProbeOK || n.probed(e).At >= e.At || len(e.Findings) != 0 {
		t.Errorf("nothing has changed: %+v %+v", e.Probes, e.Findings)
	}
	if k := n.startOf(102).Kernel; k == nil || len(k.Xids) != 0 || k.Last.Seq != 103 {
		t.Errorf("a start keeps the mark alone: %+v", k)
	}
	must(t, n.world.Set("on.cuInit", ""))
	n.clean(epilog, numbered(102))
	n.unprobed()
	n.xid(0)
	if o := n.hook(prolog, numbered(103)); o.exit != 0 || !has(n.startOf(103).Findings, code.Broken) {
		t.Errorf("an Xid on the card, and no new test: %v %+v", o, n.startOf(103).Findings)
	}
}

// Where starts make no test of their own, one that holds no longer is told as no test.
func TestStartDistrusts(t *testing.T) {
	n := newNode(t, "observe")
	n.kernel("eth0: link is up")
	n.clean(prolog, numbered(101))
	n.clean(epilog, numbered(101))
	n.unprobed()
	n.clean(prolog, numbered(102))
	if p := n.probed(n.startOf(102)); p.Result != gpu.ProbeOK {
		t.Errorf("nothing has changed: %+v", p)
	}
	n.xid(0)
	n.clean(prolog, numbered(103))
	if p := n.probed(n.startOf(103)); p.Result != gpu.ProbeSkipped || !strings.Contains(p.Why, "Xid 94") {
		t.Errorf("%+v", p)
	}
}

// A damaged record of tests is said, stands for no test, and is begun anew.
func TestProbeRecordDamaged(t *testing.T) {
	n := newNode(t, "observe")
	n.kernel("eth0: link is up")
	n.clean(prolog, numbered(101))
	n.clean(epilog, numbered(101))
	must(t, os.WriteFile(filepath.Join(n.conf.run, "state", nodeName, "probes.json"), []byte("{"), 0o600))
	if o := n.hook(prolog, numbered(102)); o.exit != 0 || !told(n.startOf(102).Findings, code.StateDamage, "probes.json") || len(n.startOf(102).Probes) != 0 {
		t.Errorf("%v %+v", o, n.startOf(102))
	}
	n.clean(epilog, numbered(102))
	n.clean(prolog, numbered(103))
	if p := n.probed(n.startOf(103)); p.Result != gpu.ProbeOK {
		t.Errorf("%+v", p)
	}
}

// What a test finds is told; it drains only where the admin says so, two processes saw it, and the error cannot be the
// test's own.
func TestProbeFinds(t *testing.T) {
	for name, tt := range map[string]struct {
		harm   func(*node)
		finds  code.Code
		says   string
		exit   int // where the policy drains for it
		result gpu.ProbeResult
	}{
		"not ready":    {func(n *node) { must(n, n.world.Set("on.cuInit", "rc 802")) }, code.Broken, "(802)", 18, gpu.ProbeBroken},
		"a device's":   {func(n *node) { must(n, n.world.Set("on.cuMemCreate", "rc 214")) }, code.Broken, "(214)", 18, gpu.ProbeBroken},
		"no device":    {func(n *node) { must(n, n.world.Set("on.cuInit", "rc 100")) }, code.Broken, "(100)", 0, gpu.ProbeBroken},
		"own limits":   {func(n *node) { must(n, n.world.Set("on.cuInit", "rc 2")) }, code.Broken, "(2)", 0, gpu.ProbeBroken},
		"no library":   {func(n *node) { must(n, os.Remove(n.world.CUDA())) }, code.Broken, "libcuda.so.1", 0, gpu.ProbeBroken},
		"a crash":      {func(n *node) { must(n, n.world.Set("on.cuMemCreate", "crash")) }, code.Broken, "crashed", 0, gpu.ProbeBroken},
		"busy":         {func(n *node) { must(n, n.world.Set("on.cuMemCreate", "rc 46")) }, code.Blocked, "(46)", 17, gpu.ProbeBlocked},
		"only a piece": {func(n *node) { must(n, n.world.Set("gpu0.largest_mib", "1024")) }, code.Gap, "1024 MiB", 16, gpu.ProbeGap},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, drains := range []bool{false, true} {
				n, exit := newNode(t, "enforce"), 0
				if drains {
					exit = tt.exit
					n.configure(func(c *conf) {
						c.extra = fmt.Sprintf("policy: {prolog: {%[1]s: drain}, epilog: {%[1]s: drain}}\n", tt.finds)
					})
				}
				n.kernel("eth0: link is up")
				n.clean(prolog, newJob())
				tt.harm(n)
				o := n.hook(epilog, newJob())
				e := n.endOf(100)
				if o.exit != exit || !told(e.Findings, tt.finds, tt.says) || n.probed(e).Result != tt.result {
					t.Errorf("%v %+v %+v", o, e.Findings, e.Probes)
				}
				n.unprobed()
				o = n.hook(prolog, numbered(101))
				if s := n.startOf(101); o.exit != 0 || !told(s.Findings, tt.finds, tt.says) || n.probed(s).Result != tt.result {
					t.Errorf("the next start: %v %+v %+v", o, s.Findings, s.Probes)
				}
			}
		})
	}
}

func told(found []finding.Finding, c code.Code, says string) bool {
	for _, f := range found {
		if f.Code == c && strings.Contains(f.Observed, says) {
			return true
		}
	}
	return false
}

// A start that tests anew believes no bad news from before: it may have been repaired.
func TestRepaired(t *testing.T) {
	n := newNode(t, "observe")
	n.configure(func(c *conf) { c.extra = "probe: {at: both}\n" })
	n.kernel("eth0: link is up")
	must(t, n.world.Set("on.cuInit", "rc 802"))
	if o := n.hook(prolog, numbered(101)); o.exit != 0 || !has(n.startOf(101).Findings, code.Broken) {
		t.Fatalf("%v %+v", o, n.startOf(101).Findings)
	}
	n.hook(epilog, numbered(101))
	must(t, n.world.Set("on.cuInit", ""))
	n.clean(prolog, numbered(102))
	if e := n.startOf(102); n.probed(e).Result != gpu.ProbeOK || len(e.Findings) != 0 {
		t.Errorf("%+v %+v", e.Probes, e.Findings)
	}
}

// Two cards are tested in one process, and one of them alone where the other brought that down.
func TestProbeOfTwoCards(t *testing.T) {
	two := newJob().with("SLURM_JOB_GPUS", "0,1", "CUDA_VISIBLE_DEVICES", "0,1", "GPU_DEVICE_ORDINAL", "0,1")
	for name, tt := range map[string]struct {
		key, rule string
		first     gpu.ProbeResult
		finds     int // of the first card
	}{
		"both well":     {"on.cuMemCreate.gpu0", "", gpu.ProbeOK, 0},
		"one is broken": {"on.cuMemCreate.gpu0", "rc 214", gpu.ProbeBroken, 1},
		"one crashes":   {"on.cuMemCreate.gpu0", "crash", gpu.ProbeBroken, 1},
		"one hangs":     {"on.cuMemCreate.gpu1", "hang", gpu.ProbeOK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "observe")
			n.clean(prolog, two)
			must(t, n.world.Set(tt.key, tt.rule))
			n.hook(epilog, two)
			e := n.endOf(100)
			if len(e.Probes) != 2 {
				t.Fatalf("%+v", e.Probes)
			}
			second := gpu.ProbeOK
			if tt.rule == "hang" {
				second = gpu.ProbeSkipped
			}
			for i, want := range []gpu.ProbeResult{tt.first, second} {
				if p := e.Probes[i]; p.Device != gpu.ID(n.world.UUID(i)) || p.Result != want {
					t.Errorf("card %d: %+v, want %s", i, p, want)
				}
			}
			broken := 0
			for _, f := range e.Findings {
				if f.Code == code.Broken && f.GPU == gpu.ID(n.world.UUID(0)) && *f.Index == 0 {
					broken++
				}
			}
			if broken != tt.finds || has(e.Findings, code.Hang) != (tt.rule == "hang") {
				t.Errorf("%+v", e.Findings)
			}
		})
	}
}

// A MIG instance is tested where the admin allows it, each by a process of its own, and nothing drains for what is found.
func TestProbeOfInstances(t *testing.T) {
	for rule, want := range map[string]gpu.ProbeResult{"": gpu.ProbeOK, "rc 802": gpu.ProbeBroken} {
		n := newNode(t, "enforce", fakegpu.Instance(0, 0, 1, 0, 40_000), fakegpu.Instance(0, 1, 2, 0, 40_000))
		n.configure(func(c *conf) { c.extra = "probe: {mig: true}\npolicy: {epilog: {BKD-BROKEN: drain}}\n" })
		ids := n.world.InstanceUUID(0, 0) + "," + n.world.InstanceUUID(0, 1)
		j := newJob().with("SLURM_JOB_GPUS", "0,1", "CUDA_VISIBLE_DEVICES", ids, "GPU_DEVICE_ORDINAL", "0,1")
		n.clean(prolog, j)
		must(t, n.world.Set("on.cuInit", rule))
		o := n.hook(epilog, j)
		e := n.endOf(100)
		if o.exit != 0 || len(e.Probes) != 2 || has(e.Findings, code.Broken) != (rule != "") {
			t.Errorf("%q: %v %+v %+v", rule, o, e.Probes, e.Findings)
		}
		for _, p := range e.Probes {
			if p.Result != want || want == gpu.ProbeOK && (p.Free.Bytes > 40_000<<20 || p.Largest.Bytes+2<<20 != p.Free.Bytes) {
				t.Errorf("%q: %+v, want %s", rule, p, want)
			}
		}
	}
}

// A library that others could have written is not loaded by root, and the look at the cards works without it.
func TestProbeRefusesOthersLibrary(t *testing.T) {
	n := newNode(t, "enforce")
	must(t, os.Chmod(n.world.CUDA(), 0o777))
	n.clean(prolog, newJob())
	o := n.hook(epilog, newJob())
	e := n.endOf(100)
	if o.exit != 0 || !told(e.Findings, code.BackendRefused, "the test allocation: ") || has(e.Findings, code.Broken) ||
		n.probed(e).Result != gpu.ProbeSkipped || e.Curves[gpu.ID(n.world.UUID(0))].State != "clean" {
		t.Errorf("%v %+v %+v", o, e.Findings, e.Probes)
	}
}

// Nobody who may use the card may lose by a test.
func TestNotProbed(t *testing.T) {
	instance := fakegpu.Instance(0, 0, 1, 0, 40_000)
	for name, tt := range map[string]struct {
		options []fakegpu.Option
		job     func(*node) job
		harm    func(*node) // between the job's start and its end
		extra   func(*conf)
		why     string
	}{
		"a process is on it": {harm: func(n *node) { n.leftover() }, why: "BKD-ORPHAN"},
		"memory of nobody's": {harm: func(n *node) { n.extra("100") }, why: "BKD-RESIDUE"},
		"shards":             {extra: func(c *conf) { c.shards = `"yes"` }, why: "others may use it"},
		"a shared partition": {extra: func(c *conf) { c.shards = `"no", shared_partitions: [main]` }, why: "others may use it"},
		"nobody knows of shards": {extra: func(c *conf) { c.shards = "auto" }, harm: func(n *node) { must(n, os.RemoveAll(n.in("slurm.d"))) },
			why: "whether others may use it could not be told"},
		"a part through MPS": {job: func(*node) job { return newJob().with("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50") }, why: "MPS"},
		"another live job":   {harm: func(n *node) { n.hook(prolog, numbered(102)) }, why: "another live job"},
		"a MIG instance":     {options: []fakegpu.Option{instance}, job: func(n *node) job { return n.onInstance(0) }, why: "MIG"},
		"a reset is due":     {harm: func(n *node) { must(n, n.world.Set("gpu0.recovery_action", "1")) }, why: "BKD-RECOVERY"},
		"no time":            {extra: func(c *conf) { c.tight = true }, why: "no time left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "observe", tt.options...)
			if tt.extra != nil {
				n.configure(tt.extra)
			}
			j := newJob()
			if tt.job != nil {
				j = tt.job(n)
			}
			n.clean(prolog, j)
			if tt.harm != nil {
				tt.harm(n)
			}
			n.unprobed()
			if o := n.hook(epilog, j); o.exit != 0 {
				t.Errorf("%v", o)
			}
			e := n.endOf(100)
			if len(e.Probes) != 1 || e.Probes[0].Result != gpu.ProbeSkipped || !strings.Contains(e.Probes[0].Why, tt.why) || has(e.Findings, code.Broken) {
				t.Errorf("want %q: %+v %+v", tt.why, e.Probes, e.Findings)
			}
		})
	}
}
