package sharedmem

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/leftover"
	"bookend/test/must"
)

const meminfo = "MemTotal: 1000 kB\nMemAvailable: 900 kB\nShmem: 10 kB\nSUnreclaim: 5 kB\nHugetlb: 0 kB\n"

// hostProc is a /proc with these files and no tmpfs.
func hostProc(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	put := func(name, text string) {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	put("meminfo", meminfo)
	put("self/mountinfo", "22 1 0:21 / /sys rw - sysfs sysfs rw\n")
	for name, text := range files {
		put(name, text)
	}
	return dir
}

func status(name, uid, memory string) string {
	return "Name:\t" + name + "\nUid:\t" + uid + "\t" + uid + "\t" + uid + "\t" + uid + "\n" + memory
}

// The node's memory is read with the signs of jobs: a step's daemon of root's, and Slurm's cgroups. No user's process
// passes for one.
func TestReadHost(t *testing.T) {
	const none = "0::/system.slice/sshd.service\n"
	for name, tt := range map[string]struct {
		files   map[string]string
		daemon  int
		cgroups []string
	}{
		"no process": {nil, 0, nil},
		"a step": {map[string]string{"7/status": status(daemon, "0", ""), "7/cgroup": none, "7/cmdline": "slurmstepd: [42.batch]"},
			7, nil},
		"Slurm's scope": {map[string]string{"7/status": status(daemon, "0", ""), "7/cmdline": "/usr/sbin/slurmstepd\x00infinity\x00",
			"7/cgroup": "0::/system.slice/slurmstepd.scope/system\n"}, 0, []string{"0::/system.slice/slurmstepd.scope/system\n"}},
		"a step in Debian": {map[string]string{"7/status": status("slurmstepd-wlm", "0", ""), "7/cgroup": none, "7/cmdline": "slurmstepd: [42.0]"},
			7, nil},
		"a daemon of a user's": {map[string]string{"7/status": status(daemon, "1000", ""), "7/cgroup": none}, 0, nil},
		"a job on cgroup v1": {map[string]string{"7/status": status("sh", "1000", ""), "7/cgroup": "5:memory:/slurm/uid_1000/job_42\n" +
			"1:name=systemd:/user.slice/x\n"}, 0, []string{"5:memory:/slurm/uid_1000/job_42\n"}},
		"a name in a user's own slice": {map[string]string{"7/status": status("sh", "1000", ""),
			"7/cgroup": "0::/user.slice/user-1000.slice/slurmstepd.scope/job_42\n"}, 0, nil},
		"one that has just ended": {map[string]string{"7/status": status(daemon, "0", "")}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := must.Have(HostRequest{Place: Place{Dir: "/none", Proc: hostProc(t, tt.files)}}.read())(t)
			must.Be(t, "the daemon", got.Daemon, tt.daemon)
			must.Not(t, !slices.Equal(got.Cgroups, tt.cgroups), "%q", got.Cgroups)
			must.Be(t, "available", got.Available, 900<<10)
		})
	}
}

func TestReadProcesses(t *testing.T) {
	files := map[string]string{"version": "Linux"}
	for pid, text := range map[string]string{"1": status("init", "0", "VmRSS: 3 kB\nRssAnon: 1 kB\n"), "2": status("kthreadd", "0", ""),
		"3": status("a", "1000", "VmRSS: 9 kB\nRssAnon: 7 kB\n"), "4": status("b", "1000", "RssAnon: 8 kB\n"), "5": status("c", "1001", "RssAnon: 6 kB\n")} {
		files[pid+"/status"], files[pid+"/cgroup"] = text, "0::/\n"
	}
	got := must.Have(HostRequest{Place: Place{Dir: "/none", Proc: hostProc(t, files)}}.read())(t)
	must.Be(t, "of users", got.In[leftover.Users], 21<<10)
	must.Be(t, "of services", got.In[leftover.System], 3<<10)
	var named []string
	for _, p := range got.Processes {
		named = append(named, p.Name)
	}
	must.Be(t, "the largest", strings.Join(named, " "), "b a init kthreadd")
}

// Every file in /dev/shm counts for its owner, and what an earlier job left is found by number. Without a kernel's file
// nothing is known.
func TestReadSharedHost(t *testing.T) {
	dir := shm(t)
	for name, uid := range map[string]int{"a1": 1000, "a2": 1000, "b": 1001} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 8192), 0o600))
		must.Do(t, os.Chown(filepath.Join(dir, name), uid, uid))
	}
	files := listed(t, dir, 1001).Files
	there := leftover.Remains{Files: files}
	earlier := map[string]string{"12": there.Text(nil, "") + there.Command(1001, "/dev/shm", time.Now()), "13": "this job left nothing"}
	r := HostRequest{Place: Place{Dir: dir, Proc: "/proc"}, Earlier: earlier, After: time.Millisecond}
	got := must.Have(r.read())(t)
	must.Not(t, !slices.Equal(got.Files, []leftover.OwnedFiles{{UID: 1000, Files: 2, Bytes: 16384, Pattern: " a*"}, {UID: 1001, Files: 1, Bytes: 8192, Pattern: " b"}}),
		"%+v", got.Files)
	must.Not(t, !slices.Equal(got.Earlier, []string{"12"}), "%q", got.Earlier)
	must.Not(t, len(got.Mounts) == 0 || got.Total == 0 || got.In[leftover.System] == 0, "%+v", got)
	must.Do(t, os.Remove(filepath.Join(dir, "b")))
	must.Not(t, len(must.Have(r.read())(t).Earlier) > 0, "a file that was removed")
	for _, place := range []Place{{Dir: dir, Proc: dir}, {Dir: "/etc", Proc: "/proc"}} {
		if got, err := (HostRequest{Place: place}).read(); err == nil {
			t.Errorf("%+v: %+v", place, got)
		}
	}
}

// A tmpfs is asked what it has, but not a file system without an answer that was mounted over it.
func TestCoveredMount(t *testing.T) {
	at := t.TempDir()
	must.Do(t, unix.Mount("none", at, "tmpfs", 0, ""))
	t.Cleanup(func() { must.Do(t, unix.Unmount(at, 0)) })
	var st unix.Stat_t
	must.Do(t, unix.Stat(at, &st))
	must.Do(t, os.WriteFile(filepath.Join(at, "file"), make([]byte, 1<<20), 0o600))
	line := fmt.Sprintf("22 1 %d:%d / %s rw - tmpfs none rw\n", unix.Major(st.Dev), unix.Minor(st.Dev), at)
	place := Place{Proc: hostProc(t, map[string]string{"self/mountinfo": line + line})}
	var open, covered leftover.HostUse
	must.Do(t, place.readMounts(&open, 0))
	must.Be(t, "what it has", open.Mounts, []leftover.Mount{{Path: at, Bytes: 1 << 20}})
	dead, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer dead.Close()
	must.Do(t, unix.Mount("none", at, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dead.Fd())))
	defer func() { must.Do(t, unix.Unmount(at, unix.MNT_DETACH)) }()
	must.Do(t, place.readMounts(&covered, 0))
	must.Be(t, "what is covered", len(covered.Mounts), 0)
}
