package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/cluster"
	"bookend/test/site"
)

// The shipped deadlines of the root hooks.
const (
	prologDeadline = 5 * time.Second
	epilogDeadline = 15 * time.Second
)

// slack is what a busy machine may add to a hook's time. A hook that hangs takes longer; how long others take is
// measured by test/bench.
const slack = time.Minute

// inTime checks how long slurmd waited for each of these jobs' hooks, by the marks of its own log.
func (s *story) inTime(node string, prolog, epilog time.Duration, jobs ...cluster.JobID) {
	s.t.Helper()
	all, err := s.on.HookTimes(node)
	if err != nil {
		s.t.Fatal(err)
	}
	took := map[string]time.Duration{}
	for _, h := range all {
		took[h.Hook+" "+string(h.Job)] = h.Took
	}
	for _, job := range jobs {
		for hook, limit := range map[string]time.Duration{"prolog": prolog, "epilog": epilog} {
			t, known := took[hook+" "+string(job)]
			if !known || t > limit+slack {
				s.t.Errorf("slurmd on %s waited %v for the %s of job %s (known: %v), want at most %v", node, t, hook, job, known, limit)
			}
		}
	}
}

// hooksSaid checks the hooks that ran since the story began as hooksRan does, but lets them speak; it returns what they said.
func (s *story) hooksSaid(node string, want ...string) (said string) {
	s.t.Helper()
	var have []string
	for _, h := range s.hookRuns(node)[s.hooks[node]:] {
		have = append(have, fmt.Sprintf("%s %d", h.Hook, h.Exit))
		said += h.Output
		if h.Signal != 0 {
			s.t.Errorf("%s on %s: signal %d", h.Hook, node, h.Signal)
		}
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		s.t.Errorf("hooks of %s: %q, want %q", node, have, want)
	}
	return said
}

// records are what a node keeps of its jobs, in memory and on disk.
func (s *story) records(node string) map[slurm.JobID]ledger.Run {
	s.t.Helper()
	runs, damaged := s.allRuns(node)
	if len(damaged) > 0 {
		s.t.Errorf("damaged: %v", damaged)
	}
	records := map[slurm.JobID]ledger.Run{}
	for _, r := range runs {
		records[r.Job.ID] = r
	}
	return records
}

// allRuns are those records, of every run of a job: on disk first, then in memory.
func (s *story) allRuns(node string) ([]ledger.Run, []state.Damage) {
	s.t.Helper()
	store, err := state.Open(s.on.Run(), node)
	if err != nil {
		s.t.Fatal(err)
	}
	runs, damaged := store.Runs()
	history, lost := state.History(s.on.Var(node), node)
	return append(history, runs...), append(lost, damaged...)
}

// onSmallDisks is a site whose named folders are file systems of their own, of a megabyte each.
func onSmallDisks(t *testing.T, o site.Options, folders ...string) site.Options {
	t.Helper()
	o.Dir = cluster.TempDir(t)
	for _, name := range folders {
		path := filepath.Join(o.Dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("none", path, "tmpfs", 0, "size=1m,mode=0755"); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// filler is the file that fills a disk.
const filler = "filler"

// fills leaves no room on the disk of a folder of the site's.
func (s *story) fills(folder string) {
	s.t.Helper()
	f, err := os.Create(filepath.Join(s.on.Dir, folder, filler))
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
}

func (s *story) empties(folder string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.on.Dir, folder, filler)); err != nil {
		s.t.Fatal(err)
	}
}

// silence mounts a file system that never answers on a folder of the site's, before anything of the site runs. The story
// must end it before anybody looks through the site's folder.
func silence(t *testing.T, dir string) (folder string, end func()) {
	t.Helper()
	folder = filepath.Join(dir, "silent")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", fuse.Fd())
	if err := unix.Mount("none", folder, "fuse", 0, options); err != nil {
		t.Fatal(err)
	}
	return folder, sync.OnceFunc(func() {
		fuse.Close() // who still waits for an answer gets an error
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// stuckBackends are the processes of the site's backend in state D.
func (s *story) stuckBackends() (pids []string) {
	for _, p := range s.hookProcesses() {
		pid, _, _ := strings.Cut(p, ":")
		text, _ := os.ReadFile(filepath.Join(pid, "stat"))
		if strings.Contains(p, "bookend-gpu") && strings.Contains(string(text), ") D ") {
			pids = append(pids, pid)
		}
	}
	return pids
}
