package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/state"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// byCheck is the reason that a health check gives.
const byCheck = "BKD-XIDFATAL gpu=0 healthcheck; see: bookend status; 1 of 2 good: bookend quarantine --resume 0"

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
	bus := strings.TrimSuffix(s.on.World("n1").BusID(0), ".0")
	s.kernelLogs(fmt.Sprintf("NVRM: Xid (PCI:%s): %d, %s", bus, number, text))
}

func (s *story) kernelLogs(text string) {
	world := s.on.World("n1")
	log := must.Have(os.ReadFile(world.KernelLog()))(s.t)
	seq := 100 + strings.Count(string(log), "\n")
	line := fmt.Sprintf("3,%d,%d,-;%s\n", seq, seq*1_000_000, text)
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

// The site's own check drains an idle node if two health checks in a row got its CRITICAL: not for an UNKNOWN, which exits
// the same, not while a job is there, and not again once an admin has resumed the node. It resumes nothing.
func TestOwnCheckDrainsAnIdleNode(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	own, verdict := filepath.Join(s.on.Dir, "own-check"), filepath.Join(s.on.Dir, "verdict")
	must.Do(t, os.WriteFile(own, []byte("#!/bin/sh\ncat "+verdict+"\ngrep -q PASS "+verdict+"\n"), 0o755))
	says := func(severity string) {
		text := fmt.Sprintf(`{"overall_severity":%q,"affected_components":[{"check_ids":["gpu_xid_79"],"max_severity":%[1]q}]}`, severity)
		must.Do(t, os.WriteFile(verdict, []byte(text), 0o644))
	}
	checks := func() {
		s.checks("n1")
		store := must.Have(state.Open(s.on.Run(), "n1"))(t)
		last := must.Have(state.LastCheck.Load(store))(t)
		last.At -= time.Minute // the next one comes later
		must.Do(t, state.LastCheck.Save(store, last))
	}
	s.adminConfigures("n1", "enforce", "health: {external: {program: "+own+"}}\npolicy: {health_check: {BKD-EXTERNAL: drain}}\n"+
		"drain: {resume: {enabled: true, after: 1}}\n")
	says("PASS")
	s.runs(s.user, "true", oneGPU) // it finds out what Slurm's numbers mean
	says("UNKNOWN")
	for range 3 {
		checks()
	}
	s.statusSays("n1", "BKD-EXTERNAL", "says UNKNOWN and exits 1")
	says("CRITICAL")
	long := s.starts(s.user, "echo ready\n"+awaits, oneGPU)
	checks()
	checks()
	s.statusSays("n1", "BKD-EXTERNAL", "says CRITICAL: gpu_xid_79")
	s.touches(s.user, "done")
	s.ends(long)
	s.nodeIsUp("n1")
	s.until("the node is drained", func() bool {
		checks()
		n, err := s.on.Node("n1")
		return err == nil && n.Has("DRAIN")
	})
	const reason = "BKD-EXTERNAL healthcheck; see: bookend status"
	says("PASS")
	checks()
	checks()
	s.nodeIsDrained("n1", reason)
	says("CRITICAL")
	checks()
	checks()
	s.adminResumesAtWork("n1")
	checks()
	checks()
	s.untilNode("n1", "is not drained", func(n cluster.NodeState) bool { return !n.Has("DRAIN") })
}

// fills is what PyTorch writes if its process has filled the GPU.
const fills = `echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 ` +
	`GiB of which 25.88 MiB is free. Including non-PyTorch memory, this process has 139.77 GiB memory in use. Of the allocated ` +
	`memory 138.00 GiB is allocated by PyTorch, and 130.53 MiB is reserved by PyTorch but unallocated." >&2`

// A memory error of the GPU in a job's time is the answer to a shortage in its output; what the driver logs as it ends a
// cancelled job's programs is no news.
func TestErrorsWithinJobs(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	job := s.starts(s.user, awaits+"\n"+fills+"\nexit 1", oneGPU)
	s.logsXid(94, "pid=7, Contained: SM (0x1). RST: No, D-RST: No")
	s.touches(s.user, "done")
	s.ends(job)
	output := s.outputOf(job)
	s.inOrder("the output", output, "OUT OF MEMORY on n1 GPU 0: GPU or driver had a fault", "a memory error that ended a program (Xid 94)",
		"This was not your code. Resubmit: sbatch --exclude=n1")
	must.Not(t, strings.Contains(output, "needed more than"), "it blames the job:\n%s", output)

	job = s.starts(s.user, "echo ready\nsleep 600", oneGPU)
	s.logsXid(45, "pid=7, name=python3, Ch 00000001")
	s.cancels(job)
	output = s.outputOf(job)
	must.Not(t, strings.Contains(output, "Xid") || strings.Contains(output, "WARNING"), "the clean-up is told:\n%s", output)
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 0")
	s.nodeIsUp("n1")

	job = s.starts(s.user, "echo ready\n"+awaits, oneGPU)
	s.kernelLogs("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
	s.touches(s.user, "done")
	s.ends(job)
	s.logSays("n1", job, "bookend-epilog", "BKD-KERNELLOG", "exit=0") // it names no GPU
	s.nodeIsUp("n1")
}
