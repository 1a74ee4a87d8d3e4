package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/doctor"
	"bookend/internal/wire"
	"bookend/test/cluster"
	"bookend/test/site"
)

// speaking builds the programs as a release does whose hooks and backend speak another version of their protocol.
func speaking(t *testing.T, version int) (dir string) {
	t.Helper()
	dir = cluster.TempDir(t)
	file, err := filepath.Abs("../../internal/wire/wire.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	was, is := fmt.Sprintf("\nconst Version = %d\n", wire.Version), fmt.Sprintf("\nconst Version = %d\n", version)
	if !strings.Contains(string(text), was) {
		t.Fatalf("%s has no %q", file, was)
	}
	changed := filepath.Join(dir, "wire.go.txt")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), was, is, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := build(dir, "-overlay", filepath.Join(dir, "overlay.json")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// installs puts programs in the place of the site's, each in one step, as packages do.
func (s *story) installs(from string, names ...string) {
	s.t.Helper()
	syscall.ForkLock.RLock() // a child of another test would have it open for writing, and nobody could run it
	defer syscall.ForkLock.RUnlock()
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			s.t.Fatal(err)
		}
		path := s.on.Program(name)
		if err := os.WriteFile(path+".new", data, 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Of an upgrade that is half done, or was cut short, hooks and backend may speak different protocols: no node drains, not for
// what a job leaves either, jobs run, and everybody is told.
func TestUpgradeHalfDone(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	later := speaking(t, wire.Version+1)
	all := []string{"bookend-prolog", "bookend-epilog", "bookend-healthcheck", "bookend"}
	for title, names := range map[string][]string{"a new backend": {"bookend-gpu"}, "new hooks": all} {
		s.tell(title, func(s *story) {
			s.installs(later, names...)
			defer s.installs(programs, names...)
			job := s.runs(s.user, leavesOrphan, oneGPU)

			s.isTold(job)
			s.logSays("n1", job, "bookend-prolog", "BKD-BK-VERSION")
			if r := s.doctorSays("n1")["backend-answer"]; r.Level != doctor.Wrong || !strings.Contains(r.Seen, "BKD-BK-VERSION") {
				s.t.Errorf("the doctor says %+v", r)
			}
		})
		s.tell(title+" between a job's ends", func(s *story) {
			job := s.starts(s.user, "echo ready; while [ ! -e go ]; do sleep 0.1; done", oneGPU)
			s.installs(later, names...)
			defer s.installs(programs, names...)
			s.touches(s.user, "go")
			s.ends(job)

			s.isTold(job)
		})
	}
}

// isTold: the job has ended well, its node is up, and its end is known to be unknown.
func (s *story) isTold(job cluster.JobID) {
	s.t.Helper()
	s.jobIs(job, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.logSays("n1", job, "bookend-epilog", "BKD-BK-VERSION")
	s.showSays("n1", job, "BKD-BK-VERSION")
}
