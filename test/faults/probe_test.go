package faults

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/test/fakegpu"
)

// probed is the one test allocation of an end.
func (n *node) probed(e ledger.End) gpu.Probe {
	n.Helper()
	if len(e.Probes) != 1 || e.Probes[0].Device != gpu.ID(n.world.UUID(0)) {
		n.Fatalf("want one test, of GPU %s: %+v", n.world.UUID(0), e.Probes)
	}
	return e.Probes[0]
}

// tested requires what came of the test of the first GPU, and why it was not made.
func (n *node) tested(e ledger.End, want gpu.ProbeResult, why string) {
	n.Helper()
	if p := n.probed(e); p.Result != want || !strings.Contains(p.Why, why) {
		n.Errorf("%+v, want %s: %s", p, want, why)
	}
}

// told reports whether a finding says something.
func told(found []finding.Finding, c code.Code, says string) bool {
	for _, f := range found {
		if f.Code == c && strings.Contains(f.Observed, says) {
			return true
		}
	}
	return false
}

// unprobed makes any test allocation show: nothing else calls this function.
func (n *node) unprobed() { n.Helper(); n.set("on.cuInit", "crash") }

// probing are lines of a configuration.
func probing(text string) func(*conf) { return func(c *conf) { c.extra = "probe: {" + text + "}\n" } }

// As shipped each end tests a GPU that it has seen clean, and says so where an admin looks. A start that
// trusts it makes none.
func TestProbeAtTheEnd(t *testing.T) {
	n := newNode(t, "observe")
	n.kernel("eth0: link is up")
	n.job(100)
	if tests := n.startOf(100).Probes; len(tests) != 0 {
		t.Errorf("a start without an earlier test has one: %+v", tests)
	}
	e := n.endOf(100)
	p := n.probed(e)
	if p.Result != gpu.ProbeOK || p.Method != gpu.Contextless || p.Largest.Bytes != p.Free.Bytes-2<<20 ||
		p.Free.Bytes < 100<<30 || p.At <= e.At {
		t.Errorf("%+v", p)
	}
	n.shows("test allocation: ok, largest block ", "show", "100")
	n.shows("test allocation: ok", "snapshot")
	n.unprobed()
	n.clean(prolog, numbered(101))
	n.tested(n.startOf(101), gpu.ProbeOK, "")
	n.kernel(n.xidLine(0, 94, "pid=1, name=x, Contained: SM"))
	n.clean(prolog, numbered(102)) // where starts make no test of their own, one that holds no longer is told as none
	n.tested(n.startOf(102), gpu.ProbeSkipped, "Xid 94")
}

// What a test finds is told, by later starts too; it drains only where the admin says so, two processes saw it, and the
// error cannot be the test's own.
func TestProbeFinds(t *testing.T) {
	for name, tt := range map[string]struct {
		harm   func(*node)
		finds  code.Code
		says   string
		exit   int // where the policy drains for it
		result gpu.ProbeResult
	}{
		"not ready": {driver("cuInit", "rc 802"), code.Broken, "(802)", 18, gpu.ProbeBroken},
		"no library": {func(n *node) { must(n, os.Remove(n.world.CUDA())) }, code.Broken, "libcuda.so.1", 0,
			gpu.ProbeBroken},
		"a crash": {driver("cuMemCreate", "crash"), code.Broken, "crashed", 0, gpu.ProbeBroken},
		"of a library that others could have written": {func(n *node) { must(n, os.Chmod(n.world.CUDA(), 0o777)) },
			code.BackendRefused, "the test allocation: ", 0, gpu.ProbeSkipped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, exit := range []int{0, tt.exit} {
				n := newNode(t, "enforce")
				if exit != 0 {
					n.configure(func(c *conf) {
						c.extra = fmt.Sprintf("policy: {prolog: {%[1]s: drain}, epilog: {%[1]s: drain}}\n", tt.finds)
					})
				}
				n.kernel("eth0: link is up")
				n.clean(prolog, newJob())
				tt.harm(n)
				n.exits(exit, epilog, newJob())
				e := n.endOf(100)
				if n.tested(e, tt.result, ""); !told(e.Findings, tt.finds, tt.says) {
					t.Errorf("%+v", e.Findings)
				}
				if tt.result == gpu.ProbeSkipped {
					continue
				}
				n.unprobed()
				n.exits(0, prolog, numbered(101))
				s := n.startOf(101)
				if n.tested(s, tt.result, ""); !told(s.Findings, tt.finds, tt.says) {
					t.Errorf("the next start: %+v", s.Findings)
				}
			}
		})
	}
}

// untestable are jobs that get no test, and why.
var untestable = map[string]struct {
	options []fakegpu.Option
	job     func(*node) job
	harm    func(*node) // between the job's start and its end
	extra   func(*conf)
	why     string // "" where nothing is on record
}{
	"a process is on it": {harm: func(n *node) { n.leftover() }, why: "BKD-ORPHAN"},
	"shards":             {extra: func(c *conf) { c.shards = `"yes"` }, why: "others may use it"},
	"another live job":   {harm: func(n *node) { n.hook(prolog, numbered(102)) }, why: "another live job"},
	"a MIG instance": {options: []fakegpu.Option{fakegpu.Instance(0, 0, 1, 0, 40_000)},
		job: func(n *node) job { return n.onInstances(0) }, why: "MIG"},
	"never": {extra: probing("at: never")},
}

// Nobody who may use the GPU may lose by a test.
func TestNotProbed(t *testing.T) {
	for name, tt := range untestable {
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
			n.exits(0, epilog, j)
			e := n.endOf(100)
			want := tt.why == "" && len(e.Probes) == 0 || tt.why != "" && len(e.Probes) == 1 &&
				e.Probes[0].Result == gpu.ProbeSkipped && strings.Contains(e.Probes[0].Why, tt.why)
			if !want || has(e.Findings, code.Broken) {
				t.Errorf("want %q: %+v %+v", tt.why, e.Probes, e.Findings)
			}
		})
	}
}

// A test that hangs costs its time and no more: the rest of the hook is done, nothing drains, and the next hook works.
// A slow start of CUDA is no fault of the driver's: no test, and nothing found.
func TestProbeHangs(t *testing.T) {
	for rule, slow := range map[string]bool{
		"cuMemCreate hang-hard": false, "cuInit sleep 4000": true, "cuInit hang": true,
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.configure(func(c *conf) { c.extra = "policy: {epilog: {BKD-BROKEN: drain, BKD-BLOCKED: drain}}\n" })
			n.clean(prolog, newJob())
			call, action, _ := strings.Cut(rule, " ")
			n.set("on."+call, action)
			n.exits(0, epilog, newJob())
			e := n.endOf(100)
			if slow {
				n.tested(e, gpu.ProbeSkipped, "CUDA did not start within 2.")
			} else {
				n.tested(e, gpu.ProbeSkipped, "")
			}
			if told(e.Findings, code.Hang, "the test allocation: ") == slow || len(e.Findings) > 1 ||
				len(e.Snapshot.Readings) != 1 {
				t.Errorf("%+v", e)
			}
			n.set("on."+call, "")
			n.job(101)
			n.tested(n.endOf(101), gpu.ProbeOK, "")
		})
	}
}

// A test that not even SIGKILL ends is on record: while it is stuck no hook starts another or asks the driver; once it
// has gone everything works again.
func TestProbeStuck(t *testing.T) {
	const call = "cuInit"
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	n.set("on."+call, "freeze")
	n.exits(0, epilog, newJob())
	e := n.endOf(100)
	if n.tested(e, gpu.ProbeSkipped, ""); !told(e.Findings, code.Hang, "the test allocation: ") {
		t.Errorf("%+v", e.Findings)
	}
	left := n.oneStuck()
	for id := 101; id < 104; id++ {
		if n.exits(0, prolog, numbered(id)); !has(n.startOf(id).Findings, code.Stuck) {
			t.Errorf("%+v", n.startOf(id).Findings)
		}
	}
	n.oneStuck(left...)
	n.unstick(call)
	n.clean(prolog, numbered(105))
}

// What was found before a test stands, whatever becomes of the test: also where slurmd ends the hook in the middle of
// it.
func TestVerdictBeforeTheProbe(t *testing.T) {
	two := newJob().On("0,1")
	n := newNode(t, "enforce")
	n.clean(prolog, two)
	n.leftover()
	n.set("on.cuMemCreate.gpu1", "hang")
	p := n.start(epilog, two)
	await(t, "the test", func() bool { return len(n.mapping(n.world.CUDA())) == 2 }) // the leftover, too
	p.signal(syscall.SIGTERM)
	if o := p.wait(); o.exit != 10 {
		t.Errorf("%v", o)
	}
	await(t, "the backend's end", func() bool { return len(n.stuck()) == 0 })
}

// What a test holds must never look like a leak: a hook that starts meanwhile says that the GPU is clean.
func TestHooksDuringAProbe(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	n.set("on.cuMemRelease", "sleep 900")
	first := n.start(epilog, newJob())
	await(t, "the test's memory", func() bool {
		used, err := n.world.Used(0)
		must(n, err)
		return used > 0
	})
	n.clean(prolog, numbered(101))
	if e := n.startOf(101); len(e.Findings) != 0 || e.Curves[gpu.ID(n.world.UUID(0))].State != "clean" {
		t.Errorf("%+v %+v", e.Findings, e.Curves)
	}
	if o := first.wait(); o.exit != 0 {
		t.Errorf("%v", o)
	}
}
