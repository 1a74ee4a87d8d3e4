package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/child"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// A GPU in quarantine is given to no job, the others are; the job that holds it is no job of Bookend's records. It is had
// from a full node, once a job has ended, and from a drained one, without any job in between.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{GPUs: 4, Mode: "enforce", Conf: []string{soonAgain}})
	s.runs(s.user, "true", oneGPU)
	bookend := func(want string, args ...string) {
		s.t.Helper()
		out, err := s.on.Bookend("n1", append(args, "--node", "n1")...)
		must.Not(s.t, !strings.Contains(out, want), "bookend %q, want %q: %v\n%s", args, want, err, out)
	}
	const names = `echo "has [$SLURM_JOB_GPUS]"`
	for index := range 4 {
		bookend("is held by job", "quarantine", fmt.Sprint(index), "--reason", "ticket 17")
		bookend("ticket 17", "status")
		ids := s.runs(s.user, names, oneGPU, "--array=1-12")
		for task := 1; task <= 12; task++ {
			text := must.Read(s.t, s.at(fmt.Sprintf("slurm-%s_%d.out", ids, task)))
			given := strings.Contains(text, fmt.Sprintf("has [%d]", index))
			must.Not(s.t, given || !strings.Contains(text, "has ["), "GPU %d is in quarantine:\n%s", index, text)
		}
		bookend("ended", "release", fmt.Sprint(index))
		s.comesBack("n1")
	}
	bookend("a job may get GPU 1 (node ", "test", "1")
	bookend("is held by job", "quarantine", "1")
	bookend("GPU 1 of n1: ok, largest block", "test", "1")
	must.Do(s.t, s.on.World("n1").Set("gpu1.wrong", "77:4"))
	bookend("BKD-BITS: ", "test", "1")
	must.Do(s.t, s.on.World("n1").Set("gpu1.wrong", ""))
	bookend("wrong words of 8 bytes: 0", "test", "1")
	bookend("ended", "release", "1")
	s.comesBack("n1")
	s.runs(s.user, "true", "--gres=gpu:4") // all are there again
	bookend("in no quarantine", "release", "0")

	full := s.starts(s.user, "echo ready; sleep 600", "--gres=gpu:4")
	bookend("a job has the GPU", "quarantine", "2")
	go func() { _ = s.on.Scontrol("update", "JobId="+string(full), "TimeLimit=1") }()
	s.cancels(full)
	bookend("is held by job", "quarantine", "2", "--wait", "1m")
	bookend("ended", "release", "2")
	s.comesBack("n1")

	bookend("want a GPU's number", "quarantine", "1,2")
	bookend("the node has 4 GPUs", "quarantine", "4")
	store := must.Have(state.Open(s.on.Run(), "n1"))(t)
	ended := must.Have(strconv.ParseUint(string(full), 10, 32))(t)
	for _, job := range []slurm.JobID{slurm.JobID(ended), 99999} { // on record, though Slurm has ended or forgotten it
		must.Do(t, store.Quarantine(state.Quarantine{GPU: 3, Since: time.Now()}, []slurm.JobID{job}))
		bookend("a job may get GPU 3", "test", "3")
		bookend("ended", "release", "3")
		bookend("in no quarantine", "release", "3")
	}

	s.adminUpdates("n1", "State=DRAIN", "Reason=broken")
	waits := s.submits(s.user, names, oneGPU)
	bookend("is held by job", "quarantine", "0", "--resume")
	s.ends(waits)
	must.Not(s.t, strings.Contains(s.outputOf(waits), "has [0]"), "GPU 0 was given to a waiting job")
	bookend("ended", "release", "0")
	s.comesBack("n1")
	out, err := s.on.Bookend("n1", "history", "--node", "n1", "--user", "root")
	must.Not(s.t, err != nil || strings.Contains(out, "root"), "the holding jobs are on record: %v\n%s", err, out)
	for _, line := range s.logLines() {
		must.Not(s.t, strings.Contains(line, "uid=0"), "a hook worked for a holding job: %s", line)
	}
}

// All GPUs of a node are kept from jobs while jobs without GPUs go on. A GPU that a job has is not held before its end, and
// is named; the others stay held. A drained node stays drained until all are held.
func TestQuarantineOfAllGPUs(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{GPUs: 4, Mode: "enforce", Conf: []string{soonAgain}})
	bookend := func(want string, args ...string) {
		s.t.Helper()
		out, err := s.on.Bookend("n1", append(args, "--node", "n1")...)
		must.Not(s.t, !strings.Contains(out, want), "bookend %q, want %q: %v\n%s", args, want, err, out)
	}
	const names = `echo "has [$SLURM_JOB_GPUS]"`
	has := s.starts(s.user, "echo ready; sleep 600", oneGPU)
	bookend("bookend: these stay held (bookend release --all-gpus ends that): GPU 0 is not held: a job has the GPU", "quarantine", "--all-gpus", "--reason", "ticket 17")
	s.runs(s.user, "true") // needs no GPU
	waits := s.submits(s.user, names, oneGPU)
	s.cancels(has)
	s.ends(waits)
	must.Not(t, !strings.Contains(s.outputOf(waits), "has [0]"), "got %s", s.outputOf(waits))
	bookend("GPU 0 of n1 is held by job", "quarantine", "--all-gpus", "--wait", "1m", "--reason", "ticket 17")
	bookend("GPU 3 of n1 is held by job", "quarantine", "--all-gpus")
	bookend("GPU 2 is in quarantine", "status")
	waits = s.submits(s.user, names, oneGPU)
	s.runs(s.user, "true")
	must.Be(t, "a job that wants a GPU", must.Have(s.on.Job(waits))(t).State, "PENDING")
	s.untilNode("n1", "takes jobs", func(n cluster.NodeState) bool { return n.Has("MIXED") && !n.Has("DRAIN") })
	bookend("the quarantine of each GPU is ended", "release", "--all-gpus")
	s.ends(waits)
	s.comesBack("n1")
	s.runs(s.user, "true", "--gres=gpu:4")

	has = s.starts(s.user, "echo ready; sleep 600", oneGPU)
	s.adminUpdates("n1", "State=DRAIN", "Reason=broken")
	bookend("until GPU [0] is free the node stays drained", "quarantine", "--all-gpus", "--resume")
	s.untilNode("n1", "stays drained", func(n cluster.NodeState) bool { return n.Has("DRAIN") })
	s.cancels(has)
	waits = s.submits(s.user, names, oneGPU)
	bookend("GPU 3 of n1 is held by job", "quarantine", "--all-gpus", "--resume", "--wait", "1m")
	s.runs(s.user, "true")
	must.Be(t, "a job that wants a GPU", must.Have(s.on.Job(waits))(t).State, "PENDING")
	bookend("the quarantine of each GPU is ended", "release", "--all-gpus")
	bookend("each GPU of n1 is in no quarantine", "release", "--all-gpus")
	s.ends(waits)
}

// A GPU of eight stays in quarantine while slurmctld and slurmd are restarted. After a reboot that slurmctld learns of later
// the health check has another job hold it before a job that waits gets it, and after scancel. In between, many jobs get the
// other seven.
func TestQuarantineLasts(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{GPUs: 8, Mode: "enforce", Conf: []string{soonAgain},
		Config: timed("probe: {at: never}\nrecord: {every: 0s}\n")})
	s.runs(s.user, "true", oneGPU)
	s.checks("n1")
	bookend := func(want string, args ...string) {
		s.t.Helper()
		out, err := s.on.Bookend("n1", append(args, "--node", "n1")...)
		must.Not(s.t, !strings.Contains(out, want), "bookend %q, want %q: %v\n%s", args, want, err, out)
	}
	var held slurm.JobID
	holds := func(what string) {
		s.t.Helper()
		s.until(what+": a job holds the GPU", func() bool {
			for _, q := range state.Quarantines.PeekNode(s.on.Run(), "n1") {
				if j, err := s.on.Job(cluster.JobID(fmt.Sprint(q.Job))); q.GPU == 3 && err == nil && j.State == "RUNNING" {
					held = q.Job
					return true
				}
			}
			return false
		})
	}
	const names = `echo "has [$SLURM_JOB_GPUS]"`
	gets := func(jobs int) {
		s.t.Helper()
		const most = 70 // of an array, whose end is waited for as for a job's
		for ; jobs > 0; jobs -= most {
			id := s.runs(s.user, names, oneGPU, fmt.Sprintf("--array=1-%d", min(jobs, most)))
			for task := 1; task <= min(jobs, most); task++ {
				text := must.Read(s.t, s.at(fmt.Sprintf("slurm-%s_%d.out", id, task)))
				must.Not(s.t, strings.Contains(text, "has [3]") || !strings.Contains(text, "has ["), "GPU 3 is in quarantine:\n%s", text)
			}
		}
	}
	bookend("is held by job", "quarantine", "3", "--reason", "ticket 17", "--for", "72h")
	holds("at first")
	first := held
	gets(many)

	must.Do(t, s.on.RestartController())
	s.untilNode("n1", "is mixed", func(n cluster.NodeState) bool { return n.Has("MIXED") && !n.Has("NOT_RESPONDING") })
	gets(16)
	must.Do(t, s.on.RestartNode("n1"))
	gets(16)
	s.checks("n1")
	holds("after restarts")
	must.Be(t, "job", held, first)

	waiting := cluster.JobID("")
	must.Do(t, s.on.Reboot("n1", func() {
		must.Do(t, os.RemoveAll(s.on.Run()+"/state/n1"))
		disk := child.Journal[[]state.Quarantine]{Dir: s.on.Var("n1"), Name: "quarantines-n1.json"}
		wanted := must.Have(disk.Read())(t)
		wanted[0].Boot = "an earlier one"
		must.Do(t, disk.Write(wanted))
		waiting = s.submits(s.user, names, oneGPU, "--array=1-16")
		time.Sleep(25 * time.Second) // a batch job that was there less than 20 s ago slurmctld does not miss yet
		s.checks("n1")
		s.until("the jobs that are to hold the GPU are in the queue", func() bool {
			return len(state.Quarantines.PeekNode(s.on.Run(), "n1")) > 1 // and the one of before
		})
	}))
	holds("after a reboot")
	bookend("held by job", "status")
	must.Not(t, held == first, "job %d has ended", held)
	s.ends(waiting)
	for task := 1; task <= 16; task++ {
		text := must.Read(s.t, s.at(fmt.Sprintf("slurm-%s_%d.out", waiting, task)))
		must.Not(s.t, strings.Contains(text, "has [3]"), "GPU 3 is in quarantine:\n%s", text)
	}

	second := held
	must.Do(t, s.on.Cancel(cluster.JobID(fmt.Sprint(second))))
	s.ends(cluster.JobID(fmt.Sprint(second)))
	s.checks("n1")
	holds("after scancel")
	must.Not(t, held == second, "job %d was cancelled", held)
	bookend("ticket 17", "status")
	gets(16)
	bookend("ended", "release", "3")
	s.comesBack("n1")
	s.checks("n1")
	s.runs(s.user, "true", "--gres=gpu:8")
	bookend("no problems", "status")
}

// many jobs take some two minutes on a machine of two cores; with those after restarts they are 500.
const many = 436
