package procscan

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// A job that only an environment names may be on the node if Slurm runs a step of it here for the same user. Nothing
// that a user's process can make of itself passes for such a step.
func TestJobsOfEnvironments(t *testing.T) {
	const program, title = "/usr/sbin/slurmstepd", "slurmstepd: [777.batch]"
	type step struct {
		uid, exe, title string
		child           string // the user of a process that it runs; empty for none
	}
	for name, tt := range map[string]struct {
		step            step
		environ, cgroup string
		want            string
	}{
		"a step of its user":            {step{"0", program, title, "1000"}, "777", "0::/\n", "runs on this node"},
		"a program replaced since":      {step{"0", program + " (deleted)", title, "1000"}, "777", "0::/\n", "runs on this node"},
		"a step of another job":         {step{"0", program, "slurmstepd: [77.0]", "1000"}, "777", "0::/\n", ""},
		"a step of another user's job":  {step{"0", program, title, "1001"}, "777", "0::/\n", ""},
		"a step without a process":      {step{"0", program, title, ""}, "777", "0::/\n", ""},
		"a user's process of that name": {step{"1000", program, title, "1000"}, "777", "0::/\n", ""},
		"another program of root's":     {step{"0", "/usr/bin/sudo", title, "1000"}, "777", "0::/\n", ""},
		"a cgroup names its job":        {step{"0", program, title, "1000"}, "777", jobCgroup, ""},
		"a container's own users": {step{"0", program, title, "1001"}, "777", "0::/system.slice/docker-" + hex64 + ".scope\n",
			"runs on this node"},
		"the step cannot be read": {step{"0", program, "", "1000"}, "777", "0::/\n", "could not be read"},
	} {
		proc := t.TempDir()
		process := func(pid, uid, parent string) string {
			folder := fixture(t, proc, pid, tt.cgroup, "SLURM_JOB_ID="+tt.environ+"\x00")
			must.Write(t, filepath.Join(folder, "stat"), pid+" (x) S"+strings.Replace(statTail, " 1 ", " "+parent+" ", 1))
			must.Write(t, filepath.Join(folder, "status"), "Name:\tx\nUid:\t"+strings.Repeat(uid+"\t", 3)+uid+"\n")
			return folder
		}
		process("10", "1000", "1")
		folder := process("20", tt.step.uid, "1")
		must.Link(t, filepath.Join(folder, "exe"), tt.step.exe)
		if tt.step.title != "" {
			must.Write(t, filepath.Join(folder, "cmdline"), tt.step.title+"\x00")
		} else {
			must.Write(t, filepath.Join(folder, "cmdline", "no file"), "")
		}
		if tt.step.child != "" {
			process("21", tt.step.child, "20")
		}
		must.Link(t, filepath.Join(proc, "10/fd/3"), "/dev/nvidia0")
		listed, held := one(t, proc, 10), Scan(proc, "/dev", time.Hour).Holdings
		must.Not(t, len(held) != 1 || held[0].EnvJobHere != listed.EnvJobHere, "%s: %+v", name, held)
		found := listed.EnvJobHere
		must.Not(t, !strings.Contains(found, tt.want) || (found == "") != (tt.want == ""), "%s: %q", name, found)
		hung := Processes(proc, "", []int{10}, time.Hour, record.Instance{})[0] // its environment may name any of them
		must.Be(t, name, slices.Contains(hung.Steps, 777), strings.Contains(tt.want, "runs"))
		must.Be(t, name, hung.Why != "", strings.Contains(tt.want, "could not be read"))
	}
}

// What cannot be read of a user's processes, for there are so many or for any other reason, backs no job without a step
// here. A job that has a step is not known to be another's until the parents of all processes were read.
func TestCrowdBacksNoJob(t *testing.T) {
	for name, tt := range map[string]struct{ job, unreadable, want string }{
		"no step of it":                        {"77", "stat", ""},
		"no step of it, and users unread":      {"77", "status", ""},
		"another user's step":                  {"777", "status", ""},
		"another user's step, parents unread":  {"777", "stat", "could not be read"},
		"another user's step, programs unread": {"777", "exe", ""},
	} {
		proc := t.TempDir()
		process := func(pid, uid, parent string) string {
			folder := fixture(t, proc, pid, "0::/\n", "SLURM_JOB_ID=777\x00")
			must.Write(t, filepath.Join(folder, "stat"), pid+" (x) S"+strings.Replace(statTail, " 1 ", " "+parent+" ", 1))
			must.Write(t, filepath.Join(folder, "status"), "Name:\tx\nUid:\t"+strings.Repeat(uid+"\t", 3)+uid+"\n")
			return folder
		}
		process("10", "1000", "1")
		step := process("20", "0", "1")
		must.Link(t, filepath.Join(step, "exe"), "/usr/sbin/slurmstepd")
		must.Write(t, filepath.Join(step, "cmdline"), "slurmstepd: ["+tt.job+".batch]\x00")
		process("21", "1001", "20")
		one := process("30", "1000", "10")
		must.Do(t, os.RemoveAll(filepath.Join(one, tt.unreadable)))
		must.Write(t, filepath.Join(one, tt.unreadable, "no file"), "")
		found := Processes(proc, "", []int{10}, time.Hour)[0].EnvJobHere
		must.Not(t, !strings.Contains(found, tt.want) || (found == "") != (tt.want == ""), "%s: %q", name, found)
	}
}

func TestTitles(t *testing.T) {
	for title, want := range map[string]slurm.JobID{
		"slurmstepd: [777]": 777, "slurmstepd: [777.extern]\x00": 777, "slurmstepd: [777+1.0]": 777, "slurmstepd: [777": 0,
		"slurmstepd: []": 0, "slurmstepd: ": 0, "": 0, "x: [777]": 0, "slurmstepd: [99999999999.0]": 0,
	} {
		must.Not(t, parseTitle(title) != want, "%q: %d", title, parseTitle(title))
	}
}
