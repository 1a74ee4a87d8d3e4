package faults

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/code"
	"bookend/internal/gpu"
)

// A test that hangs costs its time and no more: the rest of the hook is done, nothing drains, and the next hook works.
func TestProbeHangs(t *testing.T) {
	for _, action := range []string{"hang", "hang-hard"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.configure(func(c *conf) { c.extra = "policy: {epilog: {BKD-BROKEN: drain, BKD-BLOCKED: drain}}\n" })
			n.clean(prolog, bystanding())
			others := n.record()
			n.clean(prolog, newJob())
			must(t, n.world.Set("on.cuMemCreate", action))
			o := n.hook(epilog, newJob())
			e := n.endOf(100)
			if o.exit != 0 || !told(e.Findings, code.Hang, "the test allocation: ") || n.probed(e).Result != gpu.ProbeSkipped {
				t.Errorf("%v %+v %+v", o, e.Findings, e.Probes)
			}
			if len(e.Snapshot.Readings) != 1 || e.Verdict.Code != code.Hang {
				t.Errorf("the rest of the end is not on record: %+v", e)
			}
			must(t, n.world.Set("on.cuMemCreate", ""))
			n.clean(prolog, numbered(101))
			n.clean(epilog, numbered(101))
			if p := n.probed(n.endOf(101)); p.Result != gpu.ProbeOK {
				t.Errorf("%+v", p)
			}
			n.unharmed(others)
		})
	}
}

// A test that not even SIGKILL ends: while it is stuck nobody asks the driver; once it has gone everything works again.
func TestProbeStuck(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	must(t, n.world.Set("on.cuMemCreate", "freeze"))
	o := n.hook(epilog, newJob())
	if e := n.endOf(100); o.exit != 0 || !told(e.Findings, code.Hang, "the test allocation: ") || n.probed(e).Result != gpu.ProbeSkipped {
		t.Errorf("%v %+v %+v", o, e.Findings, e.Probes)
	}
	if len(n.stuck()) != 1 {
		t.Errorf("stuck: %v", n.stuck())
	}
	if o := n.hook(prolog, numbered(101)); o.exit != 0 || !has(n.startOf(101).Findings, code.Stuck) {
		t.Errorf("%v %+v", o, n.startOf(101).Findings)
	}
	n.unstick("cuMemCreate")
	n.clean(prolog, numbered(102))
}

// What was found before a test stands, whatever becomes of the test: also where slurmd ends the hook in the middle of it.
func TestVerdictBeforeTheProbe(t *testing.T) {
	two := newJob().with("SLURM_JOB_GPUS", "0,1", "CUDA_VISIBLE_DEVICES", "0,1", "GPU_DEVICE_ORDINAL", "0,1")
	n := newNode(t, "enforce")
	n.clean(prolog, two)
	n.leftover()
	must(t, n.world.Set("on.cuMemCreate.gpu1", "hang"))
	p := n.start(epilog, two)
	await(t, "the test", func() bool { return n.testing() == 1 })
	must(t, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM))
	if o := p.wait(); o.exit != 10 {
		t.Errorf("%v", o)
	}
	await(t, "the backend's end", func() bool { return n.testing() == 0 })
}

// testing is how many backends of this node have CUDA loaded.
func (n *node) testing() (count int) {
	for _, pid := range n.stuck() {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid)); err == nil && strings.Contains(string(text), n.world.CUDA()) {
			count++
		}
	}
	return count
}

// What a test holds must never look like a leak: a hook that starts meanwhile says that the card is clean.
func TestHookDuringAProbe(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	must(t, n.world.Set("on.cuMemRelease", "sleep 900"))
	first := n.start(epilog, newJob())
	await(t, "the test's memory", func() bool {
		shown, _ := n.bookend("snapshot")
		return len(lines(shown, n.world.UUID(0), "  0 MiB used")) == 0 && len(lines(shown, n.world.UUID(0), "MiB used")) == 1
	})
	n.clean(prolog, numbered(101))
	if e := n.startOf(101); len(e.Findings) != 0 || e.Curves[gpu.ID(n.world.UUID(0))].State != "clean" {
		t.Errorf("%+v %+v", e.Findings, e.Curves)
	}
	if o := first.wait(); o.exit != 0 || n.probed(n.endOf(100)).Result != gpu.ProbeOK {
		t.Errorf("the hook that tested: %v %+v", o, n.endOf(100).Probes)
	}
}
