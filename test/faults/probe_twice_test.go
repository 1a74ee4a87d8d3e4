package faults

import (
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// held waits until a test has memory of the card.
func (n *node) held() {
	n.Helper()
	await(n, "the test's memory", func() bool {
		used, err := n.world.Used(0)
		must(n, err)
		return used > 0
	})
}

// Slurm may run a second epilog beside the first, and gives the card away once either has ended: the second makes no
// test, and does not end before the first one's is over.
func TestSecondEpilogBesideAProbe(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	must(t, n.world.Set("on.cuMemRelease", "sleep 2000"))
	first := n.start(epilog, newJob())
	n.held()
	n.unprobed()
	second := n.hook(epilog, newJob())
	if o := first.wait(); o.exit != 0 || second.exit != 0 {
		t.Errorf("%v, %v", o, second)
	}
	ends := n.run(100).Ends
	if len(ends) != 2 || len(ends[0].Probes) != 1 || len(ends[1].Probes) != 1 {
		t.Fatalf("%+v", ends)
	}
	if p := ends[0].Probes[0]; p.Result != gpu.ProbeOK {
		t.Errorf("the first: %+v", p)
	}
	if p := ends[1].Probes[0]; p.Result != gpu.ProbeSkipped || !strings.Contains(p.Why, "another hook") {
		t.Errorf("the second: %+v", p)
	}
	if !told(ends[1].Findings, code.Again, "another epilog of this job") || has(ends[0].Findings, code.Again) {
		t.Errorf("%+v, %+v", ends[0].Findings, ends[1].Findings)
	}
}

// A start that was seen before makes no test: the job may be at work.
func TestSecondPrologMakesNoTest(t *testing.T) {
	n := newNode(t, "observe")
	n.configure(func(c *conf) { c.extra = "probe: {at: prolog}\nlook: {kernel_log: false}\n" })
	n.clean(prolog, newJob())
	if p := n.probed(n.startOf(100)); p.Result != gpu.ProbeOK {
		t.Errorf("the first: %+v", p)
	}
	n.unprobed()
	n.clean(prolog, newJob())
	if p := n.tests()[gpu.ID(n.world.UUID(0))]; p.Probe.Result != gpu.ProbeOK {
		t.Errorf("the second: %+v", p)
	}
}

// A slow start of CUDA is no fault of the driver's: no test, nothing found, nothing for the user but what a job without
// a test reads, and the epilog ends by itself.
func TestProbeWithASlowStart(t *testing.T) {
	for _, rule := range []string{"sleep 4000", "hang", "hang-hard"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.clean(prolog, newJob())
			must(t, n.world.Set("on.cuInit", rule))
			n.clean(epilog, newJob())
			e := n.endOf(100)
			if p := n.probed(e); p.Result != gpu.ProbeSkipped || !strings.Contains(p.Why, "CUDA did not start within 2.") || len(e.Findings) != 0 {
				t.Errorf("%+v %+v", p, e.Findings)
			}
		})
	}
}

// One that never comes back, not even killed, is on record, so that no hook starts another.
func TestProbeStuckInItsStart(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	must(t, n.world.Set("on.cuInit", "freeze"))
	o := n.hook(epilog, newJob())
	if e := n.endOf(100); o.exit != 0 || !has(e.Findings, code.Hang) || n.probed(e).Result != gpu.ProbeSkipped {
		t.Errorf("%v %+v %+v", o, e.Findings, e.Probes)
	}
	for id := slurm.JobID(101); id < 104; id++ {
		if o := n.hook(epilog, numbered(id)); o.exit != 0 || !has(n.endOf(id).Findings, code.Stuck) {
			t.Errorf("%v", o)
		}
	}
	if len(n.stuck()) != 1 {
		t.Errorf("stuck: %v", n.stuck())
	}
	n.unstick("cuInit")
	n.clean(prolog, numbered(105))
}
