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
		step         step
		cgroup, want string
	}{
		"a step of its user":            {step{"0", program, title, "1000"}, "0::/\n", "runs on this node"},
		"a program replaced since":      {step{"0", program + " (deleted)", title, "1000"}, "0::/\n", "runs on this node"},
		"Debian's name of the program":  {step{"0", program + "-wlm", title, "1000"}, "0::/\n", "runs on this node"},
		"a step of another job":         {step{"0", program, "slurmstepd: [77.0]", "1000"}, "0::/\n", ""},
		"a step of another user's job":  {step{"0", program, title, "1001"}, "0::/\n", ""},
		"a step without a process":      {step{"0", program, title, ""}, "0::/\n", ""},
		"a user's process of that name": {step{"1000", program, title, "1000"}, "0::/\n", ""},
		"another program of root's":     {step{"0", "/usr/bin/sudo", title, "1000"}, "0::/\n", ""},
		"a cgroup names its job":        {step{"0", program, title, "1000"}, jobCgroup, ""},
		"a container's own users": {step{"0", program, title, "1001"}, "0::/system.slice/docker-" + hex64 + ".scope\n",
			"runs on this node"},
		"the step cannot be read": {step{"0", program, "", "1000"}, "0::/\n", "could not be read"},
	} {
		proc := t.TempDir()
		below(t, proc, "1", "10", "1000", tt.cgroup)
		folder := below(t, proc, "1", "20", tt.step.uid, tt.cgroup)
		must.Link(t, filepath.Join(folder, "exe"), tt.step.exe)
		if tt.step.title != "" {
			must.Write(t, filepath.Join(folder, "cmdline"), tt.step.title+"\x00")
		} else {
			must.Write(t, filepath.Join(folder, "cmdline", "no file"), "")
		}
		if tt.step.child != "" {
			below(t, proc, "20", "21", tt.step.child, tt.cgroup)
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

// below is a user's process with a parent, whose environment names job 777.
func below(t *testing.T, proc, parent, pid, uid, cgroup string) (folder string) {
	folder = fixture(t, proc, pid, cgroup, "SLURM_JOB_ID=777\x00")
	must.Write(t, filepath.Join(folder, "stat"), pid+" (x) S"+strings.Replace(statTail, " 1 ", " "+parent+" ", 1))
	must.Write(t, filepath.Join(folder, "status"), "Name:\tx\nUid:\t"+strings.Repeat(uid+"\t", 3)+uid+"\n")
	return folder
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
		const none = "0::/\n"
		below(t, proc, "1", "10", "1000", none)
		step := below(t, proc, "1", "20", "0", none)
		must.Link(t, filepath.Join(step, "exe"), "/usr/sbin/slurmstepd")
		must.Write(t, filepath.Join(step, "cmdline"), "slurmstepd: ["+tt.job+".batch]\x00")
		below(t, proc, "20", "21", "1001", none)
		one := below(t, proc, "10", "30", "1000", none)
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

// The batch step is what root's slurmstepd runs, and the script its first child of the job's user. What might be another
// job's step is none.
func TestBatchStep(t *testing.T) {
	const program, title, none = "/usr/sbin/slurmstepd-wlm", "slurmstepd: [777.batch]", "0::/\n"
	job := slurm.Owner{ID: 777, Node: "n1"}
	for name, tt := range map[string]struct {
		uid, exe, title, cgroup string // of process 20
		add                     func(t *testing.T, proc string)
		since                   time.Duration
		script                  int // 0 if no step is found
	}{
		"its first process, not a later one": {"0", program, title, none, nil, 0, 22},
		"a cgroup of the job":                {"0", program, title, "0::/system.slice/n1_slurmstepd.scope/job_777/step_batch/slurm\n", nil, 0, 22},
		"of another node on this host":       {"0", program, title, "0::/system.slice/n2_slurmstepd.scope/job_777/step_batch/slurm\n", nil, 0, 0},
		"a cgroup of another job":            {"0", program, title, "0::/system.slice/slurmstepd.scope/job_77/step_batch/slurm\n", nil, 0, 0},
		"another step":                       {"0", program, "slurmstepd: [777.0]", none, nil, 0, 0},
		"another job":                        {"0", program, "slurmstepd: [7777.batch]", none, nil, 0, 0},
		"a user's program of that name":      {"1000", program, title, none, nil, 0, 0},
		"another program of root's":          {"0", "/usr/bin/sudo", title, none, nil, 0, 0},
		"begun before the job":               {"0", program, title, none, nil, time.Hour, 0},
		"a second step of that name": {"0", program, title, none, func(t *testing.T, proc string) {
			daemon(t, proc, "30", "0", program, title, none)
		}, 0, 0},
		"before the script": {"0", program, title, none, func(t *testing.T, proc string) {
			must.Do(t, os.RemoveAll(filepath.Join(proc, "21")))
			must.Do(t, os.RemoveAll(filepath.Join(proc, "22")))
		}, 0, 0},
	} {
		proc := t.TempDir()
		daemon(t, proc, "20", tt.uid, tt.exe, tt.title, tt.cgroup)
		later := below(t, proc, "20", "21", "1000", none)
		stat := must.Read(t, filepath.Join(later, "stat"))
		must.Write(t, filepath.Join(later, "stat"), strings.Replace(stat, " 123456 ", " 123457 ", 1))
		below(t, proc, "20", "22", "1000", none)
		below(t, proc, "20", "19", "1001", none)
		below(t, proc, "1", "18", "1000", none)
		if tt.add != nil {
			tt.add(t, proc)
		}
		got := JobRequest{Proc: proc, UID: 1000, Owner: job, Since: tt.since}.FindBatchStep()
		must.Be(t, name, got.Script.PID, tt.script)
		must.Be(t, name, got.Daemon.PID, map[bool]int{true: 20}[tt.script != 0])
	}
}

// daemon is a process that may be a slurmstepd.
func daemon(t *testing.T, proc, pid, uid, exe, title, cgroup string) {
	dir := below(t, proc, "1", pid, uid, cgroup)
	must.Link(t, filepath.Join(dir, "exe"), exe)
	must.Write(t, filepath.Join(dir, "cmdline"), title+"\x00")
}

// A process of the user is elsewhere unless its cgroup is the job's; in a PID namespace, whether there is one is unknown.
func TestElsewhere(t *testing.T) {
	job := slurm.Owner{ID: 777, Node: "n1"}
	for cgroup, want := range map[string]int{
		"0::/system.slice/slurmstepd.scope/job_777/step_0/user/task_0\n": 0,
		"0::/system.slice/slurmstepd.scope/job_778/step_0/user/task_0\n": 20,
		"0::/user.slice/user-1000.slice/session-1.scope\n":               20,
		"0::/\n": 20,
	} {
		proc := t.TempDir()
		below(t, proc, "1", "20", "1000", cgroup)
		below(t, proc, "1", "21", "1001", "0::/\n")
		found, err := elsewhere(JobRequest{Proc: proc, UID: 1000, Owner: job})
		must.Not(t, found != want || err != nil, "%q: %d, %v", cgroup, found, err)
		must.Do(t, os.MkdirAll(filepath.Join(proc, "self/ns"), 0o755))
		must.Do(t, os.Symlink("pid:[4026532000]", filepath.Join(proc, "self/ns/pid")))
		_, err = elsewhere(JobRequest{Proc: proc, UID: 1000, Owner: job})
		must.Not(t, err == nil, "in a PID namespace there is no error")
	}
}
