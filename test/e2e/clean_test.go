package e2e

import (
	"fmt"
	"testing"

	"bookend/test/site"
)

func TestCleanJobs(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{})
	s.tell("a job that gives everything back reads one line at each end", cleanJob)
	s.tell("a job without GPUs leaves no trace", jobWithoutGPUs)
}

func cleanJob(s *story) {
	job := s.runs(s.user, "{cuda} alloc --mib 2000 --sleep 0\necho done", oneGPU)

	s.jobIs(job, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.userReads(job,
		"| bookend: GPU 0 of n1 clean: 143156 MiB free, nobody on it",
		"done",
		"",
		"| bookend: GPU 0 of n1 left clean by your job")
	s.showSays("n1", job, fmt.Sprintf("job %s on n1, user %s", job, s.user), "GPU 0", "start:", "clean", "end:", "clean")
	s.statusSays("n1", "node n1: mode observe", "jobs with GPUs now: 0", "job "+string(job)+"  GPU 0")
	s.logSays("n1", job, "bookend-prolog", "msg=clean", "exit=0", "gpus=0")
	s.logSays("n1", job, "bookend-epilog", "msg=clean", "exit=0", "job_log=appended")
}

func jobWithoutGPUs(s *story) {
	job := s.runs(s.user, "echo done")

	s.jobIs(job, "COMPLETED")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.userReads(job, "done")
	s.nothingIsRecorded("n1", job)
}
