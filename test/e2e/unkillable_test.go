package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"bookend/test/cluster"
	"bookend/test/e2e/results"
	"bookend/test/site"
)

// A process that cannot be killed, as one stuck in its driver, keeps its job's cgroup. Slurm gives up on it, drains the node
// by itself and runs the epilog beside it: whose the process is the cgroup says, on 26.05 by the run's id.
func TestUnkillableProcess(t *testing.T) {
	t.Parallel()
	if all, err := cluster.Tracks(); err != nil || !slices.Contains(all, cluster.CgroupV1) || !slices.Contains(all, cluster.CgroupV2) {
		t.Log(results.Mark + "only a v1 freezer keeps a process from SIGKILL, and only v2 tracks it meanwhile: this host has not both")
		return
	}
	s := given(t, site.Options{Mode: "enforce", Track: cluster.CgroupV2, Conf: []string{"UnkillableStepTimeout=5"}})
	job := s.starts(s.user, "{job's cuda} alloc --mib 2000 --name train", oneGPU)
	pid := s.pid(job)
	thaw := s.freezes(pid)
	s.cancels(job)

	s.jobIs(job, "CANCELLED")
	n, err := s.on.Node("n1")
	if err != nil || !n.Has("DRAIN") || !strings.HasPrefix(n.Reason, "Kill task failed") {
		t.Errorf("node n1 is %v for %q, %v; want Slurm's own drain", n.Flags, n.Reason, err)
	}
	s.hooksRan("n1", "prolog 0", "epilog 0") // it may be gone in a moment: Slurm has drained, Bookend does not
	s.showSays("n1", job, "end:", "warn (BKD-ORPHAN)", fmt.Sprintf("PID %d (train)", pid), "state D", "orphan dying",
		fmt.Sprintf("job:      %s (uid ", job), "evidence: cgroup", "held:", "it may be ending")
	s.inOrder("the output", s.outputOf(job), gotClean, notCleanAfter, fmt.Sprintf("process %d (train)", pid))

	thaw()
	s.cardsAreFree("n1")
	s.adminResumes("n1")
	next := s.runs(s.user, "echo working", oneGPU)
	s.userReads(next, gotClean, "working", "", leftClean)
}

// freezes puts a process into state D, where it stays past SIGKILL until it is thawed.
func (s *story) freezes(pid int) (thaw func()) {
	s.t.Helper()
	group := filepath.Join("/sys/fs/cgroup/freezer", fmt.Sprintf("bookend-test-%d", pid))
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0); err != nil {
			s.t.Error(err)
		}
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		s.t.Fatal(err)
	}
	write("cgroup.procs", strconv.Itoa(pid))
	write("freezer.state", "FROZEN")
	thawed := false
	thaw = func() {
		if thawed {
			return
		}
		thawed = true
		write("freezer.state", "THAWED")
		_ = syscall.Kill(pid, syscall.SIGKILL)
		s.until("the thawed process has ended", func() bool { return os.Remove(group) == nil })
	}
	s.t.Cleanup(thaw)
	return thaw
}
