package e2e

import (
	"fmt"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// The lines of a job on one GPU. A clean start says nothing.
const (
	leftClean      = "| bookend: n1 GPU 0 clean: 139.8 of 139.8 GiB free"
	notCleanBefore = "| bookend: WARNING: n1 GPU 0 already had 2.5 GiB in use before your job started"
	notCleanAfter  = "| bookend: WARNING: your job left 2.5 GiB in use on n1 GPU 0"
	maybeLeft      = "| bookend: WARNING: your job probably left 2.5 GiB in use on n1 GPU 0"
)

const (
	// leavesOrphan is a script whose CUDA program leaves the job's session and lives on.
	leavesOrphan = "{cuda} alloc --mib 2000 --orphan --name train"
	// awaits goes on until it is told.
	awaits = "echo ready\nuntil [ -e done ]; do sleep 0.05; done"
	// trespasses has GPU 0 and puts memory on GPU 1, which is another job's.
	trespasses = "until [ -e go ]; do sleep 0.05; done\nCUDA_VISIBLE_DEVICES=1 {cuda} alloc --mib 2000 --name guest"
)

// fix is what the user of a job can do that leaves a process.
const fix = "| bookend:   Fix: stop background work before the script ends (wait, or trap 'trap \"\" TERM; kill 0' EXIT)"

// stillUses is the TaskEpilog's line, at the end of the script.
func stillUses(pid int) string {
	return fmt.Sprintf("| bookend: process %d (train) still uses a GPU at the end of your script", pid)
}

// notCausedBy ends the start report of a job that found its card in use.
func notCausedBy(job cluster.JobID, freeMiB int) string {
	return fmt.Sprintf("| bookend:   %.1f GiB is free. Not enough? sbatch --exclude=n1\n%s",
		float64(freeMiB)/1024, moreAt(job))
}

// asFound is what the later job, which met no trouble, reads of it at its end.
func asFound(freeMiB int) string {
	return fmt.Sprintf("| bookend: n1 GPU 0 as your job found it: %.1f of 139.8 GiB free", float64(freeMiB)/1024)
}

func moreAt(job cluster.JobID) string {
	return fmt.Sprintf("| bookend:   For your admin: bookend show %s (on n1)", job)
}

func lines(all ...string) []string { return strings.Split(strings.Join(all, "\n"), "\n") }

// An orphan drains the node until an admin has dealt with it: then a health check resumes it.
func TestEnforce(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: "drain: {resume: {enabled: true, after: 1}}\n"})
	first := s.happens(drains)
	pid := s.pid(first)
	s.inOrder("the output", s.outputOf(first), stillUses(pid), maybeLeft,
		"| bookend:   The node takes no new jobs until an admin clears it", moreAt(first))
	s.statusSays("n1", "n1  enforce  1 PROBLEM  driver ", "DRAIN\n", "reason: "+s.ofOrphan(first)+" (by ", "LEFTOVER",
		"DRAIN for BKD-ORPHAN (exit 10)", "Next: bookend show "+string(first))

	second := s.submits(s.user, "echo working", oneGPU)
	s.until("the next job waits for the drained node", func() bool {
		j, err := s.on.Job(second)
		return err == nil && j.State == "PENDING" && strings.Contains(j.Reason, "DRAINED")
	})
	s.checks("n1")
	s.nodeIsDrained("n1", s.ofOrphan(first))
	s.adminKills(pid, "n1")
	s.checksUntil("resumed")
	s.ends(second)

	s.jobIs(second, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 10", "prolog 0", "epilog 0")
	s.userReads(second, "working", "", leftClean)
}

// TestEndedFromOutside: a job that is cancelled, and one whose time is over, for which Slurm looks twice a minute.
func TestEndedFromOutside(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	for _, tt := range []struct {
		state, said string
		end         func(cluster.JobID) error
	}{
		{"CANCELLED", "CANCELLED", s.on.Cancel},
		{"TIMEOUT", "DUE TO TIME LIMIT", func(job cluster.JobID) error {
			return s.on.Scontrol("update", "JobId="+string(job), "EndTime=now+1")
		}},
	} {
		s.tell(tt.state, func(s *story) {
			job := s.starts(s.user, "{cuda} alloc --mib 2000", oneGPU)
			s.statusSays("n1", "in use", string(job)+" ")
			s.showSays("n1", job, "start:", "clean", "end: not yet")
			must.Do(s.t, tt.end(job))
			s.ends(job)

			s.jobIs(job, tt.state)
			s.nodeIsUp("n1")
			s.hooksRan("n1", "prolog 0", "epilog 0")
			s.inOrder("the output", s.outputOf(job), tt.said, "\n\n"+leftClean+"\n")
		})
	}
}

// A card that is lost at a job's start drains, and Slurm holds the job.
func TestLostCard(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", GPUs: 1, Config: resuming, Conf: []string{soonAgain}})
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
	s.checks("n1")
	s.nodeIsDrained("n1", fmt.Sprintf("BKD-LOST gpu=0 job=%s prolog; see: bookend show %s", job, job))
	s.adminResumes("n1")
	must.Do(t, s.on.Scontrol("release", string(job)))
	s.ends(job)
	s.jobIs(job, "COMPLETED")
	s.userReads(job, "working", "", leftClean)
}

// TestForeignProcess is told with each way in which Slurm can track processes: with cgroups it is known whose a
// process is, without them it is probable.
func TestForeignProcess(t *testing.T) {
	t.Parallel()
	for _, track := range tracks() {
		t.Run(string(track), func(t *testing.T) {
			s := given(t, site.Options{Mode: "enforce", Track: track})
			s.tell("another job comes onto the GPU", func(s *story) { foreignAtEnd(s, track) })
			if track != cluster.LinuxProc {
				s.tell("what leaves its session is ended by Slurm: the GPU is clean", orphanEndedBySlurm)
			}
		})
	}
}

func foreignAtEnd(s *story, track cluster.Track) {
	probably, evidence := "", "cgroup"
	if track == cluster.LinuxProc {
		probably, evidence = "probably ", "environment"
	}
	guest := s.submits(s.stranger, trespasses, oneGPU)
	s.isRunning(guest)
	job := s.starts(s.user, awaits, oneGPU)
	s.touches(s.stranger, "go")
	s.isReady(guest)
	s.touches(s.user, "done")
	s.ends(job)

	s.nodeIsUp("n1")
	s.userReads(job, lines("ready", "",
		"| bookend: WARNING: n1 GPU 1 had 2.5 GiB in use after your job",
		"| bookend:   Held by a process that is not yours, "+probably+"of another user's job", moreAt(job))...)
	s.showSays("n1", job, "end:", "warn (BKD-FOREIGN)", fmt.Sprintf("PID %d (guest)", s.pid(guest)),
		fmt.Sprintf("job:      %s (uid ", guest), "evidence: "+evidence)
	s.cancels(guest)

	s.jobIs(guest, "CANCELLED")
	s.hooksRan("n1", "prolog 0", "prolog 0", "epilog 0", "epilog 0")
}

func orphanEndedBySlurm(s *story) {
	job := s.runs(s.user, strings.Replace(leavesOrphan, "{cuda}", "{job's cuda}", 1), oneGPU)

	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.userReads(job, stillUses(s.pid(job)), "", leftClean)
}

func TestInteractiveJobs(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Conf: []string{
		"LaunchParameters=use_interactive_step",
		`InteractiveStepOptions="--interactive --preserve-env $SHELL"`, // without a terminal: it reads from us
	}})
	s.tell("srun alone has no output file: its user reads nothing on clean GPUs", func(s *story) {
		job, terminal := s.attends(s.user, "", "srun", oneGPU, "/bin/sh", "-c",
			"echo job $SLURM_JOB_ID; {cuda} alloc --mib 100 --sleep 0")
		s.hooksRan("n1", "prolog 0", "epilog 0")
		s.reads(terminal, "job "+string(job))
		s.showSays("n1", job, "GPU 0", "start:", "clean", "end:", "clean")
		s.logSays("n1", job, "bookend-epilog", "msg=clean", `job_log="no file"`)
	})
	s.tell("what its processes used is told at its end", func(s *story) {
		job, terminal := s.attends(s.user, "", "srun", oneGPU, "/bin/sh", "-c",
			"echo job $SLURM_JOB_ID; {cuda} alloc --mib 20000 --sleep 8")
		s.inOrder("the terminal", terminal, "job "+string(job)+"\n", "| bookend: ", "peak 20.0 of ", "one process")
		s.showSays("n1", job, "while it ran", "peak 20.0 GiB")
	})
	s.tell("srun on a GPU in use shows one line at its start, and the report at its end", func(s *story) {
		s.runs(s.stranger, leavesOrphan, oneGPU)
		job, terminal := s.attends(s.user, "", "srun", "--ntasks=2", oneGPU, "/bin/sh", "-c",
			"[ $SLURM_PROCID = 1 ] || echo job $SLURM_JOB_ID")
		s.reads(terminal, lines(notCleanBefore, "job "+string(job), notCleanBefore)...)
		s.showSays("n1", job, "start:", "BKD-DIRTY", "end:")
	})
	s.tell("a limit of address space, which Slurm carries to the hooks in their environment alone", func(s *story) {
		job, _ := s.attends(s.user, "", "/bin/sh", "-c", "ulimit -S -v 67108864; srun --propagate=AS "+oneGPU+
			" /bin/sh -c 'echo job $SLURM_JOB_ID; exit 1' || true")
		s.showSays("n1", job, "end:", "ulimit -v is 64.0 GiB")
	})
	s.tell("salloc's shell is told at its start", func(s *story) {
		job, terminal := s.attends(s.user, "echo job $SLURM_JOB_ID\n"+leavesOrphan+"\nexit\n", "salloc", oneGPU)
		s.inOrder("the terminal", terminal, "job "+string(job)+"\n",
			"(train) still uses a GPU at the end of your script")
		s.showSays("n1", job, "start:", "clean", "end:", "BKD-ORPHAN")
		s.logSays("n1", job, "bookend-epilog", `job_log="no file"`)
	})
}
