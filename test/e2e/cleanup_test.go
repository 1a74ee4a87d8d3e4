package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/fakegpu"
	"bookend/test/must"
	"bookend/test/site"
)

// cleaning lets the epilog end what is proven to be the ended job's.
const cleaning = "clean_up: {enabled: true, grace: 300ms}\n"

// escapes is a script whose CUDA program leaves the job's session, and waits in the job's cgroup until the recorder
// has seen it there.
const escapes = "{job's cuda} alloc --mib 2000 --orphan --name train\n" + awaits

// TestCleanUp is told under cgroups: what a job leaves is proven to be its own only there. Slurm ends what is still in
// them, so that the leftovers of these stories have left the cgroup in which the recorder saw them.
func TestCleanUp(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: cleaning, Track: inCgroups()})
	s.tell("a job's orphan is ended, and no other process on its GPU", cleansUp)
	s.tell("one without proof is left alone", cleansUpNothingUnproven)
}

// escaped is a job with an orphan that the recorder saw in its cgroup, and that has left it since.
func (s *story) escaped() (job cluster.JobID, orphan int) {
	job = s.starts(s.user, escapes, oneGPU)
	orphan = s.pid(job)
	s.until("the recorder saw it", func() bool {
		out, err := s.on.Bookend("n1", "show", "--node", "n1", "--json", string(job))
		return err == nil && strings.Contains(out, fmt.Sprintf(`"pid": %d`, orphan))
	})
	s.escapes(orphan)
	return job, orphan
}

// escapes takes a process out of the cgroups of its job.
func (s *story) escapes(pid int) {
	must.Do(s.t, cluster.Escape(pid))
}

// holds checks which processes hold memory of a GPU of the node: these, and so many others.
func (s *story) holds(gpu, others int, pids ...int) {
	held := must.Have(s.on.World("n1").Holdings())(s.t)
	held = slices.DeleteFunc(held, func(h fakegpu.Holding) bool { return h.Card != gpu })
	for _, pid := range pids {
		if !slices.ContainsFunc(held, func(h fakegpu.Holding) bool { return h.PID == pid }) {
			s.t.Errorf("process %d holds nothing of GPU %d: %+v", pid, gpu, held)
		}
	}
	if len(held) != len(pids)+others {
		s.t.Errorf("GPU %d is held by %+v, want %v and %d others", gpu, held, pids, others)
	}
}

func cleansUp(s *story) {
	guest := s.submits(s.stranger, trespasses, oneGPU) // another user's live job, which has GPU 0
	s.isRunning(guest)
	job, orphan := s.escaped()
	s.touches(s.stranger, "go")
	s.isReady(guest)
	s.logsIn(s.stranger, "n1", "alloc --mib 600 --orphan --name login --gpu 1")
	s.touches(s.user, "done")
	s.ends(job)

	s.holds(1, 1, s.pid(guest)) // and the login's
	s.inOrder("the output", s.outputOf(job),
		fmt.Sprintf("process %d (train) of your job was still on GPU 1 and was ended", orphan))
	s.showSays("n1", job, "end:", "BKD-ENDED", "sighting")
	s.logSays("n1", job, "bookend-epilog", "BKD-ENDED", "BKD-FOREIGN", "BKD-STRAY")
	s.cancels(guest)
}

// cleansUpNothingUnproven: that the job had the GPU alone makes the orphan its own for all reports, and for no signal.
func cleansUpNothingUnproven(s *story) {
	job := s.starts(s.user, awaits, oneGPU)
	s.logsIn(s.user, "n1", "alloc --mib 2000 --orphan --name train --gpu 0") // in no job's cgroup at any time
	s.touches(s.user, "done")
	s.ends(job)

	held := must.Have(s.on.World("n1").Holdings())(s.t)
	if len(held) != 1 {
		s.t.Fatalf("held are %+v, want the one process", held)
	}
	s.nodeIsDrained("n1", fmt.Sprintf("BKD-ORPHAN gpu=0 2518MiB pid=%d job=%s epilog; see: bookend show %s", held[0].PID,
		job, job))
	s.hooksRan("n1", "prolog 0", "epilog 10")
}
