package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// What differs from one Slurm to the next. Where an older one lacks something, it must say so: a site that copies a
// line of another's configuration learns of it from Slurm, not from jobs.

// version is that of the Slurm under test.
func version(t *testing.T) cluster.Version {
	t.Helper()
	return must.Have(cluster.VersionIn(cluster.Root()))(t)
}

// refused checks that this Slurm does not start with these options, and says why.
func refused(t *testing.T, o site.Options, why string) {
	t.Helper()
	o.Programs, o.Nodes = programs, []string{"n1"}
	on, err := site.Up(o)
	if err == nil {
		t.Error(on.Down())
		t.Fatalf("Slurm came up with %+v, want a complaint of %q", o, why)
	}
	if !strings.Contains(err.Error(), why) {
		t.Errorf("Slurm complains %v, want %q in it", err, why)
	}
}

// tracks are the ways of tracking that this run is for: with none named, all that the host can.
func tracks(t *testing.T) []cluster.Track {
	t.Helper()
	all := cluster.Tracks()
	if os.Getenv("BOOKEND_E2E_TRACK") != "" {
		return []cluster.Track{track}
	}
	return all
}

// inCgroups is a way of tracking by cgroups: the run's own, else the newest that the host can.
func inCgroups(t *testing.T) cluster.Track {
	t.Helper()
	all := cluster.Tracks()
	if track != cluster.LinuxProc {
		return track
	}
	return all[len(all)-1]
}

// cgroupForms are how a job's cgroup is called.
var cgroupForms = map[cluster.Track]*regexp.Regexp{
	cluster.CgroupV1: regexp.MustCompile(`(?m):freezer:/slurm_n1/uid_\d+/job_(\d+)/step_batch$`),
	cluster.CgroupV2: regexp.MustCompile(`(?m)^0::/system\.slice/n1_slurmstepd\.scope/job_(\d+)/step_batch/`),
}

var runForm = regexp.MustCompile(`(?m)^0::/system\.slice/n1_slurmstepd\.scope/(s[0-9A-HJKMNP-TV-Z]{13})/step_batch/`)

// Since 26.05 the cgroups of a job on v2 are named after its run, in which no hook finds the job's id; a line of
// cgroup.conf brings the ids back.
func TestNamesOfCgroups(t *testing.T) {
	t.Parallel()
	track := inCgroups(t)
	s := given(t, site.Options{Track: track})
	job := s.runs(s.user, "cat /proc/self/cgroup", oneGPU)
	form := cgroupForms[track]
	if track == cluster.CgroupV2 && version(t).Since(26, 5) {
		form = runForm
	}
	name := s.cgroupOf(job, form)
	if form == runForm {
		s.showSays("n1", name, "job "+string(job), "start:", "clean", "end:", "clean") // by its SLUID
	} else if name != string(job) {
		t.Errorf("the cgroup of job %s has the name %q", job, name)
	}
}

// cgroupOf is the name in the form that the job, which prints its cgroup, is in.
func (s *story) cgroupOf(job cluster.JobID, form *regexp.Regexp) string {
	said := form.FindStringSubmatch(s.outputOf(job))
	if said == nil {
		s.t.Fatalf("the job's cgroup is none of %v:\n%s", form, s.outputOf(job))
	}
	s.inOrder("the output", s.outputOf(job), leftClean)
	return said[1]
}

func TestJobIDsInCgroups(t *testing.T) {
	t.Parallel()
	o := site.Options{Mode: "enforce", Track: cluster.CgroupV2, Cgroup: []string{"CgroupJobIdPaths=yes"}}
	if track == cluster.CgroupV1 {
		o.Track = track // which calls them so anyway
	}
	if !version(t).Since(26, 5) {
		refused(t, o, "CgroupJobIdPaths")
		return
	}
	s := given(t, o)
	s.tell("the job's id is back in its cgroup", func(s *story) {
		job := s.runs(s.user, "cat /proc/self/cgroup", oneGPU)
		if name := s.cgroupOf(job, cgroupForms[o.Track]); name != string(job) {
			s.t.Errorf("the cgroup of job %s has the name %q", job, name)
		}
	})
	s.tell("another job's process is known by it", func(s *story) { foreignAtEnd(s, o.Track) })
}

// PrologFlags=RunInJob (24.05 and later) runs the hooks in the job's own cgroup: as shipped they measure nothing there,
// whatever stays on the card drains nothing, and nothing is held up.
func TestRunInJob(t *testing.T) {
	t.Parallel()
	o := site.Options{Mode: "enforce", Flags: "RunInJob", Track: inCgroups(t)}
	if !version(t).Since(24, 5) {
		refused(t, o, "PrologFlags")
		return
	}
	s := given(t, o)
	s.tell("jobs are told that nothing was looked at, and none drains", runInJob)
	s.adminConfigures("n1", "enforce", "slurm: {run_in_job_backend: true}\n"+cleaning)
	s.tell("where the admin wants it, the hooks measure from within, and end nothing", runInJobMeasures)
}

const notLooked = "| bookend: GPUs of n1 not checked"

func runInJob(s *story) {
	first := s.runs(s.user, leavesOrphan+"\nexit 3", oneGPU)
	second := s.runs(s.user, "echo working", oneGPU)

	s.jobIs(first, "FAILED")
	s.jobIs(second, "COMPLETED")
	s.nodeIsUp("n1")
	s.inOrder("the output", s.outputOf(second), "working", notLooked)
	for _, job := range []cluster.JobID{first, second} {
		s.showSays("n1", job, "start:", "BKD-RUNINJOB", "end:", "BKD-RUNINJOB")
		s.logSays("n1", job, "bookend-prolog", "BKD-RUNINJOB", "exit=0")
		s.logSays("n1", job, "bookend-epilog", "BKD-RUNINJOB", "exit=0")
	}
}

func runInJobMeasures(s *story) {
	clean := s.runs(s.user, "echo working", oneGPU)
	s.inOrder("the output", s.outputOf(clean), "working", "| bookend: n1 GPU 0 ")
	s.showSays("n1", clean, "GPU 0", "start:", "BKD-RUNINJOB", "end:", "not made: the hook runs inside the job",
		"BKD-RUNINJOB")
	job := s.starts(s.user, escapes, oneGPU)
	orphan := s.pid(job)
	s.escapes(orphan)
	s.touches(s.user, "done")
	s.ends(job)

	s.holds(0, 0, orphan)
	s.nodeIsUp("n1")
	s.showSays("n1", job, "end:", "BKD-ORPHAN", "evidence: exclusive")
}

// Since 24.05 Slurm runs the hooks of several lines, in their order; before, the last line is the only one.
func TestSeveralHooks(t *testing.T) {
	t.Parallel()
	o := site.Options{Mode: "enforce", Dir: cluster.TempDir(t)}
	said := filepath.Join(o.Dir, "said")
	for _, hook := range []string{"Prolog", "Epilog"} {
		text := fmt.Sprintf("#!/bin/sh\necho %s $SLURM_JOB_ID >>%s\n", strings.ToLower(hook), said)
		path := must.Have(cluster.WriteHook(filepath.Join(o.Dir, "slurm"), "sites-"+strings.ToLower(hook), text))(t)
		o.Conf = append(o.Conf, hook+"="+path)
	}
	s := given(t, o)
	job := s.runs(s.user, "echo working", oneGPU)

	s.jobIs(job, "COMPLETED")
	s.nodeIsUp("n1")
	if text, err := os.ReadFile(said); err != nil || string(text) != fmt.Sprintf("prolog %s\nepilog %s\n", job, job) {
		t.Errorf("the site's own hooks say %q, %v", text, err)
	}
	if !version(t).Since(24, 5) {
		s.hooksRan("n1", "prolog 0", "epilog 0")
		s.nothingIsRecorded("n1", job)
		return
	}
	s.hooksRan("n1", "prolog 0", "prolog 0", "epilog 0", "epilog 0")
	s.userReads(job, "working", "", leftClean)
}
