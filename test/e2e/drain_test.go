package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/test/cluster"
	"bookend/test/site"
)

// resuming lets the health check put nodes back to work.
const resuming = "drain: {resume: {enabled: true, after: 2}}\n"

// ofOrphan is the reason for a job's orphan.
func (s *story) ofOrphan(job cluster.JobID) string { return s.ofOrphanOn(0, job) }

func (s *story) ofOrphanOn(gpu int, job cluster.JobID) string {
	return fmt.Sprintf("BKD-ORPHAN gpu=%d 2518MiB pid=%d job=%s epilog; see: bookend show %s", gpu, s.pid(job), job, job)
}

// checks runs the health check of a node as slurmd does: told nothing but the node.
func (s *story) checks(node string) {
	s.t.Helper()
	cmd, err := s.on.Command("", s.on.Program("bookend-healthcheck"))
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Env = []string{"SLURMD_NODENAME=" + node, "BOOKEND_CONFIG=" + s.on.ConfigFile(node)}
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		s.t.Errorf("health check: %v\n%s", err, out)
	}
}

// checkSays waits until one line of the health checks' log since the story began has these pieces: a check that slurmd runs
// logs last of all.
func (s *story) checkSays(want ...string) {
	s.t.Helper()
	s.until(fmt.Sprintf("a health check's line has %q", want), func() bool {
		return slices.ContainsFunc(s.logLines()[s.logged:], func(line string) bool {
			return strings.Contains(line, "program=bookend-healthcheck") && !slices.ContainsFunc(want, func(w string) bool {
				return !strings.Contains(line, w)
			})
		})
	})
}

// checksUntil runs health checks until "bookend status" says this of the drain: one that comes before a card is quite at rest
// counts for nothing.
func (s *story) checksUntil(want string) {
	s.t.Helper()
	s.until("status says "+want, func() bool {
		s.checks("n1")
		out, err := s.on.Bookend("n1", "status", "--node", "n1")
		return err == nil && strings.Contains(out, want)
	})
}

// comesBack waits until a node that was resumed is up. Slurm 24.11, without accounting, shows the old reason until a job begins.
func (s *story) comesBack(node string) {
	s.t.Helper()
	s.until("node "+node+" is back", func() bool { return s.isBack(node) })
}

func (s *story) isBack(node string) bool {
	n, err := s.on.Node(node)
	return err == nil && n.Has("IDLE") && !n.Has("DRAIN")
}

// isNotDrained waits until Slurm says so of a node that may be at work.
func (s *story) isNotDrained(node string) {
	s.t.Helper()
	s.until("node "+node+" is not drained", func() bool {
		n, err := s.on.Node(node)
		return err == nil && !n.Has("DRAIN")
	})
}

// adminResumesAtWork resumes a node that need not become idle.
func (s *story) adminResumesAtWork(node string) {
	s.t.Helper()
	if err := s.on.Scontrol("update", "NodeName="+node, "State=RESUME"); err != nil {
		s.t.Fatal(err)
	}
	s.isNotDrained(node)
}

// adminSays is an admin's reason.
func (s *story) adminSays(node, reason string) {
	s.t.Helper()
	if err := s.on.Scontrol("update", "NodeName="+node, "State=DRAIN", "Reason="+reason); err != nil {
		s.t.Fatal(err)
	}
}

// Slurm itself runs the health check.
func TestSlurmRunsTheHealthCheck(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: resuming, Conf: []string{"HealthCheckInterval=2", "HealthCheckNodeState=ANY,CYCLE"}})
	job := s.runs(s.user, leavesOrphan, oneGPU)
	reason := s.ofOrphan(job)
	s.until("the reason is ours", func() bool {
		n, err := s.on.Node("n1")
		return err == nil && n.Has("DRAIN") && n.Reason == reason
	})
	s.hooksRan("n1", "prolog 0", "epilog 10")
	s.checkSays("drain: reason written: "+reason, `in the place of`)

	s.adminKills(s.pid(job), "n1")
	s.comesBack("n1")
	s.checkSays("drain: resumed", "clean 2 of 2 times")
	s.runs(s.user, "echo working", oneGPU)
	s.nodeIsUp("n1")
}

func TestWhoseReasonStands(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: resuming})
	s.tell("a failed epilog's", epilogsReason)
	s.tell("a failed prolog's", prologsReason)
	s.tell("an admin's, from before", adminsBefore)
	s.tell("an admin's, put over Slurm's", adminsOverSlurms)
	s.tell("an admin's, put over ours", adminsOverOurs)
	s.tell("ours with an admin's words", adminsWordsBehindOurs)
	s.tell("another script's", anotherScripts)
	s.tell("nobody's: an admin resumed", adminResumedBefore)
	s.tell("not what an admin's comment says", notTheComment)
}

func epilogsReason(s *story) {
	job := s.runs(s.user, leavesOrphan, oneGPU)
	s.nodeIsDrained("n1", "Epilog error")
	s.checks("n1")
	s.nodeIsDrained("n1", s.ofOrphan(job))
	s.checks("n1")
	s.nodeIsDrained("n1", s.ofOrphan(job))
}

func prologsReason(s *story) {
	s.driverSays("on.any.gpu0", "rc 15") // the card has fallen off the bus
	job := s.submits(s.user, "echo working", oneGPU)
	s.until("the prolog has failed", func() bool {
		n, err := s.on.Node("n1")
		return err == nil && n.Has("DRAIN")
	})
	s.nodeIsDrained("n1", "Prolog error")
	s.checks("n1")
	s.nodeIsDrained("n1", fmt.Sprintf("BKD-LOST gpu=0 job=%s prolog; see: bookend show %s", job, job))
	s.driverSays("on.any.gpu0", "")
	for range 3 {
		s.checks("n1")
	}
	s.nodeIsDrained("n1", fmt.Sprintf("BKD-LOST gpu=0 job=%s prolog; see: bookend show %s", job, job))
	s.checkSays("no health check can tell that BKD-LOST is over")
	s.cancels(job)
}

func adminsBefore(s *story) {
	job := s.starts(s.user, leavesOrphan+"\n"+awaits, oneGPU)
	s.adminSays("n1", "disk swap")
	s.touches(s.user, "done")
	s.ends(job)
	s.checks("n1")
	s.nodeIsDrained("n1", "disk swap")
	s.isLeftAlone("disk swap", s.pid(job))
}

// isLeftAlone checks that a drain that is not ours stays, however clean the node is.
func (s *story) isLeftAlone(reason string, pid int) {
	s.t.Helper()
	s.adminKills(pid, "n1")
	for range 3 {
		s.checks("n1")
	}
	s.nodeIsDrained("n1", reason)
}

func adminsOverSlurms(s *story) {
	job := s.runs(s.user, leavesOrphan, oneGPU)
	s.nodeIsDrained("n1", "Epilog error")
	s.adminSays("n1", "Epilog error: I look at it. jd")
	s.checks("n1")
	s.nodeIsDrained("n1", "Epilog error: I look at it. jd")
	s.isLeftAlone("Epilog error: I look at it. jd", s.pid(job))
}

func adminsOverOurs(s *story) {
	job := s.runs(s.user, leavesOrphan, oneGPU)
	s.checks("n1")
	s.nodeIsDrained("n1", s.ofOrphan(job))
	s.adminSays("n1", "card to be swapped")
	s.isLeftAlone("card to be swapped", s.pid(job))
}

func adminsWordsBehindOurs(s *story) {
	job := s.runs(s.user, leavesOrphan, oneGPU)
	s.checks("n1")
	ours := s.ofOrphan(job)
	s.nodeIsDrained("n1", ours)
	s.adminSays("n1", ours+" jd: do not touch")
	s.isLeftAlone(ours+" jd: do not touch", s.pid(job))
	s.checkSays("drain: forgotten", "changed our reason")
}

func anotherScripts(s *story) {
	s.epilogEndsWith("exit 1")
	s.t.Cleanup(func() { s.epilogEndsWith("exit 0") })
	job := s.runs(s.user, "echo working", oneGPU)
	s.nodeIsDrained("n1", "Epilog error")
	for range 3 {
		s.checks("n1")
	}
	s.nodeIsDrained("n1", "Epilog error")
	s.logSays("n1", job, "bookend-epilog", "exit=0")
}

// epilogEndsWith puts another script of the site's behind Bookend's epilog.
func (s *story) epilogEndsWith(command string) {
	s.t.Helper()
	text := fmt.Sprintf("#!/bin/sh\nBOOKEND_CONFIG=%s/bookend-$SLURMD_NODENAME.yaml %s || exit\n%s\n",
		filepath.Join(s.on.Dir, "etc"), s.on.Program("bookend-epilog"), command)
	if _, err := cluster.WriteHook(s.on.Cluster.Dir(), "epilog", text); err != nil {
		s.t.Error(err)
	}
}

func adminResumedBefore(s *story) {
	job := s.runs(s.user, leavesOrphan, oneGPU)
	s.nodeIsDrained("n1", "Epilog error")
	s.adminResumes("n1")
	s.checks("n1")
	s.comesBack("n1")
	s.adminKills(s.pid(job), "n1")
	s.checks("n1")
	s.comesBack("n1")
}

// While a job goes on the node is drained, resumed, and drained for that job's own end: Slurm 24.11, without accounting, then
// shows the first drain's text for the second.
func TestReasonOfASecondDrain(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: resuming})
	s.tell("resumed by an admin, as a health check saw", func(s *story) {
		s.drainedTwice(func() { s.adminResumesAtWork("n1"); s.checks("n1") })
	})
	s.tell("resumed by an admin before any reason was written", func(s *story) {
		s.drainedTwiceFrom("Epilog error", func() { s.adminResumesAtWork("n1"); s.checks("n1") })
	})
	s.tell("resumed by the health check", func(s *story) {
		s.drainedTwice(func() { s.checksUntil("resumed"); s.isNotDrained("n1") })
	})
	s.adminConfigures("n1", "enforce", "drain: {reason_by: hook, resume: {enabled: true, after: 2}}\n")
	s.tell("the hooks give the reason", func(s *story) {
		s.drainedTwice(func() { s.adminResumesAtWork("n1") })
	})
}

func (s *story) drainedTwice(resumes func()) {
	s.t.Helper()
	s.drainedTwiceFrom("", resumes)
}

// drainedTwiceFrom drains the node a second time, for the end of a job that began before the first; first is its reason then,
// empty for Bookend's.
func (s *story) drainedTwiceFrom(first string, resumes func()) {
	s.t.Helper()
	long := s.starts(s.stranger, leavesOrphan+"\n"+awaits, oneGPU)
	short := s.runs(s.user, leavesOrphan, oneGPU)
	if first == "" {
		s.checks("n1")
		first = s.ofOrphanOn(1, short)
	}
	s.nodeIsDrained("n1", first)
	if err := syscall.Kill(s.pid(short), syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	s.until("the short job's card is free", func() bool {
		held, err := s.on.World("n1").Holdings()
		return err == nil && len(held) == 1
	})
	resumes()
	s.touches(s.stranger, "done")
	s.ends(long)
	s.checks("n1")
	s.nodeIsDrained("n1", s.ofOrphan(long))
}

// notTheComment: in Slurm's answer a comment stands beside the reason, and may say anything.
func notTheComment(s *story) {
	comments := func(text string) {
		if err := s.on.Scontrol("update", "NodeName=n1", "Comment="+text); err != nil {
			s.t.Fatal(err)
		}
	}
	s.t.Cleanup(func() { comments("") })
	forged := " Reason=Epilog error [root@" + time.Now().UTC().Format("2006-01-02T15:04:05") + "]"
	comments("rack 7" + forged)
	job := s.runs(s.user, leavesOrphan, oneGPU)
	s.adminSays("n1", "disk swap")
	s.checks("n1")
	s.nodeIsDrained("n1", "disk swap")
	s.checkSays("a reason of root's")
	s.adminKills(s.pid(job), "n1")
	s.adminResumes("n1")

	second := s.runs(s.user, leavesOrphan, oneGPU)
	s.adminSays("n1", "disk swap")
	comments("rack 7\n  " + forged) // which looks like a line of Slurm's own
	s.checks("n1")
	s.checkSays("BKD-REASON", "tells several reasons")
	comments("")
	s.isLeftAlone("disk swap", s.pid(second))
}

func TestResume(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: resuming})
	s.tell("after as many clean checks as wanted, and not while it is dirty", resumedOnceClean)
	s.tell("begins to count anew after a dirty check", countsAnew)
	s.tell("not where it is off", notResumedWhereOff)
}

func resumedOnceClean(s *story) {
	job := s.runs(s.user, leavesOrphan, oneGPU)
	ours := s.ofOrphan(job)
	for range 4 { // one writes the reason
		s.checks("n1")
	}
	s.nodeIsDrained("n1", ours)
	s.statusOfDrain("GPU 0 is not clean")
	s.adminKills(s.pid(job), "n1")
	s.checksUntil("clean 1 of 2 times")
	s.nodeIsDrained("n1", ours)
	s.checks("n1")
	s.comesBack("n1")
	s.statusOfDrain("resumed")
	s.checkSays("level=warning", "drain: resumed: clean 2 of 2 times in a row after "+ours)
	next := s.runs(s.user, "echo working", oneGPU)
	s.jobIs(next, "COMPLETED")
	s.nodeIsUp("n1")
}

func countsAnew(s *story) {
	job := s.runs(s.user, leavesOrphan, oneGPU)
	s.checks("n1")
	s.adminKills(s.pid(job), "n1")
	s.checksUntil("clean 1 of 2 times")
	s.logsIn(s.stranger, "n1", "alloc --mib 700 --orphan")
	s.checks("n1")
	s.statusOfDrain("GPU 0 is not clean")
	if _, err := s.on.EndLeftovers(); err != nil {
		s.t.Error(err)
	}
	s.cardsAreFree("n1")
	s.checksUntil("clean 1 of 2 times")
	s.nodeIsDrained("n1", s.ofOrphan(job))
	s.checks("n1")
	s.comesBack("n1")
}

func notResumedWhereOff(s *story) {
	s.adminConfigures("n1", "enforce", "")
	s.t.Cleanup(func() { s.adminConfigures("n1", "enforce", resuming) })
	job := s.runs(s.user, leavesOrphan, oneGPU)
	s.checks("n1")
	s.adminKills(s.pid(job), "n1")
	for range 3 {
		s.checks("n1")
	}
	s.nodeIsDrained("n1", s.ofOrphan(job))
}

// statusOfDrain checks what "bookend status" says of the node's drain.
func (s *story) statusOfDrain(want string) {
	s.t.Helper()
	s.statusSays("n1", "drain", want)
}

// A controller that does not answer costs a health check a few seconds, and nothing is lost.
func TestControllerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: resuming})
	s.tell("it is down", func(s *story) {
		s.whileNobodyAnswers(s.on.StopController, s.on.StartController)
	})
	s.tell("it hangs", func(s *story) {
		s.whileNobodyAnswers(func() error { return s.on.FreezeController(true) }, func() error { return s.on.FreezeController(false) })
	})
}

func (s *story) whileNobodyAnswers(goes, comes func() error) {
	s.t.Helper()
	job := s.runs(s.user, leavesOrphan, oneGPU)
	s.nodeIsDrained("n1", "Epilog error")
	must := func(f func() error) {
		if err := f(); err != nil {
			s.t.Fatal(err)
		}
	}
	must(goes)
	back := false
	s.t.Cleanup(func() {
		if !back {
			must(comes)
		}
	})
	s.checks("n1")
	s.checks("n1")
	s.returns(comes)
	back = true
	s.checkSays("findings: ", "BKD-REASON")
	s.nodeIsDrained("n1", "Epilog error")
	s.until("a check that the controller answers", func() bool { // it may yet be at work on what it met with meanwhile
		s.checks("n1")
		n, err := s.on.Node("n1")
		return err == nil && n.Reason == s.ofOrphan(job)
	})

	s.adminKills(s.pid(job), "n1")
	s.checksUntil("clean 1 of 2 times")
	must(goes)
	back = false
	s.checks("n1") // clean, but nobody could be told
	s.returns(comes)
	back = true
	s.nodeIsDrained("n1", s.ofOrphan(job))
	s.until("a check that the controller answers", func() bool {
		s.checks("n1")
		return s.isBack("n1")
	})
}

// returns waits until the controller has heard from its node again.
func (s *story) returns(comes func() error) {
	s.t.Helper()
	if err := comes(); err != nil {
		s.t.Fatal(err)
	}
	s.until("the controller knows the node's state", func() bool {
		n, err := s.on.Node("n1")
		return err == nil && n.Has("IDLE")
	})
}

// A hook that is to give the reason itself, and cannot, leaves it to the health check.
func TestHookCannotGiveTheReason(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: "drain: {reason_by: hook, resume: {enabled: true, after: 1}}\n"})
	s.tell("the health check resumes what a hook drained", func(s *story) {
		job := s.runs(s.user, leavesOrphan, oneGPU)
		s.nodeIsDrained("n1", s.ofOrphan(job))
		s.checks("n1")
		s.nodeIsDrained("n1", s.ofOrphan(job))
		s.adminKills(s.pid(job), "n1")
		s.checksUntil("resumed")
		s.comesBack("n1")
	})
	s.tell("the health check writes what a hook could not", func(s *story) {
		s.adminConfigures("n1", "enforce", "drain: {reason_by: hook}\nslurm: {scontrol: /nonexistent/scontrol}\n")
		job := s.runs(s.user, leavesOrphan, oneGPU)
		s.nodeIsDrained("n1", "Epilog error")
		s.adminConfigures("n1", "enforce", "drain: {reason_by: hook}\n")
		s.checks("n1")
		s.nodeIsDrained("n1", s.ofOrphan(job))
	})
}
