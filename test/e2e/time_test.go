package e2e

import (
	"slices"
	"strings"
	"testing"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// records are what a node keeps of its jobs, in memory and on disk.
func (s *story) records(node string) map[slurm.JobID]ledger.Run {
	runs, damaged := s.allRuns(node)
	if len(damaged) > 0 {
		s.t.Errorf("damaged: %v", damaged)
	}
	records := map[slurm.JobID]ledger.Run{}
	for _, r := range runs {
		records[r.Job.ID] = r
	}
	return records
}

// allRuns are those records, of every run of a job: on disk first, then in memory.
func (s *story) allRuns(node string) ([]ledger.Run, []state.Damage) {
	store := must.Have(state.Open(s.on.Run(), node))(s.t)
	runs, damaged := store.Runs()
	history, lost := state.History(s.on.Var(node), node)
	return append(history, runs...), append(lost, damaged...)
}

// stuckBackends are the processes of the site's backend in state D.
func (s *story) stuckBackends() []string {
	return slices.DeleteFunc(s.hookProcesses(), func(p string) bool {
		return !strings.Contains(p, "bookend-gpu") || !strings.Contains(p, ": D ")
	})
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
	if stuck := s.stuckBackends(); len(stuck) != 1 {
		t.Errorf("stuck: %q, want one", stuck)
	}
	s.statusSays("n1", "driver not answering since ")

	s.driverSays("on.nvmlDeviceGetMemoryInfo_v2", "")
	must.Do(t, s.on.World("n1").Thaw())
	s.until("the stuck backend has ended", func() bool { return len(s.hookProcesses()) == 0 })
	s.adminConfigures("n1", "enforce", withinTotals)
	after := s.runs(s.user, "echo working", oneGPU)
	s.userReads(after, "working", "", leftClean)
}

// An admin's mistake on every node at once, a backend that is not there: jobs go on, and no node drains.
func TestNoMassDrain(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Nodes: []string{"n1", "n2", "n3"}, Mode: "enforce"})
	s.takesAway("bookend-gpu")
	for range 2 {
		job := s.runs(s.user, "echo working", "--nodes=3", oneGPU)
		s.jobIs(job, "COMPLETED")
		for _, node := range s.nodes {
			s.nodeIsUp(node)
			for _, program := range []string{"bookend-prolog", "bookend-epilog"} {
				s.logSays(node, job, program, "BKD-BK-MISSING", "exit=0")
			}
		}
	}
}
