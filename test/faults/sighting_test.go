package faults

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/test/fakegpu"
)

// escape moves a process out of all jobs, as a daemon of root's does.
func (n *node) escape(p *fakegpu.Program) {
	n.Helper()
	must(n, os.WriteFile(filepath.Join(unified(n), "cgroup.procs"), []byte(strconv.Itoa(p.PID)), 0))
}

// What another job's hook saw in a job's cgroup proves whose it is when its cgroup no longer does, and lets clean-up
// end it.
func TestSightingByANeighboursHook(t *testing.T) {
	for name, extra := range map[string]string{"": "", "clean-up": "clean_up: {enabled: true, grace: 300ms}\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.configure(func(c *conf) { c.extra, c.settle = extra, "{max: 2s, flat: 800ms}" })
			n.clean(prolog, newJob())
			p := n.leftover()
			n.inCgroup(p, "100")
			n.clean(prolog, bystanding())
			n.escape(p)
			n.hook(epilog, newJob())
			found := n.findings(epilog)
			if want := map[string]code.Code{"": code.Orphan, "clean-up": code.Ended}[name]; len(found) != 1 || found[0].Code != want ||
				found[0].Owner == nil || found[0].Owner.Level != attrib.BySighting || found[0].Holder.PID != p.PID {
				t.Errorf("want one %s by sighting: %+v", want, found)
			}
		})
	}
}

// A job's process on a card that it was not given is seen by the hooks of jobs on other cards, decides nothing there
// and is not put before their users.
func TestTrespass(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())     // on card 0
	n.clean(prolog, bystanding()) // on card 1
	p := n.leftover("--gpu", "1") // job 100's, on card 1 all the same
	n.inCgroup(p, "100")
	other := newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101")
	n.clean(prolog, other) // on card 0, as after a requeue: nothing of its own to tell
	var seen bool
	for _, r := range n.runs(101) {
		for _, f := range r.Start.Findings {
			if seen = f.Code == code.Trespass && f.Holder.PID == p.PID && f.Owner.Job == 100; !seen {
				t.Errorf("finding %+v", f)
			}
		}
		if v := r.Start.Verdict; v.Exit != 0 || v.Code != "" {
			t.Errorf("verdict %+v", v)
		}
	}
	if !seen {
		t.Error("nobody saw job 100's process on card 1")
	}
	if o := n.hook(epilog, bystanding()); o.exit != 0 {
		t.Errorf("drained for another live job's process: %+v", o)
	}
}
