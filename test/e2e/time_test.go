package e2e

import (
	"strings"
	"testing"

	"bookend/internal/ledger"
	"bookend/internal/state"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// allRuns are what a node keeps of its jobs, of every run of theirs: on disk first, then in memory.
func (s *story) allRuns(node string) []ledger.Run {
	runs, _ := must.Have(state.Open(s.on.Run(), node))(s.t).Runs()
	history, _ := state.History(s.on.Var(node), node)
	return append(history, runs...)
}

// The driver holds its callers in state D, past SIGKILL. In every mode jobs go on and the node stays; one child is left,
// and the first job after the driver's recovery is as any other.
func TestWedgedDriver(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: withinTotals})
	s.driverSays("on.nvmlDeviceGetMemoryInfo_v2", "freeze")
	hung := s.runs(s.user, "echo working", oneGPU)
	next := s.runs(s.user, "echo working", oneGPU)
	s.adminConfigures("n1", "observe", withinTotals)
	observed := s.runs(s.user, "echo working", oneGPU)

	for _, job := range []cluster.JobID{hung, next, observed} {
		s.jobIs(job, "COMPLETED")
	}
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 0", "prolog 0", "epilog 0")
	s.logSays("n1", hung, "bookend-prolog", "BKD-HANG")
	s.logSays("n1", hung, "bookend-epilog", "BKD-STUCK", "looks=0")
	s.logSays("n1", next, "bookend-prolog", "BKD-STUCK", "looks=0")
	left := strings.Join(s.hookProcesses(), "\n")
	if strings.Contains(left, "\n") || !strings.Contains(left, "bookend-gpu") || !strings.Contains(left, ": D ") {
		t.Errorf("left: %q, want a backend in state D", left)
	}
	s.statusSays("n1", "driver not answering since ")

	s.driverSays("on.nvmlDeviceGetMemoryInfo_v2", "")
	must.Do(t, s.on.World("n1").Thaw())
	s.until("the stuck backend has ended", func() bool { return len(s.hookProcesses()) == 0 })
	s.adminConfigures("n1", "enforce", withinTotals)
	after := s.runs(s.user, "echo working", oneGPU)
	s.userReads(after, "working", "", leftClean)
}
