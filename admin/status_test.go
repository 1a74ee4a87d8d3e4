package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/metrics"
)

// small mounts a file system on a folder of the test's, until it ends.
func small(t *testing.T, folder string, flags uintptr, options string) {
	t.Helper()
	must(t, os.MkdirAll(folder, 0o755))
	must(t, unix.Mount("none", folder, "tmpfs", flags, options))
	t.Cleanup(func() { must(t, unix.Unmount(folder, unix.MNT_DETACH)) })
}

func TestRooms(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(t *testing.T, c config.Config)
		want []string // what each trouble says
		code code.Code
	}{
		"well":        {func(*testing.T, config.Config) {}, nil, ""},
		"not made":    {func(t *testing.T, c config.Config) { must(t, os.Remove(c.Paths.Run)) }, nil, ""},
		"read-only":   {func(t *testing.T, c config.Config) { small(t, c.Paths.Run, unix.MS_RDONLY, "") }, []string{"run: its file system is read-only"}, code.StateWrite},
		"little room": {func(t *testing.T, c config.Config) { small(t, c.Paths.Var, 0, "size=32k") }, []string{"var: its file system is full: 32768 bytes are free"}, code.StateWrite},
		"no inodes":   {func(t *testing.T, c config.Config) { small(t, c.Paths.Log, 0, "nr_inodes=1") }, []string{"log: its file system has no inodes left"}, code.LogFailed},
		"drop is full": {func(t *testing.T, c config.Config) { small(t, c.Paths.Run+"/drop", 0, "size=8k") },
			[]string{"run/drop: its file system is full: 8192 bytes are free"}, code.StateWrite},
		"one for two": {func(t *testing.T, c config.Config) {
			small(t, c.Paths.Run, 0, "size=8k")
			must(t, os.Mkdir(c.Paths.Run+"/drop", 0o755))
		}, []string{"run: its file system is full: 8192 bytes are free"}, code.StateWrite},
		"no parent": {func(t *testing.T, c config.Config) {
			must(t, os.RemoveAll(filepath.Dir(filepath.Dir(c.Metrics.Textfile))))
		}, []string{"a/b: no such file or directory"}, code.StateWrite},
		"not a folder": {func(t *testing.T, c config.Config) { must(t, os.Remove(c.Paths.Log)); write(t, c.Paths.Log, "", 0o644) }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := home(t)
			c := config.Default()
			c.Paths.Run, c.Paths.Var, c.Paths.Log = dir+"/run", dir+"/var", dir+"/log"
			c.Metrics.Textfile = dir + "/a/b/bookend.prom"
			for _, folder := range []string{c.Paths.Run, c.Paths.Var, c.Paths.Log, filepath.Dir(c.Metrics.Textfile)} {
				must(t, os.MkdirAll(folder, 0o755))
			}
			tt.harm(t, c)
			got := rooms(c)
			if len(got) != len(tt.want) {
				t.Fatalf("%+v", got)
			}
			for i, want := range tt.want {
				if got[i].Code != tt.code || got[i].Text != dir+"/"+want {
					t.Errorf("got %+v, want %s %s", got[i], tt.code, want)
				}
			}
		})
	}
	c := config.Default()
	c.Metrics.Textfile, c.Log.File = "", false
	c.Paths.Log = "/nowhere/at/all"
	if got := rooms(c); strings.Contains(fmt.Sprint(got), c.Paths.Log) {
		t.Errorf("nothing is written there: %+v", got)
	}
}

// Where the records cannot be opened at all the rest is said, and why not.
func TestStatusWithoutRecords(t *testing.T) {
	dir, config := home(t)
	small(t, dir+"/run", unix.MS_RDONLY, "")
	must(t, os.MkdirAll(dir+"/var/history/n1", 0o700))
	at := time.Now()
	must(t, metrics.Record(metrics.Files{Var: dir + "/var"}, metrics.Run{
		Hook: metrics.Epilog, Job: 5, At: at, Findings: []metrics.Finding{{Code: code.StateWrite, Own: true, Detail: "open state: read-only"}},
	}))
	got := bookend(0, config, "status")
	for _, want := range []string{
		"node n1: mode observe\n  trouble: BKD-ST-WRITE, record could not be written\n    " + dir + "/run: its file system is read-only\n",
		"met by 1 hook since " + at.Format("2006-01-02 15:04:05") + ", last by the epilog of job 5 at ",
		"\n    do: Check space, mount and ownership", "\nlast hooks: epilog " + at.Format("2006-01-02 15:04:05") + "\n",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("lacks %q:\n%s", want, got.out)
		}
	}
	if got.exit != exitTrouble || !strings.Contains(got.err, "bookend: open state: ") {
		t.Errorf("exit %d: %s", got.exit, got.err)
	}
	if other := bookend(0, config, "status", "--node", "n2"); other.exit != exitNotFound || other.out != "" {
		t.Errorf("a node that is not here: %+v", other)
	}
	if user := bookend(1000, config, "status"); user.exit != exitDenied || user.out != "" {
		t.Errorf("a user: %+v", user)
	}
}

func TestStatusSaysThatTheCountsAreDamaged(t *testing.T) {
	n := newNode(t)
	must(t, os.MkdirAll(n.dir+"/var/metrics", 0o700))
	write(t, n.dir+"/var/metrics/counters.json", "{", 0o600)
	if got := bookend(0, n.config, "status"); got.exit != exitOK || !strings.Contains(got.out, "  trouble: what the hooks have counted cannot be read: ") {
		t.Errorf("%+v", got)
	}
}

// A job that uses a GPU although no hook has run for it: the hooks are not in slurm.conf, or were not.
func TestJobsThatNoHookSaw(t *testing.T) {
	n := newNode(t) // has a record of job 1
	process := func(pid int, cgroup string, opened ...string) {
		p := filepath.Join(n.dir, "proc", fmt.Sprint(pid))
		must(t, os.MkdirAll(p+"/fd", 0o755))
		write(t, p+"/stat", fmt.Sprintf("%d (train) S 1 2 3 0 -1 4194560 100 0 0 0 5 6 0 0 20 0 1 0 123456 1000 200 18446744073709551615 1 1 0\n", pid), 0o644)
		write(t, p+"/status", "Name:\ttrain\nUid:\t1000\t1000\t1000\t1000\n", 0o644)
		write(t, p+"/cgroup", cgroup+"\n", 0o644)
		write(t, p+"/environ", "", 0o644)
		write(t, p+"/maps", "", 0o644)
		for i, node := range opened {
			must(t, os.Symlink(node, fmt.Sprintf("%s/fd/%d", p, i)))
		}
	}
	const slurm = "0::/system.slice/slurmstepd.scope/job_%d/step_0/user/task_0"
	process(10, fmt.Sprintf(slurm, 1), "/dev/nvidia0", "/dev/nvidiactl")
	process(11, fmt.Sprintf(slurm, 98), "/dev/nvidiactl") // names no card
	process(12, fmt.Sprintf(slurm, 97), "/dev/null")
	process(13, "0::/user.slice", "/dev/nvidia0")
	if got := bookend(0, n.config, "status"); strings.Contains(got.out, "no hook has run") {
		t.Errorf("%s", got.out)
	}
	process(14, fmt.Sprintf(slurm, 99), "/dev/nvidia1")
	got := bookend(0, n.config, "status")
	for range 9 { // a machine that is busy beyond measure may not have the time to look
		if strings.Contains(got.out, "job 99") {
			break
		}
		got = bookend(0, n.config, "status")
	}
	if got.exit != exitOK || !strings.Contains(got.out, "  trouble: job 99 uses a GPU and no hook has run for it: ") {
		t.Errorf("%+v", got)
	}
}
