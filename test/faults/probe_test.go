package faults

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/drain"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// tested requires what came of the one test allocation of an end, that of the first GPU, and why it was not made.
func (n *node) tested(e record.End, want gpu.ProbeResult, why string) (p gpu.Probe) {
	if len(e.Probes) != 1 || e.Probes[0].Device != gpu.ID(n.world.UUID(0)) {
		n.Fatalf("want one test, of GPU %s: %+v", n.world.UUID(0), e.Probes)
	}
	p = e.Probes[0]
	must.Not(n, p.Result != want || !strings.Contains(p.Why, why), "%+v, want %s: %s", p, want, why)
	return p
}

// As shipped the first end tests a GPU that it has seen clean, and says so where an admin looks. A start that trusts it
// makes none, nor does an end that has no reason to. Which GPUs get no test, and why, package health knows.
func TestProbeAtTheEnd(t *testing.T) {
	n := parallel(t, "observe")
	n.kernel("eth0: link is up")
	n.job(100)
	tests := n.startOf(100).Probes
	must.Not(t, len(tests) != 0, "a start without an earlier test has one: %+v", tests)
	e := n.endOf(100)
	p := n.tested(e, gpu.ProbeOK, "")
	must.Not(t, p.Method != gpu.Contextless || p.Largest.Bytes != p.Free.Bytes-2<<20 || p.Free.Bytes < 100<<30 ||
		p.At <= e.At, "%+v", p)
	n.shows("test allocation: ok, largest block ", "show", "100")
	n.set("on.cuInit", "crash") // any test would show: nothing else calls this function
	n.clean(prolog, numbered(101))
	n.tested(n.startOf(101), gpu.ProbeOK, "")
	n.clean(epilog, numbered(101))
	if again := n.tested(n.endOf(101), gpu.ProbeOK, ""); again.At != p.At {
		t.Errorf("tested at %v, and again at %v", p.At, again.At)
	}
	n.set("on.cuInit", "")
	n.clean(prolog, numbered(102))
	n.clean(epilog, failed(numbered(102)))
	if again := n.tested(n.endOf(102), gpu.ProbeOK, ""); again.At <= p.At {
		t.Errorf("the job failed, and nobody tested: %+v", again)
	}
	n.clean(prolog, numbered(103))
	n.leftover()
	n.exits(0, epilog, numbered(103))
	n.tested(n.endOf(103), gpu.ProbeSkipped, "BKD-ORPHAN") // nobody who may use the GPU may lose by a test
}

// Memory that gives back other bits than were written drains at a job's end, once two processes have seen it. The user
// reads that it was not the program, the admin where it is. A driver that crashes or hangs in this test proves nothing of
// the memory: the allocation's result stays.
func TestPattern(t *testing.T) {
	for rule, exit := range map[string]int{
		"gpu0.wrong 1234567890:100000": 30, "on.cuLaunchKernel crash": 0, "on.cuStreamQuery hang": 0, "on.cuInit ": 0,
	} {
		t.Run(rule, func(t *testing.T) {
			n := parallel(t, "enforce")
			n.configure(func(c *conf) { c.extra = "probe: {pattern: 24h}\n" })
			n.clean(prolog, newJob())
			key, value, _ := strings.Cut(rule, " ")
			n.set(key, value)
			n.exits(exit, epilog, newJob())
			switch {
			case exit != 0:
				n.tested(n.endOf(100), gpu.ProbeWrong, "")
				n.shows("BKD-BITS", "show", "100")
				n.shows("at byte 9876543120 bits 0x100000", "show", "100")
			case value != "":
				n.tested(n.endOf(100), gpu.ProbeOK, "")
			default:
				p := n.tested(n.endOf(100), gpu.ProbeOK, "").Pattern
				must.Not(t, p == nil || p.Bytes < 139<<30 || p.Wrong != 0, "%+v", p)
				n.job(101) // neither tests nor writes again
				again := n.tested(n.endOf(101), gpu.ProbeOK, "").Pattern
				must.Not(t, again == nil || again.At != p.At, "%+v, then %+v", p, again)
			}
		})
	}
}

// A test that hangs costs its time and no more: the rest of the hook is done, nothing drains, and the next hook works.
// A slow start of CUDA is no fault of the driver's: no test, and nothing found. One that not even SIGKILL ends is on
// record: while it is stuck no hook starts another or asks the driver; once it has gone everything works again.
func TestProbeHangs(t *testing.T) {
	for rule, slow := range map[string]bool{"cuMemCreate hang-hard": false, "cuInit hang": true, "cuInit freeze": false} {
		t.Run(rule, func(t *testing.T) {
			n := parallel(t, "enforce")
			n.configure(func(c *conf) { c.extra = "policy: {epilog: {BKD-BROKEN: drain, BKD-BLOCKED: drain}}\n" })
			n.clean(prolog, newJob())
			call, action, _ := strings.Cut(rule, " ")
			n.set("on."+call, action)
			n.exits(0, epilog, newJob())
			e, why := n.endOf(100), ""
			if slow {
				why = "CUDA did not start within 2."
			}
			n.tested(e, gpu.ProbeSkipped, why)
			hung := slices.ContainsFunc(e.Findings, func(f record.Finding) bool {
				return f.Code == catalog.Hang && strings.Contains(f.Observed, "the test allocation: ")
			})
			must.Not(t, hung == slow || len(e.Findings) > 1 || len(e.Snapshot.Readings) != 1, "%+v", e)
			if action == "freeze" {
				left := n.oneStuck()
				for id := 102; id < 104; id++ {
					n.exits(0, prolog, numbered(id))
					must.Not(t, !has(n.startOf(id).Findings, catalog.Stuck), "%+v", n.startOf(id).Findings)
					n.exits(0, epilog, numbered(id))
				}
				n.oneStuck(left...)
				n.unstick(call)
			}
			n.set("on."+call, "")
			n.job(101)
			n.tested(n.endOf(101), gpu.ProbeOK, "")
		})
	}
}

// What was found before a test stands, also if slurmd ends the hook in the middle of it: that has drained the node. The
// health check finds that on record, gives Slurm's text its reason, now or once slurmctld answers, and knows which GPU to
// look at before a resume. slurmd leaves a hook milliseconds for the record.
func TestStoppedAfterTheVerdict(t *testing.T) {
	for h, reason := range map[*hook]string{&prolog: "BKD-LOST gpu=0 job=100 prolog", &epilog: "BKD-ORPHAN gpu=0 "} {
		t.Run(h.program, func(t *testing.T) {
			t.Parallel()
			n := stoppedAfterTheVerdict(t, *h)
			recorded := func() bool {
				runs := n.runs(100)
				return len(runs) == 1 && has(runs[0].Last().Findings, catalog.Deadline)
			}
			for tries := 1; !recorded(); tries++ {
				if tries == 5 {
					t.Skip("this machine is too busy for a stopped hook's last words")
				}
				n = stoppedAfterTheVerdict(t, *h)
			}
			run := n.run(100)
			end := run.Last()
			if exits := drain.Exits([]record.Run{run}, run.EpochOf(end).Boot); len(exits) != 1 || exits[0].Causes[0].GPU == "" {
				t.Errorf("exits %+v, want this hook's, for a GPU", exits)
			}
			n.scontrol("exit 1")
			c := n.check()
			must.Not(t, !has(c.Findings, catalog.ReasonFailed), "slurmctld did not answer, found %+v", c.Findings)
			n.drained(map[slurm.Context]string{slurm.Prolog: slurm.PrologError, slurm.Epilog: slurm.EpilogError}[h.context], end.Wall)
			n.check()
			if told := n.get(n.in("told")); !strings.Contains(told, "State=DRAIN Reason="+reason) {
				t.Errorf("Slurm was told %q, want %q\n%s", told, reason, n.log())
			}
		})
	}
}

// stoppedAfterTheVerdict is a node one of whose GPUs made a hook drain, which was stopped while it tested the other.
func stoppedAfterTheVerdict(t *testing.T, h hook) *node {
	two, n, exit := newJob().On("0,1"), newNode(t, "enforce"), 10
	if h == prolog {
		exit = 20
		n.configure(func(c *conf) { c.extra = "probe: {at: both}\n" })
		n.set("on."+memoryCall+".gpu0", "rc 15")
	} else {
		n.clean(prolog, two)
		n.leftover()
	}
	n.set("on.cuMemCreate.gpu1", "hang")
	before := len(n.mapping(n.world.CUDA()))
	p := n.start(h, two)
	await(t, "the test", func() bool { return len(n.mapping(n.world.CUDA())) > before })
	p.signal(syscall.SIGTERM)
	o := p.wait()
	must.Not(t, o.exit != exit, "want exit %d: %v", exit, o)
	await(t, "the backend's end", func() bool { return len(n.mapping(n.world.NVML())) == 0 })
	return n
}

// drained makes scontrol show the node drained for a reason, set at a time, and keep what it is told to change.
func (n *node) drained(reason string, at time.Time) {
	n.scontrol(fmt.Sprintf(`[ "$1" = show ] || { echo "$*" >>%s; exit; }
cat <<-END
NodeName=%s Arch=x86_64
   State=IDLE+DRAIN ThreadsPerCore=1
   Reason=%s [root@%s]
END`, n.in("told"), nodeName, reason, at.UTC().Format("2006-01-02T15:04:05")))
}

// scontrol puts a script in the place of Slurm's.
func (n *node) scontrol(text string) {
	path := n.script("slurm.d/scontrol", text)
	n.put("bookend.yaml", strings.Replace(n.text(), "/usr/bin/scontrol", path, 1), 0o644)
}
