package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// byCheck is the reason that a health check gives.
const byCheck = "BKD-XIDFATAL gpu=0 healthcheck; see: bookend status"

// checksUntilDrained runs health checks until they have drained the node: a job that completes keeps them from it.
func (s *story) checksUntilDrained() {
	s.until("the node is drained", func() bool {
		s.checks("n1")
		n, err := s.on.Node("n1")
		return err == nil && n.Has("DRAIN")
	})
	s.nodeIsDrained("n1", byCheck)
}

// logsXid has the kernel write an error of GPU 0.
func (s *story) logsXid(number int, text string) {
	world := s.on.World("n1")
	log := must.Have(os.ReadFile(world.KernelLog()))(s.t)
	seq := 100 + strings.Count(string(log), "\n")
	line := fmt.Sprintf("3,%d,%d,-;NVRM: Xid (PCI:%s): %d, %s\n", seq, seq*1_000_000,
		strings.TrimSuffix(world.BusID(0), ".0"), number, text)
	must.Do(s.t, os.WriteFile(world.KernelLog(), append(log, line...), 0o600))
}

// A fatal error between two jobs is reported to the next job, and drains at its end; once an admin has resumed the node, the
// same entry does not.
func TestFatalErrorBetweenJobs(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	s.runs(s.user, "true", oneGPU)
	s.logsXid(79, "pid=1, GPU has fallen off the bus.")
	s.driverSays("gpu0.recovery_action_rc", "3") // as before 570: else the recovery action itself would drain
	job := s.runs(s.user, "true", oneGPU)
	s.inOrder("the output", s.outputOf(job), "WARNING: n1 GPU 0 failed before your job started: the GPU has fallen off "+
		"the bus (Xid 79)", "sbatch --exclude=n1")
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 29")
	s.untilNode("n1", "is drained", func(n cluster.NodeState) bool {
		return n.Has("DRAIN") && strings.HasPrefix(n.Reason, "BKD-XIDFATAL gpu=0 job="+string(job)+" epilog")
	})
	s.statusSays("n1", "PROBLEM", "BKD-XIDFATAL", "Xid 79", "the node was drained for it")

	s.adminResumesAtWork("n1")
	s.runs(s.user, "true", oneGPU)
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 29", "prolog 0", "epilog 0")
	s.nodeIsUp("n1")
}

// The health check drains an idle node for a fatal error that two checks have seen: not at the first, not in observe
// mode, not while a job is there, and not again once an admin has resumed the node. It does not resume the node either.
func TestHealthCheckDrainsAnIdleNode(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "observe"})
	s.runs(s.user, "true", oneGPU)
	s.checks("n1")
	s.logsXid(79, "pid=1, GPU has fallen off the bus.")
	s.driverSays("gpu0.recovery_action", "1")
	for range 3 {
		s.checks("n1")
	}
	s.nodeIsUp("n1")
	s.statusSays("n1", "PROBLEM", "BKD-XIDFATAL", "Xid 79")

	s.logsXid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
	s.driverSays("gpu0.recovery_action", "0")
	s.checks("n1")
	s.adminConfigures("n1", "enforce", "drain: {resume: {enabled: true, after: 1}}\n")
	s.logsXid(48, "DBE")
	s.driverSays("gpu0.recovery_action", "1")
	long := s.starts(s.user, "echo ready\n"+awaits, oneGPU)
	s.checks("n1")
	s.checks("n1")
	s.nodeIsUp("n1")
	s.driverSays("gpu0.recovery_action_rc", "3") // the job's end is not sure
	s.touches(s.user, "done")
	s.ends(long)
	s.nodeIsUp("n1")
	s.driverSays("gpu0.recovery_action_rc", "0")

	s.checksUntilDrained()
	s.checks("n1")
	s.checks("n1")
	s.nodeIsDrained("n1", byCheck)
	s.adminResumesAtWork("n1")
	s.checks("n1")
	s.checks("n1")
	s.untilNode("n1", "is not drained", func(n cluster.NodeState) bool { return !n.Has("DRAIN") })
}

// Two checks without any hook in between are enough, the first is not.
func TestFirstHealthCheckDoesNotDrain(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	s.runs(s.user, "true", oneGPU) // it finds out what Slurm's numbers mean
	s.checks("n1")
	s.logsXid(79, "pid=1, GPU has fallen off the bus.")
	s.driverSays("gpu0.recovery_action", "1")
	s.checks("n1")
	s.nodeIsUp("n1")
	s.runs(s.user, "true", noGPU)
	s.checksUntilDrained()
}
