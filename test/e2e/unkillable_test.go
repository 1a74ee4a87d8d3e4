package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/faultinject"
	"bookend/test/must"
	"bookend/test/rig"
	"bookend/test/site"
)

// A process that cannot be killed, as one stuck in its driver, keeps its job's cgroup. Slurm gives up on it, drains
// the node by itself and runs the epilog beside it: whose the process is the cgroup says, on 26.05 by the run's id.
func TestUnkillableProcess(t *testing.T) {
	t.Parallel()
	dir := cluster.TempDir(t)
	full := faultinject.NewFS(t, filepath.Join(dir, "full"))
	must.Do(t, os.Chmod(full.Dir, 0o777))
	s := given(t, site.Options{Mode: "enforce", Dir: dir, Track: inCgroups(),
		Conf: []string{"UnkillableStepTimeout=5"}})
	// It has its memory when it says that it is ready, which it cannot.
	job := s.starts(s.user, "exec 3>"+full.Dir+"/said\n"+awaits+"\n{job's cuda} alloc --mib 2000 --name train >&3",
		oneGPU)
	t.Cleanup(full.Thaw) // before the site's own
	full.Freeze()
	s.touches(s.user, "done")
	pid := s.stuckHolder()
	s.cancels(job)

	s.jobIs(job, "CANCELLED")
	n, err := s.on.Node("n1")
	if err != nil || !n.Has("DRAIN") || !strings.HasPrefix(n.Reason, "Kill task failed") {
		t.Errorf("node n1 is %v for %q, %v; want Slurm's own drain", n.Flags, n.Reason, err)
	}
	s.hooksRan("n1", "prolog 0", "epilog 10") // it sleeps in the kernel and is not ending: that excuses nothing
	s.showSays("n1", job, "end:", "DRAIN for BKD-ORPHAN (exit 10)", fmt.Sprintf("PID %d (train)", pid), "state D", "orphan dying",
		fmt.Sprintf("job:      %s (uid ", job), "evidence: cgroup")
	s.inOrder("the output", s.outputOf(job), notCleanAfter, fmt.Sprintf("Process %d (train)", pid))

	full.Thaw()
	s.cardsAreFree("n1")
	s.adminResumes("n1")
	next := s.runs(s.user, "echo working", oneGPU)
	s.userReads(next, "working", "", leftClean)
}

// stuckHolder waits until the one process on the node's GPUs is in state D.
func (s *story) stuckHolder() (pid int) {
	s.until("the process on the GPU is in state D", func() bool {
		held, err := s.on.World("n1").Holdings()
		if err != nil || len(held) != 1 {
			return false
		}
		pid = held[0].PID
		return rig.ReadProcess(pid).State == "D"
	})
	return pid
}
