package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/ledger"
	"bookend/internal/state"
)

// lastCheck is what the node's last health check kept.
func (n *node) lastCheck() ledger.Check {
	n.Helper()
	store, err := state.Open(n.conf.run, nodeName)
	must(n, err)
	c, err := store.LastCheck()
	must(n, err)
	if c == nil {
		n.Fatalf("no health check is on record\n%s", n.log())
	}
	return *c
}

// check runs the health check as slurmd does, which must end well.
func (n *node) check() ledger.Check {
	n.Helper()
	if o := n.hook(healthcheck, bySlurm); o.exit != 0 || o.output != "" {
		n.Errorf("health check: %v", o)
	}
	return n.lastCheck()
}

func TestCheckOfACleanNode(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	c := n.check()
	if len(c.Findings) > 0 || len(c.Cards) != 2 || c.Stopped || c.Took <= 0 || c.Cards[1].Index != 1 || len(c.Snapshot.Readings) != 2 {
		t.Errorf("%+v", c)
	}
	if n.log() != "" {
		t.Errorf("a clean check is logged: %s", n.log())
	}
	text, err := os.ReadFile(filepath.Join(n.varDir(), "bookend.prom"))
	must(t, err)
	for _, want := range []string{`bookend_gpu_used_bytes{gpu="1",uuid="`, `bookend_gpu_leaked_bytes{gpu="0",uuid="`,
		`bookend_hook_runs_total{hook="health_check",action="ignore"} 1`, "bookend_health_check_duration_seconds 0."} {
		if !strings.Contains(string(text), want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	if left := n.halfWritten(); len(left) > 0 {
		t.Error(left)
	}
}

// What a job left on a card that nobody has now is found between jobs, and named by what its epilog recorded.
func TestCheckFindsWhatWasLeft(t *testing.T) {
	t.Parallel()
	n := newNode(t, "observe")
	n.clean(prolog, newJob())
	p := n.leftover()
	n.inCgroup(p, "100")
	n.check() // the job runs: it is on its own card
	if found := n.lastCheck().Findings; len(found) > 0 {
		t.Errorf("while the job runs: %+v", found)
	}
	n.escape(p)
	n.hook(epilog, newJob())
	c := n.check()
	if len(c.Findings) != 1 || c.Findings[0].Code != code.Orphan || c.Findings[0].Owner == nil || c.Findings[0].Owner.Job != 100 ||
		c.Findings[0].Owner.Level != attrib.BySighting || c.Findings[0].Holder.PID != p.PID || c.Verdict.Exit != 0 {
		t.Fatalf("%+v", c.Findings)
	}
	if c.Leaked[c.Cards[0].Device.ID] < 100<<20 {
		t.Errorf("leaked: %v", c.Leaked)
	}
	n.check()
	if said := lines(n.log(), "bookend-healthcheck", "BKD-ORPHAN", "GPU 0"); len(said) != 1 {
		t.Errorf("said %d times:\n%s", len(said), n.log())
	}
}

// A daemon outside of jobs that keeps the driver open is counted, once an hour.
func TestCheckCountsWhoKeepsTheDriverOpen(t *testing.T) {
	t.Parallel()
	n := newNode(t, "observe")
	n.service()
	first := n.check().Keepers
	text, err := os.ReadFile(filepath.Join(n.varDir(), "bookend.prom"))
	must(t, err)
	if first == nil || first.Count != 1 || len(lines(string(text), "bookend_driver_kept_open_processes 1")) != 1 {
		t.Fatalf("%+v\n%s", first, text)
	}
	if second := n.check().Keepers; second == nil || *second != *first {
		t.Errorf("searched again: %+v, then %+v", first, second)
	}
}
