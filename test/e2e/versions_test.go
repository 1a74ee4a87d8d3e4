package e2e

import (
	"os"
	"regexp"
	"testing"

	"bookend/internal/slurm"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// What differs from one Slurm to the next.

func version(t *testing.T) slurm.Version {
	t.Helper()
	return must.Have(cluster.VersionIn(cluster.Root()))(t)
}

// tracks are the ways of tracking that this run is for: with none named, all that the host can.
func tracks() []cluster.Track {
	if os.Getenv("BOOKEND_E2E_TRACK") != "" {
		return []cluster.Track{track}
	}
	return cluster.Tracks()
}

// inCgroups is a way of tracking by cgroups: the run's own, else the newest that the host can.
func inCgroups() cluster.Track {
	all := cluster.Tracks()
	if track != cluster.LinuxProc {
		return track
	}
	return all[len(all)-1]
}

// jobCgroup is how a job's cgroup is called: job_N, or the SLUID of its run.
var jobCgroup = regexp.MustCompile(`(?m)(?::freezer:/slurm_n1/uid_\d+|^0::/system\.slice/n1_slurmstepd\.scope)` +
	`/(job_\d+|s[0-9A-HJKMNP-TV-Z]{13})/step_batch(?:/|$)`)

// Since 26.05 the cgroups of a job on v2 are named after its run, in which no hook finds the job's id; a line of
// cgroup.conf brings the ids back.
func TestNamesOfCgroups(t *testing.T) {
	t.Parallel()
	track := inCgroups()
	sluids := track == cluster.CgroupV2 && version(t).Has(slurm.Version{26, 5})
	s := given(t, site.Options{Track: track})
	job, name := s.inItsCgroup()
	if sluids {
		s.showSays("n1", name, "job "+string(job), "start:", "clean", "end:", "clean")
	}
	must.Not(t, sluids == (name == "job_"+string(job)), "the cgroup of job %s has the name %q", job, name)
}

// inItsCgroup is a job and the name of its cgroup.
func (s *story) inItsCgroup() (job cluster.JobID, name string) {
	job = s.runs(s.user, "cat /proc/self/cgroup", oneGPU)
	said := jobCgroup.FindStringSubmatch(s.outputOf(job))
	if said == nil {
		s.t.Fatalf("the job's cgroup is not of the form %v:\n%s", jobCgroup, s.outputOf(job))
	}
	s.inOrder("the output", s.outputOf(job), leftClean)
	return job, said[1]
}

func TestJobIDsInCgroups(t *testing.T) {
	t.Parallel()
	if inCgroups() != cluster.CgroupV2 || !version(t).Has(slurm.Version{26, 5}) {
		t.Skip("job ids are in cgroups anyway")
	}
	s := given(t, site.Options{Mode: "enforce", Track: cluster.CgroupV2, Cgroup: []string{"CgroupJobIdPaths=yes"}})
	if job, name := s.inItsCgroup(); name != "job_"+string(job) {
		t.Errorf("the cgroup of job %s has the name %q", job, name)
	}
	s.tell("another job's process is known by it", func(s *story) { foreignAtEnd(s, cluster.CgroupV2) })
}

// PrologFlags=RunInJob (24.05 and later) runs the hooks in the job's own cgroup: as shipped they measure nothing there,
// whatever stays on the card drains nothing, and nothing is held up.
func TestRunInJob(t *testing.T) {
	t.Parallel()
	if !version(t).Has(slurm.SeveralHooks) {
		t.Skip("no such flag: before 24.05")
	}
	runInJob(given(t, site.Options{Mode: "enforce", Flags: "RunInJob", Track: inCgroups()}))
}

const notLooked = "| bookend: GPUs of n1 not checked"

func runInJob(s *story) {
	first := s.runs(s.user, leavesOrphan+"\nexit 3", oneGPU)
	second := s.runs(s.user, "echo working", oneGPU)

	s.jobIs(first, "FAILED")
	s.jobIs(second, "COMPLETED")
	s.nodeIsUp("n1")
	if !version(s.t.T).Has(slurm.Version{25, 5}) {
		return // 24.11.5 runs some of these epilogs as the job's user, without any capability: seen in four of twelve runs
	}
	s.inOrder("the output", s.outputOf(second), "working", notLooked)
	for _, job := range []cluster.JobID{first, second} {
		s.showSays("n1", job, "start:", "BKD-RUNINJOB", "end:", "BKD-RUNINJOB")
		s.logSays("n1", job, "bookend-prolog", "BKD-RUNINJOB", "exit=0")
		s.logSays("n1", job, "bookend-epilog", "BKD-RUNINJOB", "exit=0")
	}
}
