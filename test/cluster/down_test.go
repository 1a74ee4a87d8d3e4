package cluster

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/must"
)

// upOnly in the environment makes this test program start a cluster, say where, and wait for its end.
const upOnly = "BOOKEND_TEST_UP_ONLY=1"

func TestMain(m *testing.M) {
	if os.Getenv("BOOKEND_TEST_UP_ONLY") == "" {
		os.Exit(m.Run())
	}
	dir, err := Scratch()
	if err == nil {
		_, err = Up(Options{Dir: filepath.Join(dir, os.Getenv("BOOKEND_TEST_UP_IN")), Nodes: oneNode})
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startElsewhere runs a cluster in a process of its own, in its scratch folder or in a folder of that; kill kills that
// process, not the cluster.
func startElsewhere(t *testing.T, in string) (dir string, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), upOnly, "BOOKEND_TEST_UP_IN="+in)
	if _, err := cmd.StdinPipe(); err != nil { // held open until the process is killed
		t.Fatal(err)
	}
	out := must.Have(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if dir = strings.TrimSpace(line); err != nil || !strings.HasPrefix(dir, base) {
		t.Fatalf("the other process said %q: %v", line, err)
	}
	return dir, kill
}

// TestDownLeavesNothing takes clusters down with a job running, an epilog hanging and a folder mounted.
func TestDownLeavesNothing(t *testing.T) {
	tracks := Tracks()
	for _, track := range tracks {
		t.Run(string(track), func(t *testing.T) {
			dir := TempDir(t)
			epilog := must.Have(WriteHook(dir, "epilog", "#!/bin/sh\nsleep 800\n"))(t)
			o := Options{Dir: dir, Track: track, Nodes: []Node{{Name: "n1"}, {Name: "n2"}}, Conf: []string{"Epilog=" + epilog}}
			c := Start(t, o)
			makeBusy(t, c)
			other := otherCgroup(t, c, track)
			for range 2 { // the second call has nothing to do
				must.Do(t, c.Down())
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
	must.Do(t, os.MkdirAll(other, 0o755))
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
	user := Users(1)[0]
	ended := must.Have(c.Submit(user, "true", "--nodelist=n2"))(t)
	running := must.Have(c.Submit(user, "sleep 900", "--nodelist=n1"))(t)
	must.Have(c.Wait(ended, patience, "COMPLETING"))(t)
	must.Have(c.Wait(running, patience, "RUNNING"))(t)
	mountPoint := filepath.Join(c.Dir(), "home", "mounted")
	must.Do(t, os.Mkdir(mountPoint, 0o755))
	must.Do(t, unix.Mount("tmpfs", mountPoint, "tmpfs", 0, "size=64k"))
}

// checkNothingLeft looks with other means than Down's: any process whose environment or open files name dir.
func checkNothingLeft(t *testing.T, dir string, track Track) {
	t.Helper()
	entries := must.Have(filepath.Glob("/proc/[0-9]*"))(t)
	for _, proc := range entries {
		if filepath.Base(proc) == strconv.Itoa(os.Getpid()) {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		must.Not(t, strings.Contains(string(environ)+string(cmdline), dir), "%s is left: %q", proc, cmdline)
	}
	for _, cgroup := range findCgroups().folders(track, []Node{{Name: "n1"}, {Name: "n2"}}) {
		if _, err := os.Stat(cgroup); err == nil {
			t.Errorf("cgroup %s is left", cgroup)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must.Not(t, err != nil || strings.Contains(string(mounts), dir), "a mount below %s is left (error %v)", dir, err)
}

// TestSweepDead kills a process that runs a cluster; the next run cleans up, also where the cluster lies in a folder
// of a site's.
func TestSweepDead(t *testing.T) {
	for _, in := range []string{"", "slurm"} {
		dir, kill := startElsewhere(t, in)
		must.Do(t, SweepDead())
		if _, err := os.Stat(recordFile(filepath.Join(dir, in))); err != nil {
			t.Fatalf("a living process's cluster was swept: %v", err)
		}
		kill()
		must.Do(t, SweepDead())
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("directory %s is left (%v)", dir, err)
		}
		checkNothingLeft(t, dir, CgroupV1)
	}
}
