package e2e

import (
	"fmt"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/site"
)

// The lines of a clean job on one GPU.
const (
	gotClean       = "| bookend: GPU 0 of n1 clean: 143156 MiB free, nobody on it"
	gotTested      = "| bookend: GPU 0 of n1 clean: 143156 MiB free, 143154 in one block, nobody on it" // by an earlier job's end
	leftClean      = "| bookend: GPU 0 of n1 left clean by your job"
	notCleanBefore = "| bookend: GPU 0 of n1 was not clean when your job got it"
	notCleanAfter  = "| bookend: GPU 0 of n1 was not clean after your job"
	leftAsWas      = "| bookend: GPU 0 of n1 as your job found it: nothing more on it than before"
)

// leavesOrphan is a script whose CUDA program leaves the job's session and lives on.
const leavesOrphan = "{cuda} alloc --mib 2000 --orphan --name train"

func TestObserve(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{})
	s.tell("an orphan is reported and the node stays up", orphanObserved)
	s.tell("who inherits his own orphan is told the job", inheritsOwn)
	s.tell("who inherits another's orphan is told no more than that", inheritsStrangers)
	s.tell("after the orphan's end nobody speaks of it", orphanKilledInBetween)
}

func orphanObserved(s *story) {
	job := s.runs(s.user, leavesOrphan, oneGPU)
	pid := s.pid(job)

	s.jobIs(job, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.userReads(job, lines(gotClean, stillUses(pid), "", orphanFound(pid), moreAt(job))...)
	s.showSays("n1", job, "end:", "would drain for BKD-ORPHAN, held back: observe mode", "BKD-ORPHAN",
		fmt.Sprintf("PID %d (train)", pid), fmt.Sprintf("%s (uid ", job), "evidence: exclusive")
	s.statusSays("n1", "job "+string(job), "would drain for BKD-ORPHAN")
	s.logSays("n1", job, "bookend-epilog", "level=warning", "BKD-ORPHAN", "exit=0", `held="observe mode"`)
}

func inheritsOwn(s *story) {
	first := s.runs(s.user, leavesOrphan, oneGPU)
	second := s.runs(s.user, "echo working", oneGPU)

	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 0")
	s.userReads(second, lines(
		notCleanBefore,
		fmt.Sprintf("| bookend:   Found:  2518 MiB held by process %d (train) since TIME", s.pid(first)),
		"| bookend:   Who:    probably your job "+string(first),
		notCausedBy(second, 140629), "working", "", leftAsWas, leftEarlier("2.5 GiB", "since TIME, probably by your job "+string(first)))...)
	s.showSays("n1", second, "start:", "BKD-DIRTY", "job:      "+string(first), "evidence: exclusive", "end:", "clean")
}

func inheritsStrangers(s *story) {
	first := s.runs(s.stranger, leavesOrphan, oneGPU)
	second := s.runs(s.user, "echo working", oneGPU)

	s.userReads(second, lines(
		notCleanBefore,
		"| bookend:   Found:  2518 MiB held by a process that is not yours",
		"| bookend:   Who:    probably another user's job",
		notCausedBy(second, 140629), "working", "", leftAsWas, leftEarlier("2.5 GiB", "since TIME"))...)
	s.showSays("n1", second, "start:", "BKD-DIRTY", "job:      "+string(first), "end:")
}

func orphanKilledInBetween(s *story) {
	first := s.runs(s.user, leavesOrphan, oneGPU)
	s.adminKills(s.pid(first), "n1")
	second := s.runs(s.user, "echo working", oneGPU)

	s.userReads(second, gotClean, "working", "", leftClean)
}

func TestEnforce(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	s.tell("an orphan drains the node until an admin has dealt with it", orphanDrains)
	s.tell("who inherits an orphan is not drained for it", inheritorIsNotBlamed)
}

func TestReasonByTheHook(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: "drain: {reason_by: hook}\n"})
	s.tell("the hook itself says why the node is drained", hookGivesReason)
	s.tell("an admin's reason stands", adminsReasonStands)
}

func hookGivesReason(s *story) {
	job := s.runs(s.user, leavesOrphan, oneGPU)

	s.nodeIsDrained("n1", fmt.Sprintf("BKD-ORPHAN gpu=0 2518MiB pid=%d job=%s epilog; see: bookend show %s", s.pid(job), job, job))
	s.hooksRan("n1", "prolog 0", "epilog 10")
}

func adminsReasonStands(s *story) {
	job := s.starts(s.user, leavesOrphan+"\n"+awaits, oneGPU)
	if err := s.on.Scontrol("update", "NodeName=n1", "State=DRAIN", "Reason=disk swap"); err != nil {
		s.t.Fatal(err)
	}
	s.touches(s.user, "done")
	s.ends(job)

	s.nodeIsDrained("n1", "disk swap")
	s.hooksRan("n1", "prolog 0", "epilog 10")
	s.logSays("n1", job, "bookend-epilog", "BKD-ORPHAN", "exit=10")
}

func orphanDrains(s *story) {
	first := s.runs(s.user, leavesOrphan, oneGPU)
	pid := s.pid(first)

	s.jobIs(first, "COMPLETED")
	s.nodeIsDrained("n1", "Epilog error")
	s.hooksRan("n1", "prolog 0", "epilog 10")
	s.userReads(first, lines(gotClean, stillUses(pid), "", orphanFound(pid),
		"| bookend:   Means:  this node takes no new jobs until an admin has looked at it", moreAt(first))...)
	s.showSays("n1", first, "DRAIN for BKD-ORPHAN (exit 10)", fmt.Sprintf("PID %d (train)", pid))
	s.statusSays("n1", "mode enforce", "Slurm: ", "DRAIN, takes no new job; reason: Epilog error (by ", "last:   BKD-ORPHAN, job "+string(first), "job "+string(first), "DRAIN for BKD-ORPHAN (exit 10)")
	s.logSays("n1", first, "bookend-epilog", "BKD-ORPHAN", "action=drain", "exit=10")

	second := s.submits(s.user, "echo working", oneGPU)
	s.until("the next job waits for the drained node", func() bool {
		j, err := s.on.Job(second)
		return err == nil && j.State == "PENDING" && strings.Contains(j.Reason, "DRAINED")
	})
	s.adminKills(pid, "n1")
	s.adminResumes("n1")
	s.ends(second)

	s.jobIs(second, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 10", "prolog 0", "epilog 0")
	s.userReads(second, gotClean, "working", "", leftClean)
}

func inheritorIsNotBlamed(s *story) {
	first := s.runs(s.user, leavesOrphan, oneGPU)
	s.adminResumes("n1") // without dealing with it
	second := s.runs(s.user, "echo working", oneGPU)

	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 10", "prolog 0", "epilog 0")
	s.inOrder("the output", s.outputOf(second), "Who:    probably your job "+string(first), "working", leftAsWas)
}

// stillUses is the TaskEpilog's line, at the end of the script.
func stillUses(pid int) string {
	return fmt.Sprintf("| bookend: process %d (train) still uses a GPU at the end of your script", pid)
}

// orphanFound is what the end report of the job that left an orphan says of it.
func orphanFound(pid int) string {
	return strings.Join([]string{
		notCleanAfter,
		fmt.Sprintf("| bookend:   Found:  2518 MiB held by process %d (train) since TIME", pid),
		probablyThisJob,
	}, "\n")
}

// probablyThisJob says whose fault it is where Slurm has no proof, and what its user can do.
const probablyThisJob = "| bookend:   Who:    probably this job\n" +
	"| bookend:   Do:     end background processes before your script ends (wait, or\n" +
	"| bookend:           trap 'kill 0' EXIT)"

// leftEarlier is what the later job reads of it at its end.
func leftEarlier(held, when string) string {
	return "| bookend: Seen while your job ran: an earlier job left GPU memory in use\n" +
		"| bookend:   YES          left by an earlier job: " + held + " when your job began,\n" +
		"| bookend:                " + when
}

// notCausedBy ends the start report of a job that found its card in use.
func notCausedBy(job cluster.JobID, freeMiB int) string {
	return strings.Join([]string{
		fmt.Sprintf("| bookend:   Means:  not caused by this job; you have %d MiB free", freeMiB),
		"| bookend:   Do:     if that is too little: sbatch --exclude=n1, and tell your",
		fmt.Sprintf("| bookend:           admin: bookend show %s on n1", job),
	}, "\n")
}

func moreAt(job cluster.JobID) string {
	return fmt.Sprintf("| bookend:   More:   for your admin: bookend show %s on n1", job)
}

// lines joins lines and paragraphs.
func lines(all ...string) []string { return strings.Split(strings.Join(all, "\n"), "\n") }
