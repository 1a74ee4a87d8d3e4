package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/cluster"
	"bookend/test/site"
)

// storm is a job that makes processes as long as it can and lets them end again, until there is a file "calm".
const storm = `exec perl -e '
$| = 1; $SIG{CHLD} = "IGNORE"; print "ready pid=$$\n";
until (-e "calm") {
	for (1 .. rand 16) { if (defined($p = fork) && !$p) { select undef, undef, undef, rand 0.03; exec "/bin/true" } }
	select undef, undef, undef, rand 0.02;
}'`

// What hooks write when there is no task number left for them: dash, busybox and bash in their words, Go in its own.
var couldNotLive = []string{"an't fork", "annot fork", "fork: Resource", "failed to create new OS thread"}

// Where a user's job takes the numbers for processes and threads, hooks cannot start, or end anywhere on their way.
// No node drains for that. slurmd itself is left alone: without a process for a hook, it drains by itself.
func TestNoTaskNumbers(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{})
	s.mayDie = true
	room := s.hooksShare(t)
	s.tell("no process can be made", func(s *story) { s.neverLives(room, 1) })
	s.tell("no thread can be made", func(s *story) { s.neverLives(room, 2) })
	s.tell("some can, most of the time", func(s *story) { s.livesThrough(room, jobsInStorm(t)) })
}

// jobsInStorm is how many jobs there are in a storm; BOOKEND_E2E_STORM says another number than the default.
func jobsInStorm(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("BOOKEND_E2E_STORM"))
	if err != nil && os.Getenv("BOOKEND_E2E_STORM") != "" {
		t.Fatal(err)
	}
	return max(n, 20)
}

// hooksShare puts the prologs and epilogs into a cgroup of their own, in which tasks can be limited.
func (s *story) hooksShare(t *testing.T) (cgroup string) {
	t.Helper()
	cgroup, err := taskCgroup("bookend-" + filepath.Base(s.on.Dir))
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(cgroup); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	for _, name := range []string{"prolog", "epilog"} {
		shipped := cluster.HookFile(s.on.Cluster.Dir(), name)
		if err := os.Rename(shipped, shipped+"-shipped"); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs || exit 99\nexec %s-shipped\n", cgroup, shipped)
		if _, err := cluster.WriteHook(s.on.Cluster.Dir(), name, text); err != nil {
			t.Fatal(err)
		}
	}
	return cgroup
}

// taskCgroup makes a cgroup in which tasks can be limited.
func taskCgroup(name string) (dir string, err error) {
	for _, mount := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir = filepath.Join(mount, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		if unix.Access(filepath.Join(dir, "pids.max"), unix.W_OK) == nil {
			return dir, nil
		}
		_ = os.Remove(dir)
	}
	return "", fmt.Errorf("limit tasks: no pids controller below /sys/fs/cgroup: %w", errors.ErrUnsupported)
}

func (s *story) limits(cgroup, tasks string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(cgroup, "pids.max"), []byte(tasks), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// neverLives has both hooks of two jobs, with GPUs and without, run where so few tasks may be that none can do its
// work.
func (s *story) neverLives(cgroup string, tasks int) {
	s.limits(cgroup, strconv.Itoa(tasks))
	for _, gpus := range []string{oneGPU, "--gres=none"} {
		s.jobIs(s.runs(s.user, "echo done", gpus), "COMPLETED")
	}
	s.limits(cgroup, "max")

	if ran, dead := s.noneDrains(); ran != 4 || dead != 4 {
		s.t.Errorf("%d hooks of %d could not live, want 4 of 4", dead, ran)
	}
}

// livesThrough has the hooks of many jobs compete with a user's job for the numbers.
func (s *story) livesThrough(cgroup string, jobs int) {
	stormy := s.starts(s.stranger, storm, "--gres=none")
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(s.pid(stormy))),
		0o644); err != nil {
		s.t.Fatal(err)
	}
	s.limits(cgroup, "12")
	for i := range jobs {
		gpus := []string{oneGPU, "--gres=none"}[i%2]
		s.jobIs(s.runs(s.user, "echo done", gpus), "COMPLETED")
	}
	s.limits(cgroup, "max")
	s.touches(s.stranger, "calm")
	s.ends(stormy)

	ran, dead := s.noneDrains()
	s.t.Logf("%d hooks of %d could not live", dead, ran)
}

// noneDrains checks that all hooks of the story exited 0, and counts those that said why they could not go on.
func (s *story) noneDrains() (ran, dead int) {
	s.t.Helper()
	s.nodeIsUp("n1")
	for _, r := range s.hookRuns("n1")[s.hooks["n1"]:] {
		ran++
		if r.Failed() {
			s.t.Errorf("a hook failed: %+v", r)
		}
		if slices.ContainsFunc(couldNotLive, func(why string) bool { return strings.Contains(r.Output, why) }) {
			dead++
		}
	}
	return ran, dead
}
