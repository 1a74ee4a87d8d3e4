package e2e

import (
	"strings"
	"testing"

	"bookend/test/site"
)

func TestHowJobsEnd(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{})
	s.tell("a cancelled job is told about its end", cancelled)
	s.tell("a failed job keeps its exit code", failed)
	s.tell("errors in a file of their own leave the report in the output", errorsApart)
}

func cancelled(s *story) {
	job := s.starts(s.user, "{cuda} alloc --mib 2000", oneGPU)
	s.statusSays("n1", "jobs with GPUs now: 1", "job "+string(job)+"  GPU 0")
	s.showSays("n1", job, "start:", "clean", "end: not yet")
	s.cancels(job)

	s.jobIs(job, "CANCELLED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.inOrder("the output", s.outputOf(job), gotClean, "CANCELLED", "\n\n"+leftClean+"\n")
}

func failed(s *story) {
	job := s.runs(s.user, "{cuda} alloc --mib 100 --sleep 0; exit 3", oneGPU)

	s.jobIs(job, "FAILED")
	if j, err := s.on.Job(job); err != nil || j.ExitCode != "3:0" {
		s.t.Errorf("exit code %s, %v", j.ExitCode, err)
	}
	s.inOrder("the output", s.outputOf(job), "clean", "left clean by your job")
}

func errorsApart(s *story) {
	job := s.runs(s.user, "echo out; echo err >&2", oneGPU, "--output=o-%j.txt", "--error=e-%j.txt")

	if text := s.outputOf(job); !strings.HasSuffix(text, "out\n\n"+leftClean+"\n") {
		s.t.Errorf("the output:\n%s", text)
	}
	if text := s.file(s.user, "e-"+string(job)+".txt"); text != "err\n" {
		s.t.Errorf("the errors:\n%s", text)
	}
}

// TestTimeLimit waits for Slurm, which looks for jobs over their time twice a minute.
func TestTimeLimit(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	job := s.starts(s.user, "{cuda} alloc --mib 2000", oneGPU)
	if err := s.on.Scontrol("update", "JobId="+string(job), "EndTime=now+1"); err != nil {
		t.Fatal(err)
	}
	s.ends(job)

	s.jobIs(job, "TIMEOUT")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.inOrder("the output", s.outputOf(job), gotClean, "DUE TO TIME LIMIT", "\n\n"+leftClean+"\n")
}
