package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/site"
)

// Two jobs run side by side; the trespasser has GPU 0 and puts memory on GPU 1, which is the victim's.
const (
	trespasses = "until [ -e go ]; do sleep 0.05; done\nCUDA_VISIBLE_DEVICES=1 {cuda} alloc --mib 2000 --name guest"
	awaits     = "echo ready\nuntil [ -e done ]; do sleep 0.05; done"
)

// TestForeignProcess is told with each way in which Slurm can track processes: with cgroups it is known whose a
// process is, without them it is probable.
func TestForeignProcess(t *testing.T) {
	t.Parallel()
	for _, track := range tracks(t) {
		t.Run(string(track), func(t *testing.T) {
			s := given(t, site.Options{Mode: "enforce", Track: track})
			s.tell("another job comes onto the card", func(s *story) { foreignAtEnd(s, track) })
			s.tell("another job sits on the card", func(s *story) { foreignAtStart(s, track) })
			if track == cluster.LinuxProc {
				s.tell("of two jobs of one user neither is drained for the other's process", rivals)
			} else {
				s.tell("what leaves its session is ended by Slurm: the card is clean", orphanEndedBySlurm)
			}
		})
	}
}

func foreignAtEnd(s *story, track cluster.Track) {
	guest := s.submits(s.stranger, trespasses, oneGPU)
	s.isRunning(guest)
	job := s.starts(s.user, awaits, oneGPU)
	s.touches(s.stranger, "go")
	s.isReady(guest)
	s.touches(s.user, "done")
	s.ends(job)

	s.nodeIsUp("n1")
	s.userReads(job, lines("| bookend: GPU 1 of n1 clean: 143156 MiB free, nobody on it", "ready", "",
		"| bookend: GPU 1 of n1 was not clean after your job",
		"| bookend:   Found:  2518 MiB held by a process that is not yours",
		"| bookend:   Who:    "+probably(track)+"another user's job", moreAt(job))...)
	s.showSays("n1", job, "end:", "warn (BKD-FOREIGN)", fmt.Sprintf("PID %d (guest)", s.pid(guest)),
		fmt.Sprintf("job:      %s (uid ", guest), "evidence: "+evidence(track))
	s.cancels(guest)

	s.jobIs(guest, "CANCELLED")
	s.hooksRan("n1", "prolog 0", "prolog 0", "epilog 0", "epilog 0")
}

func foreignAtStart(s *story, track cluster.Track) {
	s.touches(s.stranger, "go")
	guest := s.starts(s.stranger, trespasses, oneGPU)
	job := s.runs(s.user, "echo working", oneGPU)

	s.nodeIsUp("n1")
	s.inOrder("the output", s.outputOf(job), "GPU 1 of n1 was not clean when your job got it",
		"2518 MiB held by a process that is not yours", "Who:    "+probably(track)+"another user's job", "working")
	s.showSays("n1", job, "start:", "BKD-FOREIGN", fmt.Sprintf("job:      %s (uid ", guest), "evidence: "+evidence(track), "end:")
	s.cancels(guest)
}

// rivals: without cgroups a process on the victim's card could be either job's.
func rivals(s *story) {
	guest := s.submits(s.user, trespasses, oneGPU)
	s.isRunning(guest)
	job := s.starts(s.user, awaits, oneGPU)
	s.touches(s.user, "go")
	s.isReady(guest)
	s.touches(s.user, "done")
	s.ends(job)

	s.nodeIsUp("n1")
	s.showSays("n1", job, "end:", "warn (", fmt.Sprintf("held:     job %s could own it as well", guest))
	s.cancels(guest)
}

func orphanEndedBySlurm(s *story) {
	job := s.runs(s.user, strings.Replace(leavesOrphan, "{cuda}", "{job's cuda}", 1), oneGPU)

	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.userReads(job, gotTested, stillUses(s.pid(job)), "", leftClean)
}

// tracks are the ways of tracking that this run is for: with none named, all that the host can.
func tracks(t *testing.T) []cluster.Track {
	t.Helper()
	all, err := cluster.Tracks()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("BOOKEND_E2E_TRACK") != "" {
		return []cluster.Track{track}
	}
	return all
}

func probably(track cluster.Track) string {
	if track == cluster.LinuxProc {
		return "probably "
	}
	return ""
}

func evidence(track cluster.Track) string {
	if track == cluster.LinuxProc {
		return "environment"
	}
	return "cgroup"
}

func TestStray(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	job := s.starts(s.user, awaits, oneGPU)
	s.logsIn(s.stranger, "n1", "alloc --mib 2000 --orphan --name login")
	s.touches(s.user, "done")
	s.ends(job)

	s.nodeIsDrained("n1", "Epilog error")
	s.hooksRan("n1", "prolog 0", "epilog 13")
	s.userReads(job, lines(gotClean, "ready", "", notCleanAfter,
		"| bookend:   Found:  2518 MiB held by a process that is not yours",
		"| bookend:   Who:    no job that this node knows of",
		"| bookend:   Means:  this node takes no new jobs until an admin has looked at it", moreAt(job))...)
	s.showSays("n1", job, "end:", "DRAIN for BKD-STRAY (exit 13)", "(login)")
}
