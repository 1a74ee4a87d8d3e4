package e2e

import (
	"fmt"
	"strings"
	"testing"

	"bookend/internal/slurm"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// Jobs of several nodes, parts or runs.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Nodes: []string{"n1", "n2"}})
	s.tell("a batch job on two nodes is bracketed on both and told on one", batchOnTwoNodes)
	s.tell("a leftover on the other node is on that node's record", orphanOnOtherNode)
	s.tell("each task of an array has its own report and is found by its array's id", array)
	s.tell("both parts of a heterogeneous job are bracketed", heterogeneous)
}

func batchOnTwoNodes(s *story) {
	job := s.runs(s.user, "srun /bin/sh -c '{cuda} alloc --mib 100 --sleep 0'\necho done", "--nodes=2", oneGPU,
		"--output=two-%j.txt")

	s.jobIs(job, "COMPLETED")
	s.userReads(job, "done", "", leftClean)
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
	s.userReads(job, "", leftClean)
	s.showSays("n1", job, "end:", "clean")
	s.showSays("n2", job, "start:", "clean", "end:", "BKD-ORPHAN", fmt.Sprintf("PID %d (train)", s.pid(job)))

	config := strings.ReplaceAll(s.on.ConfigFile("n1"), "n1.yaml", "$SLURMD_NODENAME.yaml")
	vet := fmt.Sprintf("srun -K0 --ntasks-per-node=1 /bin/sh -c 'BOOKEND_CONFIG=%s %s vet --exclude-file bad.txt; true'\n", config, s.on.Program("bookend"))
	next := s.runs(s.user, "srun echo working\n"+vet+"srun -N1 $(test ! -e none.txt || echo --exclude=./none.txt) echo kept\n"+
		"srun -N1 $(test ! -e bad.txt || echo --exclude=./bad.txt) /bin/sh -c 'echo on $SLURMD_NODENAME'\nexit 0",
		"--nodes=2", oneGPU)
	text := s.outputOf(next)
	s.inOrder("the next job's output", text, "| bookend: WARNING: n2 GPU 0 already had ", "kept", "on n1")
	for _, line := range []string{"Vetted: n1\n", "Cordon: n2 GPU 0: GPU was not clean at the start, 2.5 GiB (BKD-DIRTY)\n"} {
		must.Not(s.t, strings.Count(text, line) != 1, "want %q once:\n%s", line, text)
	}
	must.Not(s.t, strings.Count(text, "working") != 2 || !strings.HasSuffix(text, leftClean+"\n"),
		"the next job's output:\n%s", text)
	s.statusSays("n2", "LEFTOVER", "at its start: warn (BKD-DIRTY)") // also once the next job has left nothing
}

func array(s *story) {
	id := s.runs(s.user, "[ $SLURM_ARRAY_TASK_ID = 1 ] || "+leavesOrphan, "--array=1-2", "--nodelist=n1", oneGPU)

	for _, job := range s.parts(id) {
		number := job.Fields["ArrayTaskId"]
		name := cluster.JobID(fmt.Sprintf("%s_%s", id, number))
		s.showSays("n1", name, fmt.Sprintf("job %s (%s) on n1", name, job.ID), "start:", "end:")
		s.showSays("n1", job.ID, fmt.Sprintf("job %s (%s) on n1", name, job.ID))
		want := []string{"clean: "}
		if number == "2" { // whether for certain depends on which task ends first
			want = []string{"left 2.5 GiB in use", "(train) ", "Fix: "}
		}
		for _, piece := range want {
			s.inOrder("the output of task "+number, s.outputOf(name), piece)
		}
	}
	s.statusSays("n1", string(id)+"_")
}

// parts are the two tasks of an array, or components of a job.
func (s *story) parts(id cluster.JobID) []cluster.Job {
	jobs, err := s.on.Jobs(id)
	if err != nil || len(jobs) != 2 {
		s.t.Fatalf("parts: %+v, %v; want two", jobs, err)
	}
	return jobs
}

func heterogeneous(s *story) {
	id := s.runs(s.user, "srun --het-group=0,1 /bin/sh -c '{cuda} alloc --mib 100 --sleep 0'\necho done",
		"--nodelist=n1", oneGPU, ":", "--nodelist=n2", oneGPU)

	s.userReads(id, "done", "", leftClean)
	for _, job := range s.parts(id) {
		s.jobIs(job.ID, "COMPLETED")
		s.hooksRan(job.NodeList, "prolog 0", "epilog 0")
		s.showSays(job.NodeList, job.ID, "start:", "clean", "end:", "clean")
		s.showSays(job.NodeList, fmt.Sprintf("%s+%s", id, job.Fields["HetJobOffset"]), "start:", "clean", "end:",
			"clean")
	}
}

// Without PrologFlags=Alloc no prolog runs on a job's other nodes: what is there at its end is no proof against it.
func TestWithoutPrologAtAllocation(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Nodes: []string{"n1", "n2"}, Flags: "Serial", Mode: "enforce"}) // which implies no Alloc
	s.logsIn(s.stranger, "n2", "alloc --mib 2000 --orphan")
	job := s.runs(s.user, "echo done", "--nodes=2", oneGPU)

	s.jobIs(job, "COMPLETED")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.hooksRan("n2", "epilog 0")
	s.nodeIsUp("n2")
	s.userReads(job, "done", "", leftClean)
	s.showSays("n2", job, "start: no record", "end:", "there is no record of the job's start")
	s.logSays("n2", job, "bookend-epilog", "BKD-NORECORD", "exit=0")
}

// Each run of a requeued job has its own record; since 25.11 also an id of its own, by which it can be asked for.
func TestRequeue(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Conf: []string{soonAgain}})
	id := s.starts(s.user, `if [ "$SLURM_RESTART_COUNT" ]; then echo again; else `+leavesOrphan+`; sleep 600; fi`,
		oneGPU)
	pid := s.pid(id)
	must.Do(t, s.on.Scontrol("requeue", string(id)))
	s.ends(id)

	s.jobIs(id, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 0")
	s.userReads(id, lines(notCleanBefore,
		fmt.Sprintf("| bookend:   Held by process %d (train), probably left by an earlier run of this job", pid),
		notCausedBy(id, 140629), "again", stillUses(pid), "", asFound(140629))...)
	s.showSays("n1", id, "start:", "clean", "end:", "BKD-ORPHAN", "start:", "BKD-DIRTY", "end:", "clean")
	s.runsApart(id)
}

func (s *story) runsApart(id cluster.JobID) {
	runs, named := s.shown(id, 2), version(s.t.T).Has(slurm.TellsRun)
	for i, r := range runs {
		must.Not(s.t, r.Start == nil || r.End == nil || (r.SLUID != "") != named,
			"run %d: %+v; want both ends, and an id of its own: %v", i, r, named)
		if named {
			s.showSays("n1", r.SLUID, "job "+string(id), "start:", "end:")
		}
	}
	must.Not(s.t, named && runs[0].SLUID == runs[1].SLUID, "both runs have the id %q", runs[0].SLUID)
}
