package faults

import (
	"fmt"
	"path/filepath"
	"testing"

	"bookend/internal/code"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// startOf is the record of the start of a job.
func (n *node) startOf(id slurm.JobID) ledger.End {
	n.Helper()
	for _, r := range n.runs(id) {
		if r.Start != nil {
			return *r.Start
		}
	}
	n.Fatalf("job %d has no start on record", id)
	return ledger.End{}
}

func numbered(id slurm.JobID) job {
	return newJob().with("SLURM_JOB_ID", fmt.Sprint(id), "SLURM_JOBID", fmt.Sprint(id))
}

// A service of the node with a little memory on a card is part of the node from the first start that sees it: nobody
// is told, later starts do not wait for it, and a leak beside it drains as on an idle card.
func TestResidentService(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.settle = "{max: 2s, flat: 800ms}" })
	must(t, n.world.Set("context_mib", "33")) // a display's client has no CUDA context
	service := n.holder(0, nil, "--mib", "16", "--list", "graphics")
	must(t, n.world.Set("context_mib", "527"))
	n.move(service, filepath.Base(n.dir)+"-monitor.service", "")

	n.clean(prolog, numbered(101))
	first := n.startOf(101)
	n.clean(epilog, numbered(101))
	n.clean(prolog, newJob())
	second := n.startOf(100)
	if len(first.Findings)+len(second.Findings) != 0 {
		t.Errorf("findings %+v, then %+v", first.Findings, second.Findings)
	}
	for id, c := range second.Curves {
		if c.State != "clean" || c.Looks != 1 {
			t.Errorf("the second start: card %s %+v, first %+v", id, c, first.Curves[id])
		}
	}
	n.leftover()
	if o := n.hook(epilog, newJob()); o.exit != 10 || !has(n.findings(epilog), code.Orphan) || len(n.findings(epilog)) != 1 {
		t.Errorf("%+v %+v", o, n.findings(epilog))
	}
}

// Memory without a holder is never learned, however small and however often it is seen.
func TestLeakIsNotLearned(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.settle = "{max: 2s, flat: 800ms}" })
	must(t, n.world.Set("gpu0.extra_mib", "48"))
	for id := slurm.JobID(101); id < 104; id++ {
		n.hook(prolog, numbered(id))
		if found := n.startOf(id).Findings; !has(found, code.Dirty) {
			t.Errorf("start %d: %+v", id, found)
		}
		n.hook(epilog, numbered(id))
	}
}
