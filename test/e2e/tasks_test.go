package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// What hooks write when there is no task number left for them: dash, busybox and bash in their words, Go in its own.
var couldNotLive = []string{"an't fork", "annot fork", "fork: Resource", "failed to create new OS thread"}

// Where a user's job takes the numbers for processes and threads, hooks cannot start. No node drains for that. slurmd
// itself is left alone: without a process for a hook, it drains by itself. A hook that ends anywhere on its way is
// test/crash's.
func TestNoTaskNumbers(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{})
	room := s.hooksShare()
	s.tell("no process can be made", func(s *story) { s.neverLives(room, "1") })
	s.tell("no thread can be made", func(s *story) { s.neverLives(room, "2") })
}

// hooksShare puts the prologs and epilogs into a cgroup of their own, in which tasks can be limited.
func (s *story) hooksShare() (cgroup string) {
	s.t.Helper()
	cgroup = s.taskCgroup("bookend-" + filepath.Base(s.on.Dir))
	s.t.Cleanup(func() {
		if err := os.Remove(cgroup); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.t.Error(err)
		}
	})
	for _, name := range []string{"prolog", "epilog"} {
		shipped := cluster.HookFile(s.on.Cluster.Dir(), name)
		must.Do(s.t, os.Rename(shipped, shipped+"-shipped"))
		text := fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs || exit 99\nexec %s-shipped\n", cgroup, shipped)
		must.Have(cluster.WriteHook(s.on.Cluster.Dir(), name, text))(s.t)
	}
	return cgroup
}

// taskCgroup makes a cgroup in which tasks can be limited.
func (s *story) taskCgroup(name string) (dir string) {
	for _, mount := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir = filepath.Join(mount, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		if unix.Access(filepath.Join(dir, "pids.max"), unix.W_OK) == nil {
			return dir
		}
		_ = os.Remove(dir)
	}
	s.t.Skip("limit tasks: no pids controller below /sys/fs/cgroup")
	return ""
}

// neverLives has both hooks of two jobs, with GPUs and without, run where so few tasks may be that none can do its
// work. All exit 0 and say why they could not go on.
func (s *story) neverLives(cgroup, tasks string) {
	limit := filepath.Join(cgroup, "pids.max")
	must.Do(s.t, os.WriteFile(limit, []byte(tasks), 0o644))
	for _, gpus := range []string{oneGPU, noGPU} {
		s.jobIs(s.runs(s.user, "echo done", gpus), "COMPLETED")
	}
	must.Do(s.t, os.WriteFile(limit, []byte("max"), 0o644))

	s.nodeIsUp("n1")
	ran := s.hookRuns("n1")[s.hooks["n1"]:]
	for _, r := range ran {
		said := slices.ContainsFunc(couldNotLive, func(why string) bool { return strings.Contains(r.Output, why) })
		if r.Failed() || !said {
			s.t.Errorf("a hook that could not live: %+v", r)
		}
	}
	if len(ran) != 4 {
		s.t.Errorf("%d hooks ran, want 4", len(ran))
	}
}
