package faults

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"bookend/internal/code"
	"bookend/internal/slurm"
	"bookend/test/fakegpu"
)

// leftover is a process of the job's user that stays on the first card.
func (n *node) leftover(args ...string) *fakegpu.Program {
	n.Helper()
	return n.holder(user, nil, append([]string{"--mib", "2048"}, args...)...)
}

// Without a prolog nothing is certain: what is on the card is told, and never drains.
func TestEpilogWithoutProlog(t *testing.T) {
	for _, onCard := range []bool{false, true} {
		n := newNode(t, "enforce")
		n.configure(func(c *conf) { c.onUnknown = "drain" })
		n.clean(prolog, bystanding())
		others := n.record()
		if onCard {
			n.leftover()
		}
		o := n.hook(epilog, newJob())
		found := n.findings(epilog)
		if o.exit != 0 || !has(found, code.NoRecord) || onCard != (len(found) > 1) {
			t.Errorf("on card %v: %v %+v", onCard, o, found)
		}
		if r := n.run(100); r.Start != nil || len(r.Ends) != 1 {
			t.Errorf("%+v", r)
		}
		n.unharmed(others)
	}
}

// A second epilog measures anew: the first verdict was about what is gone by now.
func TestEpilogTwice(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	others, path := n.record(), n.home()
	j := newJob().with("SLURM_JOB_STDOUT", path)
	n.clean(prolog, j)
	orphan := n.leftover()
	if o := n.hook(epilog, j); o.exit != 10 {
		t.Fatalf("%v\n%s", o, n.log())
	}
	said, err := os.ReadFile(path)
	must(t, err)
	must(t, orphan.Kill())

	o := n.hook(epilog, j)

	r := n.run(100)
	if o.exit != 0 || len(r.Ends) != 2 || len(r.Ends[1].Findings) != 1 || r.Ends[1].Findings[0].Code != code.Again {
		t.Errorf("%v %+v", o, r.Ends)
	}
	if again, _ := os.ReadFile(path); string(again) != string(said) {
		t.Errorf("appended again: %q", again)
	}
	if !has(r.Ends[0].Findings, code.Orphan) {
		t.Errorf("the first end changed: %+v", r.Ends[0])
	}
	n.unharmed(others)
	for range 5 {
		n.hook(epilog, j)
	}
	if r := n.run(100); len(r.Ends) > 4 || !has(r.Ends[0].Findings, code.Orphan) {
		t.Errorf("%d ends", len(r.Ends))
	}
}

// An orphan that stays is found by the second epilog as well. It drains only where Slurm names the run: else the record
// may be of another run of that id.
func TestEpilogTwiceWithTheOrphan(t *testing.T) {
	for start, exits := range map[string][]int{"": {10, 0}, "1763700000": {10, 10}} {
		n := newNode(t, "enforce")
		j := newJob().with("SLURM_JOB_START_TIME", start)
		n.clean(prolog, j)
		n.leftover()
		for i, exit := range exits {
			if o := n.hook(epilog, j); o.exit != exit || len(n.findings(epilog)) == 0 {
				t.Errorf("start %q, epilog %d: %v\n%s", start, i+1, o, n.log())
			}
		}
	}
}

// A prolog run twice, as after a slurmd restart, keeps the first look; the job is one job.
func TestPrologTwice(t *testing.T) {
	for name, identity := range map[string][]string{
		"22.05": nil, "23.02": {"SLURM_JOB_START_TIME", "1790000000"}, "25.11": {"SLURM_JOB_SLUID", "sCHNM7Y8WBK900"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			j := newJob().with(identity...)
			n.clean(prolog, j)
			n.clean(prolog, j)
			n.leftover()
			if o := n.hook(epilog, j); o.exit != 10 {
				t.Errorf("%v\n%s", o, n.log())
			}
			if status, _ := n.bookend("status"); !strings.Contains(status, "jobs with GPUs now: 0\n") {
				t.Errorf("status:\n%s", status)
			}
		})
	}
}

// Hooks of different jobs overlap on a node, and nothing of any is lost.
func TestManyAtOnce(t *testing.T) {
	const jobs = 24
	n := newNode(t, "enforce")
	for _, h := range hooks {
		var all sync.WaitGroup
		for i := range jobs {
			id := strconv.Itoa(1000 + i)
			j := newJob().with("SLURM_JOB_ID", id, "SLURM_JOBID", id, "SLURM_JOB_GPUS", strconv.Itoa(i%2), "CUDA_VISIBLE_DEVICES", strconv.Itoa(i%2))
			p := n.start(h, j)
			all.Go(func() {
				if o := p.wait(); o.exit != 0 || o.output != "" {
					t.Errorf("%s of job %s: %v", h.program, id, o)
				}
			})
		}
		all.Wait()
	}
	for i := range jobs {
		if r := n.run(slurm.JobID(1000 + i)); r.Start == nil || len(r.Ends) != 1 || len(r.Ends[0].Findings) != 0 {
			t.Errorf("job %d: %+v", 1000+i, r)
		}
	}
	if got := len(lines(n.log(), "msg=clean")); got != 2*jobs {
		t.Errorf("%d lines of %d\n%s", got, 2*jobs, n.log())
	}
	if left := n.halfWritten(); len(left) > 0 {
		t.Errorf("half written: %q", left)
	}
}

// Two prologs of one job at once: one record, whole, whoever came first.
func TestSameJobAtOnce(t *testing.T) {
	for name, identity := range map[string][]string{"23.02": {"SLURM_JOB_START_TIME", "1790000000"}, "25.11": {"SLURM_JOB_SLUID", "sCHNM7Y8WBK900"}} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			j := newJob().with(identity...)
			for _, h := range hooks {
				var running []*running
				for range 6 {
					running = append(running, n.start(h, j))
				}
				for _, p := range running {
					if o := p.wait(); o.exit != 0 || o.output != "" {
						t.Errorf("%s: %v", h.program, o)
					}
				}
			}
			r := n.run(100)
			if r.Start == nil || len(r.Start.Findings) != 0 || len(r.Ends) < 2 || len(r.Ends) > 4 {
				t.Errorf("%+v", r)
			}
			if left := n.halfWritten(); len(left) > 0 {
				t.Errorf("half written: %q", left)
			}
		})
	}
}

// A job that was requeued: the prolog of its second run, on 22.05 with the same id, begins a record of its own.
func TestRequeueWithoutEpilog(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	n.clean(prolog, newJob().with("SLURM_JOB_RESTART_COUNT", "1"))
	n.clean(epilog, newJob().with("SLURM_JOB_RESTART_COUNT", "2"))
	next := newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101")
	n.clean(prolog, next)
	n.leftover()
	if o := n.hook(epilog, next); o.exit != 10 {
		shown, _ := n.bookend("show", "101")
		t.Errorf("the run that was requeued still counts as live: %v\n%s", o, shown)
	}
}

// The prolog of a job's second run is ended while it looks. What the first run's user was told is not true of it.
func TestRequeueInterrupted(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	if said := n.task(taskProlog, newJob()); !strings.Contains(said.output, "clean") {
		t.Fatalf("the first run: %v", said)
	}
	n.clean(epilog, newJob())
	second := newJob().with("SLURM_JOB_RESTART_COUNT", "1")
	must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "hang-hard"))
	p := n.start(prolog, second)
	if o := p.terminate(p.backend()); o.exit != 0 {
		t.Error(o)
	}
	if said := n.task(taskProlog, second); said.exit != 0 || said.output != "" {
		t.Errorf("the second run: %v", said)
	}
}
