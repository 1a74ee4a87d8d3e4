package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"bookend/test/cluster"
	"bookend/test/site"
)

var fleet = []string{"n1", "n2", "n3"}

// What an admin pushes to all nodes at once may be wrong on all: jobs go on, and no node drains.
func TestNoMassDrain(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Nodes: fleet, Mode: "enforce"})
	s.tell("a configuration that is no configuration", badConfigEverywhere)
	s.tell("no backend", noBackendAnywhere)
}

// badConfigEverywhere: with it hooks fall back to the shipped paths, which are this machine's. So they get a view of their
// own, in which those are the site's.
func badConfigEverywhere(s *story) {
	s.hooksSeeOnly(map[string]string{"/run": "view-run", "/var/log": "view-log"})
	for _, node := range s.nodes {
		if err := os.WriteFile(s.on.ConfigFile(node), []byte("mode: [enforce\npolicy: drain everything\n"), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	job := s.runs(s.user, "echo working", "--nodes=3", oneGPU)

	s.goesOn(job)
	log, err := os.ReadFile(filepath.Join(s.on.Dir, "view-log/bookend/bookend.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, node := range s.nodes {
		s.inOrder("the log at the shipped place", string(log), "BKD-CONFIG", "node="+node)
	}
	for _, node := range s.nodes {
		s.adminConfigures(node, "enforce", "")
	}
	after := s.runs(s.user, "echo working", "--nodes=3", oneGPU)
	s.goesOn(after)
	s.logSays("n2", after, "bookend-epilog", "msg=clean")
}

func noBackendAnywhere(s *story) {
	if err := os.Rename(s.on.Program("bookend-gpu"), s.on.Program("bookend-gpu")+".away"); err != nil {
		s.t.Fatal(err)
	}
	first := s.runs(s.user, "echo working", "--nodes=3", oneGPU)
	second := s.runs(s.user, "echo working", "--nodes=3", oneGPU)

	s.goesOn(first, second)
	for _, node := range s.nodes {
		for _, program := range []string{"bookend-prolog", "bookend-epilog"} {
			s.logSays(node, second, program, "BKD-BK-MISSING", "exit=0")
		}
	}
}

// goesOn checks that jobs completed on every node, that none drained, and that no hook failed or was late.
func (s *story) goesOn(jobs ...cluster.JobID) {
	s.t.Helper()
	for _, job := range jobs {
		s.jobIs(job, "COMPLETED")
	}
	for _, node := range s.nodes {
		s.nodeIsUp(node)
		for _, h := range s.hookRuns(node) {
			if h.Failed() {
				s.t.Errorf("%s: %+v", node, h)
			}
		}
	}
	s.inTime("n1", prologDeadline, epilogDeadline, jobs...) // where the script ran, slurmd's log has all marks
}

// hooksSeeOnly gives the hooks folders of the site's in the place of the machine's.
func (s *story) hooksSeeOnly(instead map[string]string) {
	s.t.Helper()
	mounts := ""
	for place, name := range instead {
		folder := filepath.Join(s.on.Dir, name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			s.t.Fatal(err)
		}
		mounts += fmt.Sprintf("/bin/mount --bind %s %s && ", folder, place)
	}
	for name, program := range map[string]string{"prolog": "bookend-prolog", "epilog": "bookend-epilog"} {
		text := fmt.Sprintf("#!/bin/sh\nBOOKEND_CONFIG=%s/etc/bookend-$SLURMD_NODENAME.yaml exec /usr/bin/unshare --mount /bin/sh -c '%sexec %s'\n",
			s.on.Dir, mounts, s.on.Program(program))
		if _, err := cluster.WriteHook(filepath.Join(s.on.Dir, "slurm"), name, text); err != nil {
			s.t.Fatal(err)
		}
	}
}
