package e2e

import (
	"fmt"
	"strings"
	"testing"

	"bookend/test/site"
)

func TestInteractiveJobs(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Conf: []string{
		"LaunchParameters=use_interactive_step",
		`InteractiveStepOptions="--interactive --preserve-env $SHELL"`, // without a terminal: it reads from us
	}})
	s.tell("srun alone has no output file: its user reads nothing on clean cards", srunAlone)
	s.tell("srun on a card in use shows one line", srunOnDirtyCard)
	s.tell("salloc's shell is told at its start", sallocShell)
}

func srunAlone(s *story) {
	job, terminal := s.runsInForeground(s.user, "srun", oneGPU, "/bin/sh", "-c",
		"echo job $SLURM_JOB_ID; {cuda} alloc --mib 100 --sleep 0")

	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.reads(terminal, "job "+string(job))
	s.showSays("n1", job, "GPU 0", "start:", "clean", "end:", "clean")
	s.logSays("n1", job, "bookend-epilog", "msg=clean", `job_log="no file"`)
}

func srunOnDirtyCard(s *story) {
	s.runs(s.stranger, leavesOrphan, oneGPU)
	job, terminal := s.runsInForeground(s.user, "srun", "--ntasks=2", oneGPU, "/bin/sh", "-c",
		"[ $SLURM_PROCID = 1 ] || echo job $SLURM_JOB_ID")

	s.reads(terminal, notCleanBefore, "job "+string(job))
	s.showSays("n1", job, "start:", "BKD-DIRTY", "end:")
}

func sallocShell(s *story) {
	job, terminal := s.shell(s.user, "echo job $SLURM_JOB_ID\n"+leavesOrphan+"\nexit\n", oneGPU)

	s.inOrder("the terminal", terminal, gotTested+"\n", "job "+string(job)+"\n", "(train) still uses a GPU at the end of your script")
	s.showSays("n1", job, "start:", "clean", "end:", "BKD-ORPHAN")
	s.logSays("n1", job, "bookend-epilog", `job_log="no file"`)
}

func TestTwoNodes(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Nodes: []string{"n1", "n2"}})
	s.tell("a batch job on two nodes is bracketed on both and told on one", batchOnTwoNodes)
	s.tell("a leftover on the other node is on that node's record", orphanOnOtherNode)
}

func batchOnTwoNodes(s *story) {
	job := s.runs(s.user, "srun /bin/sh -c '{cuda} alloc --mib 100 --sleep 0'\necho done", "--nodes=2", oneGPU, "--output=two-%j.txt")

	s.jobIs(job, "COMPLETED")
	s.userReads(job, gotClean, "done", "", leftClean)
	for node, fate := range map[string]string{"n1": "job_log=appended", "n2": `job_log="no file"`} {
		s.nodeIsUp(node)
		s.hooksRan(node, "prolog 0", "epilog 0")
		s.showSays(node, job, fmt.Sprintf("job %s on %s", job, node), "start:", "clean", "end:", "clean")
		s.logSays(node, job, "bookend-prolog", "msg=clean")
		s.logSays(node, job, "bookend-epilog", "msg=clean", fate)
	}
}

func orphanOnOtherNode(s *story) {
	job := s.runs(s.user, "srun --nodes=1 --ntasks=1 --nodelist=n2 /bin/sh -c '"+leavesOrphan+"'", "--nodes=2", oneGPU)

	s.jobIs(job, "COMPLETED")
	s.userReads(job, gotTested, "", leftClean)
	s.showSays("n1", job, "end:", "clean")
	s.showSays("n2", job, "start:", "clean", "end:", "BKD-ORPHAN", fmt.Sprintf("PID %d (train)", s.pid(job)))

	next := s.runs(s.user, "srun echo working", "--nodes=2", oneGPU)
	text := s.outputOf(next)
	s.inOrder("the next job's output", text, gotTested, "| bookend: GPU 0 of n2 was not clean when your job got it")
	if strings.Count(text, "working") != 2 || !strings.HasSuffix(text, leftClean+"\n") {
		s.t.Errorf("the next job's output:\n%s", text)
	}
}
