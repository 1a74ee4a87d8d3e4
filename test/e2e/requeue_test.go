package e2e

import (
	"slices"
	"strings"
	"testing"

	"bookend/internal/slurm"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// expedite is a batch job that asks to start again at once if hardware makes it fail: that is what Slurm takes a failed
// epilog for. If all epilogs exit 0, the job is held.
var expedite = []string{oneGPU, "--requeue=expedite"}

// Expedited requeue (Slurm 25.11): the user's own error and a leftover keep the job waiting, a fault of the GPU starts it
// again at once on another node. Whatever drains does so, and is ours to resume.
func TestExpeditedRequeue(t *testing.T) {
	t.Parallel()
	if !version(t).Has(slurm.TellsRun) {
		t.Skip("no expedited requeue: before 25.11")
	}
	s := given(t, site.Options{Mode: "enforce", Nodes: []string{"n1", "n2"}, Conf: []string{soonAgain,
		"SlurmctldParameters=enable_expedited_requeue"}})
	s.tell("the job's own error", func(s *story) {
		job := s.submits(s.user, "exit 3", expedite...)
		s.isHeld(job)
		s.nodeIsUp("n1")
		s.hooksRan("n1", "prolog 0", "epilog 0")
	})
	s.tell("a leftover", func(s *story) {
		job := s.submits(s.user, leavesOrphan+"\nexit 3", expedite...)
		s.isHeld(job)
		s.hooksRan("n1", "prolog 0", "epilog 0")
		n := must.Have(s.on.Node("n1"))(s.t)
		must.Not(s.t, !n.Has("DRAIN"), "n1 is %v", n.Flags)
		s.inOrder("the reason", n.Reason, "BKD-ORPHAN gpu=0 2518MiB pid=", " job="+string(job)+" epilog; see: bookend show "+string(job))
		s.logSays("n1", job, "bookend-epilog", "BKD-ORPHAN", "action=drain", "exit=0")
		s.showSays("n1", job, "DRAIN for BKD-ORPHAN (by scontrol, exit 0)")
		s.adminConfigures("n1", "enforce", "drain: {resume: {enabled: true, after: 2}}\n")
		must.Do(s.t, s.on.EndLeftovers())
		s.cardsAreFree("n1")
		s.checksUntil("resumed")
		s.comesBack("n1")
	})
	s.tell("a fault of the GPU", func(s *story) {
		job := s.starts(s.user, `if [ "$SLURM_RESTART_COUNT" ]; then exit 0; fi`+"\n"+awaits+"\nexit 3", expedite...)
		s.driverSays("on.any.gpu0", "rc 15") // it has fallen off the bus
		s.touches(s.user, "done")
		s.ends(job) // without an admin's release
		s.jobIs(job, "COMPLETED")
		must.Be(s.t, "the second run's node", must.Have(s.on.Job(job))(s.t).NodeList, "n2")
		s.checks("n1") // in case slurmctld was too busy for the hook
		s.nodeIsDrained("n1", "BKD-LOST gpu=0 job="+string(job)+" epilog; see: bookend show "+string(job)+"; 1 of 2 good: bookend quarantine --resume 0")
		s.hooksRan("n1", "prolog 0", "epilog 20")
		s.hooksRan("n2", "prolog 0", "epilog 0")
		s.driverSays("on.any.gpu0", "")
	})
}

// isHeld waits until a job that failed has been requeued, and is held for the user to look at.
func (s *story) isHeld(id cluster.JobID) {
	s.until("job "+string(id)+" is requeued and held", func() bool {
		j, err := s.on.Job(id)
		return err == nil && slices.Contains([]string{"PENDING", "REQUEUE_HOLD"}, j.State) && strings.Contains(j.Reason, "held")
	})
	must.Do(s.t, s.on.Cancel(id))
}
