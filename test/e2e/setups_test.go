package e2e

import (
	"testing"

	"bookend/test/cluster"
	"bookend/test/site"
)

func TestWithoutTaskHooks(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{NoTask: true})
	s.tell("both reports come at the end of a file that Slurm names", reportsTogether)
	s.tell("and of the file that sbatch names by itself", reportsInTheDefaultFile)
	s.tell("without a file that can be known the record alone tells", reportsNowhere)
}

func reportsTogether(s *story) {
	job := s.runs(s.user, "echo done", oneGPU, "--output=my %u-%j.txt")

	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.userReads(job, "done", "", gotClean, leftClean)
	s.logSays("n1", job, "bookend-epilog", "job_log=appended")
}

func reportsInTheDefaultFile(s *story) {
	job := s.runs(s.user, "echo done", oneGPU)

	s.userReads(job, "done", "", gotTested, leftClean)
}

func reportsNowhere(s *story) {
	byName := s.runs(s.user, "echo done", oneGPU, "--job-name=train", "--output=%x.txt") // which hooks are not told
	discarded := s.runs(s.user, "echo done", oneGPU, "--output=/dev/null")

	s.userReads(byName, "done")
	for job, fate := range map[cluster.JobID]string{
		byName: `job_log="no file"`, discarded: "job_log=not-regular",
	} {
		s.showSays("n1", job, "start:", "clean", "end:", "clean")
		s.logSays("n1", job, "bookend-epilog", fate)
	}
}

func TestWithoutPrologAtAllocation(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Nodes: []string{"n1", "n2"}, Flags: "Serial"}) // which implies no Alloc
	job := s.runs(s.user, "echo done", "--nodes=2", oneGPU)

	s.jobIs(job, "COMPLETED")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.hooksRan("n2", "epilog 0")
	s.nodeIsUp("n2")
	s.userReads(job, gotClean, "done", "", leftClean)
	s.showSays("n2", job, "start: no record", "end:", "BKD-NORECORD")
	s.logSays("n2", job, "bookend-epilog", "BKD-NORECORD", "exit=0")
}

func TestNoProofWithoutProlog(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Nodes: []string{"n1", "n2"}, Flags: "Serial", Mode: "enforce"})
	s.logsIn(s.stranger, "n2", "alloc --mib 2000 --orphan")
	job := s.runs(s.user, "echo done", "--nodes=2", oneGPU)

	s.hooksRan("n2", "epilog 0")
	s.nodeIsUp("n2")
	s.showSays("n2", job, "start: no record", "end:", "there is no record of the job's start")
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{
		Conf: []string{
			"PartitionName=strict Nodes=n1 MaxTime=60 DefMemPerCPU=50 State=UP",
			"PartitionName=shared Nodes=n1 MaxTime=60 DefMemPerCPU=50 State=UP",
		},
		Config: "policy: {partitions: {strict: {mode: enforce}}}\nslurm: {shared_partitions: [shared]}\n",
	})
	s.tell("one partition enforces while the others observe", strictPartition)
	s.tell("where sharing is legal others' processes are no news", sharedPartition)
}

func strictPartition(s *story) {
	lenient := s.runs(s.user, leavesOrphan, oneGPU)
	s.nodeIsUp("n1")
	s.adminKills(s.pid(lenient), "n1")
	strict := s.runs(s.user, leavesOrphan, oneGPU, "--partition=strict")

	s.nodeIsDrained("n1", "Epilog error")
	s.hooksRan("n1", "prolog 0", "epilog 0", "prolog 0", "epilog 10")
	s.showSays("n1", lenient, "partition main", "would drain")
	s.showSays("n1", strict, "partition strict", "DRAIN for BKD-ORPHAN (exit 10)")
}

func sharedPartition(s *story) {
	other := s.starts(s.stranger, "CUDA_VISIBLE_DEVICES=1 {cuda} alloc --mib 2000", oneGPU)
	job := s.runs(s.user, "echo working", oneGPU, "--partition=shared")

	s.nodeIsUp("n1")
	s.userReads(job,
		"| bookend: GPU 1 of n1 in use, no action needed; 140629 MiB free",
		"working", "",
		"| bookend: GPU 1 of n1 as your job found it: nothing more on it than before")
	s.cancels(other)
}

func TestWholeNode(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{})
	job := s.runs(s.user, "echo done", "--exclusive")

	s.jobIs(job, "COMPLETED")
	s.userReads(job,
		"| bookend: GPUs 0,1 of n1 clean: 143156 MiB free each, nobody on them",
		"done", "",
		"| bookend: GPUs 0,1 of n1 left clean by your job")
	s.logSays("n1", job, "bookend-epilog", `gpus="0,1"`)
}
