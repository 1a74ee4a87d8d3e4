package e2e

import (
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/site"
)

func TestLostCard(t *testing.T) {
	t.Parallel()
	s := given(t, soonAgain(t, site.Options{Mode: "enforce", GPUs: 1}))
	s.driverSays("on.any.gpu0", "rc 15") // the card has fallen off the bus
	job := s.submits(s.user, "echo working", oneGPU)
	s.until("the job is held", func() bool {
		j, err := s.on.Job(job)
		return err == nil && j.State == "PENDING" && strings.Contains(j.Reason, "held")
	})

	s.nodeIsDrained("n1", "Prolog error")
	s.showSays("n1", job, "start:", "DRAIN for BKD-LOST (exit 20)", "BKD-LOST")
	s.logSays("n1", job, "bookend-prolog", "BKD-LOST", "action=drain", "exit=20")

	s.driverSays("on.any.gpu0", "")
	s.adminResumes("n1")
	if err := s.on.Release(job); err != nil {
		t.Fatal(err)
	}
	s.ends(job)
	s.jobIs(job, "COMPLETED")
	s.userReads(job, gotClean, "working", "", leftClean)
}

// Where Slurm's numbers may mean either of two GPUs, and slurmd cannot be asked, nothing is judged and nothing drains.
func TestUncertainNumbers(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Gres: "gpu:a:1,gpu:b:1", GresConf: []string{"Name=gpu Type=b File=DEV/nvidia0", "Name=gpu Type=a File=DEV/nvidia1"},
		Config: "slurm: {slurmd: /nonexistent/slurmd}\n"})
	job := s.runs(s.user, leavesOrphan, oneGPU)

	s.jobIs(job, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	unchecked := "| bookend: GPUs of n1 not checked: cannot tell which cards; your job is not\n| bookend: affected by this"
	s.userReads(job, lines(unchecked, stillUses(s.pid(job)), "", unchecked)...)
	s.showSays("n1", job, "start:", "BKD-AMBIGUOUS", "end:", "BKD-AMBIGUOUS")
	s.statusSays("n1", "GPU unknown")
}

// fencing is a way of tracking that can keep jobs from devices: the run's own if it can, else this one.
func fencing(otherwise cluster.Track) cluster.Track {
	if track != cluster.LinuxProc {
		return track
	}
	return otherwise
}

// Behind ConstrainDevices a job reaches its own card only, whatever it asks for.
func TestFencedCards(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Track: fencing(cluster.CgroupV1), Constrain: true})
	guest := s.submits(s.stranger, trespasses+" || echo ready: refused", oneGPU)
	s.isRunning(guest)
	job := s.starts(s.user, "{cuda} alloc --mib 2000 --sleep 0\n"+awaits, oneGPU)
	s.touches(s.stranger, "go")
	s.isReady(guest)
	s.touches(s.user, "done")
	s.ends(job)
	s.ends(guest)

	s.nodeIsUp("n1")
	s.inOrder("the guest's output", s.outputOf(guest), "ready: refused")
	s.userReads(job, "| bookend: GPU 1 of n1 clean: 143156 MiB free, nobody on it", "ready", "",
		"| bookend: GPU 1 of n1 left clean by your job")
	s.hooksRan("n1", "prolog 0", "prolog 0", "epilog 0", "epilog 0")
}
