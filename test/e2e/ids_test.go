package e2e

import (
	"fmt"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/site"
)

func TestManyJobsOfOne(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Nodes: []string{"n1", "n2"}})
	s.tell("each task of an array has its own report and is found by its array's id", array)
	s.tell("both parts of a heterogeneous job are bracketed", heterogeneous)
}

func array(s *story) {
	id := s.runs(s.user, "[ $SLURM_ARRAY_TASK_ID = 1 ] || "+leavesOrphan, "--array=1-2", "--nodelist=n1", oneGPU)

	jobs, err := s.on.Jobs(id)
	if err != nil || len(jobs) != 2 {
		s.t.Fatalf("tasks: %+v, %v", jobs, err)
	}
	for _, job := range jobs {
		number := job.Fields["ArrayTaskId"]
		name := cluster.JobID(fmt.Sprintf("%s_%s", id, number))
		s.showSays("n1", name, fmt.Sprintf("job %s (%s) on n1", name, job.ID), "start:", "end:")
		s.showSays("n1", job.ID, fmt.Sprintf("job %s (%s) on n1", name, job.ID))
		text := s.outputOf(name)
		if number == "1" {
			s.inOrder("the first task's output", text, "clean: 143156 MiB free, nobody on it\n\n", "left clean by your job\n")
		} else {
			s.inOrder("the second task's output", text, "nobody on it", "(train) still uses", "not clean after your job", "show "+string(job.ID))
		}
	}
	s.statusSays("n1", string(id)+"_")
}

func heterogeneous(s *story) {
	id := s.runs(s.user, "srun --het-group=0,1 /bin/sh -c '{cuda} alloc --mib 100 --sleep 0'\necho done",
		"--nodelist=n1", oneGPU, ":", "--nodelist=n2", oneGPU)

	jobs, err := s.on.Jobs(id)
	if err != nil || len(jobs) != 2 {
		s.t.Fatalf("components: %+v, %v", jobs, err)
	}
	s.userReads(id, gotTested, "done", "", leftClean)
	for _, job := range jobs {
		s.jobIs(job.ID, "COMPLETED")
		s.hooksRan(job.NodeList, "prolog 0", "epilog 0")
		s.showSays(job.NodeList, job.ID, "start:", "clean", "end:", "clean")
		s.showSays(job.NodeList, fmt.Sprintf("%s+%s", id, job.Fields["HetJobOffset"]), "start:", "clean", "end:", "clean")
	}
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	s := given(t, soonAgain(t, site.Options{}))
	id := s.starts(s.user, `if [ "$SLURM_RESTART_COUNT" ]; then echo again; else `+leavesOrphan+`; sleep 600; fi`, oneGPU)
	pid := s.pid(id)
	if err := s.on.Requeue(id); err != nil {
		t.Fatal(err)
	}
	s.ends(id)

	s.jobIs(id, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 0")
	s.userReads(id, lines(notCleanBefore,
		fmt.Sprintf("| bookend:   Found:  2518 MiB held by process %d (train) since TIME", pid),
		"| bookend:   Who:    probably an earlier run of this job",
		notCausedBy(id, 140629), "again", stillUses(pid), "", leftAsWas, leftEarlier("2.5 GiB", "since TIME, probably by an earlier run of this job"))...)
	out, err := s.on.Bookend("n1", "show", string(id))
	if err != nil || strings.Count(out, "job "+string(id)+" on n1") != 2 {
		t.Errorf("bookend show tells of one run: %v\n%s", err, out)
	}
	s.inOrder("bookend show", out, "start:", "clean", "end:", "BKD-ORPHAN", "start:", "BKD-DIRTY", "end:", "clean")
}
