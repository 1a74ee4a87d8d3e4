package e2e

import (
	"fmt"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/site"
)

// often lets Slurm run the health check every two seconds.
var often = []string{"HealthCheckInterval=2", "HealthCheckNodeState=ANY"}

// TestHealthCheck is told with each way in which Slurm can track processes; slurmd runs the health check.
func TestHealthCheck(t *testing.T) {
	t.Parallel()
	for _, track := range tracks(t) {
		t.Run(string(track), func(t *testing.T) {
			s := given(t, site.Options{Track: track, Conf: often})
			s.tell("who came and went while a job ran stands in its report", seenBetween)
			if track == cluster.LinuxProc {
				s.tell("what a job left is found between jobs, and named", leftBetween)
			} else {
				s.tell("a job on a card that it was not given is found while both run", trespassFound)
			}
		})
	}
}

// seenBetween: neither end of the job sees the stranger's program, which began after the one and ended before the other.
func seenBetween(s *story) {
	job := s.starts(s.user, awaits+"\nexit 3", oneGPU)
	s.logsIn(s.stranger, "n1", "alloc --mib 2000 --name login --sleep 7")
	s.cardsAreFree("n1")
	s.touches(s.user, "done")
	s.ends(job)

	s.nodeIsUp("n1")
	s.inOrder("the output", s.outputOf(job), "GPU 0 of n1 clean", "GPU 0 of n1 left clean by your job",
		"another process: 2.5 GiB while your job ran")
	if strings.Contains(s.outputOf(job), s.stranger) {
		s.t.Errorf("another user is named:\n%s", s.outputOf(job))
	}
	s.showSays("n1", job, "2.5 GiB while your job ran", "of another user")
	s.hooksRan("n1", "prolog 0", "epilog 0")
}

func leftBetween(s *story) {
	job := s.runs(s.user, leavesOrphan, oneGPU)
	s.awaitsCheck("BKD-ORPHAN", "GPU 0, 2518 MiB", fmt.Sprintf("process %d, job %s (exclusive)", s.pid(job), job))
	s.nodeIsUp("n1")
}

func trespassFound(s *story) {
	guest := s.submits(s.stranger, trespasses, oneGPU)
	s.isRunning(guest)
	job := s.starts(s.user, awaits, oneGPU)
	s.touches(s.stranger, "go")
	s.isReady(guest)
	s.awaitsCheck("BKD-TRESPASS", "GPU 1, 2518 MiB", fmt.Sprintf("process %d, job %s (cgroup)", s.pid(guest), guest), "was not given this GPU")
	s.touches(s.user, "done")
	s.cancels(guest)
	s.ends(job)
	s.nodeIsUp("n1")
}

// awaitsCheck waits until a line of the health check's has these pieces, and no more than one has.
func (s *story) awaitsCheck(want ...string) {
	s.t.Helper()
	said := func() (n int) {
		for _, line := range s.logLines()[s.logged:] {
			has := strings.Contains(line, "program=bookend-healthcheck")
			for _, w := range want {
				has = has && strings.Contains(line, w)
			}
			if has {
				n++
			}
		}
		return n
	}
	s.until(fmt.Sprintf("the health check says %q", want), func() bool { return said() > 0 })
	if n := said(); n != 1 {
		s.t.Errorf("%q is said %d times", want, n)
	}
}
