package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// cgroupLine is what a task's /proc/self/cgroup shows of its job.
var cgroupLine = map[Track]*regexp.Regexp{
	LinuxProc: regexp.MustCompile(`(?m)^0::/`),
	CgroupV1:  regexp.MustCompile(`(?m):freezer:/slurm_n1/uid_\d+/job_1/step_batch$`),
	CgroupV2:  regexp.MustCompile(`(?m)^0::/system\.slice/n1_slurmstepd\.scope/(job_1|s[0-9A-HJKMNP-TV-Z]{13})/step_batch/user/task_0$`),
}

// leaks leave the job's process tree in two ways. The job ends when both have said that they are out: until
// then they would be killed with it. Then the job looks at its own cgroup and tries each device.
const leaks = `
mkfifo out
(setsid sh -c 'echo out >out; exec sleep 700' >/dev/null 2>&1 &)
env -i /usr/bin/setsid sh -c 'echo out >out; exec sleep 701' >/dev/null 2>&1 &
exec 3<>out
read first <&3; read second <&3
cat /proc/self/cgroup
for device in "$DEVICES"/nvidia?; do head -c0 "$device" && echo "opened $device"; done
exit 0
`

// TestTracks runs on every kind of tracking the host can do: a Debian machine with v1 beside v2 does all.
func TestTracks(t *testing.T) {
	tracks, err := Tracks()
	if err != nil {
		t.Fatal(err)
	}
	if len(tracks) < 2 {
		t.Fatalf("this host can track by %v only: want a writable cgroup hierarchy", tracks)
	}
	for _, track := range tracks {
		t.Run(string(track), func(t *testing.T) {
			c := Start(t, Options{Track: track, ConstrainDevices: track != LinuxProc})
			devices := filepath.Join(c.Dir(), "dev")
			j, out := submit(t, c, users(t)[1], strings.ReplaceAll(leaks, "$DEVICES", devices), "--gres=gpu:2")
			if j.State != "COMPLETED" || !cgroupLine[track].MatchString(out) {
				t.Errorf("job %s, output %q", j.State, out)
			}
			if all := strings.Count(out, "opened"); (track == LinuxProc) != (all == 4) {
				t.Errorf("%d of 4 devices could be opened:\n%s", all, out)
			}
			left, err := c.EndLeftovers()
			if err != nil {
				t.Error(err)
			}
			if want := map[bool]int{true: 2, false: 0}[track == LinuxProc]; len(left) != want {
				t.Errorf("processes %v outlived the job, want %d", left, want)
			}
			// Ended is ended: nothing is found twice.
			if again, err := c.EndLeftovers(); err != nil || len(again) != 0 {
				t.Errorf("second look: %v, %v", again, err)
			}
		})
	}
}

// TestDownLeavesNothing takes clusters down with a job running, an epilog hanging and a folder mounted.
func TestDownLeavesNothing(t *testing.T) {
	tracks, err := Tracks()
	if err != nil {
		t.Fatal(err)
	}
	for _, track := range tracks {
		t.Run(string(track), func(t *testing.T) {
			o := Options{Dir: TempDir(t), Track: track}
			o.Epilog = HookFile(o.Dir, "epilog")
			if _, err := WriteHook(o.Dir, "epilog", "#!/bin/sh\nsleep 800\n"); err != nil {
				t.Fatal(err)
			}
			c := Start(t, o)
			makeBusy(t, c)
			other := otherCgroup(t, c, track)
			for range 2 { // the second call has nothing to do
				if err := c.Down(); err != nil {
					t.Fatal(err)
				}
			}
			checkNothingLeft(t, o.Dir, track)
			if _, err := os.Stat(other); other != "" && err != nil {
				t.Errorf("another cluster's cgroup: %v", err)
			}
		})
	}
}

// otherCgroup makes what a second cluster of this host has beside the first one's cgroups.
func otherCgroup(t *testing.T, c *Cluster, track Track) string {
	t.Helper()
	if track != CgroupV2 {
		return ""
	}
	other := filepath.Join(c.cgroups.slice(), "other_slurmstepd.scope")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeCgroup(other); err != nil {
			t.Error(err)
		}
	})
	return other
}

// makeBusy leaves a job running on one node, an epilog hanging on the other and a mount.
func makeBusy(t *testing.T, c *Cluster) {
	t.Helper()
	user := users(t)[0]
	ended, err := c.Submit(user, "true", "--nodelist=n2")
	if err != nil {
		t.Fatal(err)
	}
	running, err := c.Submit(user, "sleep 900", "--nodelist=n1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(ended, patience, "COMPLETING"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(running, patience, "RUNNING"); err != nil {
		t.Fatal(err)
	}
	mountPoint := filepath.Join(c.Dir(), "home", "mounted")
	if err := os.Mkdir(mountPoint, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := mountTmpfs(mountPoint); err != nil {
		t.Fatal(err)
	}
}

// checkNothingLeft looks with other means than Down's: any process whose environment or open files name dir.
func checkNothingLeft(t *testing.T, dir string, track Track) {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, proc := range entries {
		if filepath.Base(proc) == strconv.Itoa(os.Getpid()) {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if strings.Contains(string(environ)+string(cmdline), dir) {
			t.Errorf("%s is left: %q", proc, cmdline)
		}
	}
	host, err := findCgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, cgroup := range host.folders(track, TwoNodes(dir)) {
		if _, err := os.Stat(cgroup); err == nil {
			t.Errorf("cgroup %s is left", cgroup)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("a mount below %s is left (error %v)", dir, err)
	}
}

// TestSweepDead kills a process that runs a cluster; the next run cleans up, also where the cluster lies in a folder of a
// site's.
func TestSweepDead(t *testing.T) {
	for _, in := range []string{"", "slurm"} {
		dir, kill := startElsewhere(t, in)
		if err := SweepDead(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(recordFile(filepath.Join(dir, in))); err != nil {
			t.Fatalf("a living process's cluster was swept: %v", err)
		}
		kill()
		if err := SweepDead(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("folder %s is left (%v)", dir, err)
		}
		checkNothingLeft(t, dir, CgroupV1)
	}
}

// A cluster's folder was removed while a step of it was running: the next cluster of these nodes ends that. It touches no
// other Slurm's.
func TestLostCgroups(t *testing.T) {
	tracks, err := Tracks()
	if err != nil {
		t.Fatal(err)
	}
	host, err := findCgroups()
	if err != nil {
		t.Fatal(err)
	}
	nodes := []Node{{Name: "lost"}}
	gone := TempDir(t)
	for _, track := range tracks {
		for _, who := range []struct {
			is, dir, env string
			lost         bool
		}{
			{"a hook", "/", "SLURM_CONF=" + gone + "/etc/slurm.conf", true},
			{"a step", gone, "A=1", true},
			{"another Slurm's", "/", "SLURM_CONF=/etc/slurm/slurm.conf", false},
		} {
			for _, dir := range host.folders(track, nodes) {
				cmd := exec.Command("sleep", "600")
				cmd.Dir, cmd.Env = who.dir, []string{who.env}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				within := filepath.Join(dir, "job_1", "step_extern")
				if err := os.MkdirAll(within, 0o755); err != nil {
					t.Fatal(err)
				}
				pid := strconv.Itoa(cmd.Process.Pid)
				if filepath.Base(filepath.Dir(dir)) == "cpuset" { // takes nobody in before it is given some
					_ = cmd.Process.Kill()
				} else if err := os.WriteFile(filepath.Join(within, "cgroup.procs"), []byte(pid), 0); err != nil {
					t.Fatal(err)
				} else if err := host.prepareCgroups(track, nodes); (err == nil) != who.lost {
					t.Errorf("%s, %s in %s: %v", track, who.is, dir, err)
				}
				if !who.lost && len(ended) > 0 {
					t.Errorf("%s: the process in %s was ended", who.is, dir)
				}
				_ = cmd.Process.Kill()
				<-ended
				if err := retryBusy(func() error { return removeCgroup(dir) }); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestUsers(t *testing.T) {
	names, err := Users(2)
	if err != nil || len(names) != 2 || names[0] == names[1] {
		t.Errorf("users %q, error %v", names, err)
	}
	if _, err := Users(1000); err == nil {
		t.Error("a thousand users were found")
	}
}
