package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// resuming lets the health check put nodes back to work.
const resuming = "drain: {reason_by: healthcheck, resume: {enabled: true, after: 2}}\n"

func (s *story) ofOrphan(job cluster.JobID) string { return s.ofOrphanOn(0, job) }

func (s *story) ofOrphanOn(gpu int, job cluster.JobID) string {
	return fmt.Sprintf("BKD-ORPHAN gpu=%d 2518MiB pid=%d job=%s epilog; see: bookend show %s", gpu, s.pid(job), job,
		job)
}

// checks runs the health check of a node as slurmd does: told nothing but the node.
func (s *story) checks(node string) {
	cmd := must.Have(s.on.Command("", s.on.Program("bookend-healthcheck")))(s.t)
	cmd.Env = []string{"SLURMD_NODENAME=" + node, "BOOKEND_CONFIG=" + s.on.ConfigFile(node)}
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		s.t.Errorf("health check: %v\n%s", err, out)
	}
}

// checkSays waits until one line of the health checks' log since the story began has these pieces: a check that slurmd
// runs logs last of all.
func (s *story) checkSays(want ...string) {
	lacks := func(line string) bool {
		return slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(line, w) })
	}
	s.until(fmt.Sprintf("a health check's line has %q", want), func() bool {
		return slices.ContainsFunc(s.logLines()[s.logged:], func(line string) bool {
			return strings.Contains(line, "program=bookend-healthcheck") && !lacks(line)
		})
	})
}

// checksUntil runs health checks until "bookend status" says this of the drain: one that comes before a card is quite
// at rest counts for nothing.
func (s *story) checksUntil(want string) {
	s.until("status says "+want, func() bool {
		s.checks("n1")
		out, err := s.on.Bookend("n1", "status", "--node", "n1")
		return err == nil && strings.Contains(out, want)
	})
}

// comesBack waits until a node that was resumed is up. Slurm 24.11, without accounting, shows the old reason until a
// job begins.
func (s *story) comesBack(node string) {
	s.untilNode(node, "is back", func(n cluster.NodeState) bool { return n.Has("IDLE") && !n.Has("DRAIN") && !n.Has("NOT_RESPONDING") })
}

func (s *story) untilNode(node, what string, is func(cluster.NodeState) bool) {
	s.until("node "+node+" "+what, func() bool {
		n, err := s.on.Node(node)
		return err == nil && is(n)
	})
}

// adminResumesAtWork resumes a node that need not become idle.
func (s *story) adminResumesAtWork(node string) {
	s.adminUpdates(node, "State=RESUME")
	s.untilNode(node, "is not drained", func(n cluster.NodeState) bool { return !n.Has("DRAIN") })
}

func (s *story) adminUpdates(node string, settings ...string) {
	must.Do(s.t, s.on.Scontrol(append([]string{"update", "NodeName=" + node}, settings...)...))
}

// Slurm itself runs the health check: it gives the reason, and resumes the node once it is clean.
func TestSlurmRunsTheHealthCheck(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Config: resuming, Conf: []string{"HealthCheckInterval=2",
		"HealthCheckNodeState=ANY,CYCLE"}})
	job := s.runs(s.user, leavesOrphan, oneGPU)
	reason := s.ofOrphan(job)
	s.untilNode("n1", "has our reason", func(n cluster.NodeState) bool { return n.Has("DRAIN") && n.Reason == reason })
	s.hooksRan("n1", "prolog 0", "epilog 10")
	s.checkSays("drain: reason written: "+reason, `in the place of`)

	s.adminKills(s.pid(job), "n1")
	s.comesBack("n1")
	s.checkSays("level=warning", "drain: resumed: clean 2 of 2 times in a row after "+reason)
	s.runs(s.user, "echo working", oneGPU)
	s.nodeIsUp("n1")
}

// A node that goes DOWN right before Bookend ends its drain stays DOWN, with the reason of that.
func TestResumeLeavesANodeDown(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce", Conf: []string{"ReturnToService=1"}}) // with 2 any node comes back
	scontrol := filepath.Join(s.home(""), "scontrol")
	must.Do(t, os.WriteFile(scontrol, []byte("#!/bin/sh\ncase $* in *'update NodeName=n1 State='*)\n"+
		"scontrol update NodeName=n1 State=DOWN Reason=power;; esac\nexec scontrol \"$@\"\n"), 0o755))
	job := s.runs(s.user, leavesOrphan, oneGPU)
	s.nodeIsDrained("n1", s.ofOrphan(job))
	s.adminConfigures("n1", "enforce", "drain: {resume: {enabled: true, after: 1}}\nslurm: {scontrol: "+scontrol+"}\n")
	s.adminKills(s.pid(job), "n1")
	s.checksUntil("resumed")
	n, err := s.on.Node("n1")
	must.Do(t, err)
	must.Not(t, !n.Has("DOWN") || n.Has("DRAIN") || n.Reason != "power", "the node is %v, %q", n.Flags, n.Reason)
	s.adminResumes("n1")
}

// While a job goes on the node is drained, resumed, and drained for that job's own end: Slurm 24.11, without
// accounting, then shows the first drain's text for the second. A health check leaves that; a hook comes before Slurm.
func TestReasonOfASecondDrain(t *testing.T) {
	t.Parallel()
	for by, tell := range map[string]func(s *story){
		"an admin before any reason was written": func(s *story) {
			s.drainedTwice(true, s.keepsReasons(), func() { s.adminResumesAtWork("n1"); s.checks("n1") })
		},
		"the health check": func(s *story) {
			s.drainedTwice(false, s.keepsReasons(), func() { s.checksUntil("resumed") })
		},
		"an admin, where the hooks give the reason": func(s *story) {
			s.adminConfigures("n1", "enforce", "drain: {resume: {enabled: true, after: 2}}\n")
			s.drainedTwice(false, false, func() { s.adminResumesAtWork("n1") })
		},
	} {
		t.Run("resumed by "+by, func(t *testing.T) {
			t.Parallel()
			tell(given(t, site.Options{Mode: "enforce", Config: resuming}))
		})
	}
}

// drainedTwice drains the node a second time, for the end of a job that began before the first drain, of which nobody
// has given a reason, or Bookend has. What Slurm kept of it stays.
func (s *story) drainedTwice(unsaid, kept bool, resumes func()) {
	long := s.starts(s.stranger, leavesOrphan+"\n"+awaits, oneGPU)
	short := s.runs(s.user, leavesOrphan, oneGPU)
	first := "Epilog error"
	if !unsaid {
		s.checks("n1")
		first = s.ofOrphanOn(1, short)
	}
	s.nodeIsDrained("n1", first)
	must.Do(s.t, syscall.Kill(s.pid(short), syscall.SIGKILL))
	s.until("the short job's GPU is free", func() bool {
		held, err := s.on.World("n1").Holdings()
		return err == nil && len(held) == 1
	})
	resumes()
	s.touches(s.stranger, "done")
	s.ends(long)
	s.checks("n1")
	n, err := s.on.Node("n1")
	if must.Do(s.t, err); kept && (!unsaid || n.Reason != s.ofOrphan(long)) {
		if n.Reason != first { // of an unsaid drain of seconds ago Slurm may have kept the time: its job is named then
			first = s.ofOrphanOn(1, short)
		}
		s.nodeIsDrained("n1", first)
		return
	}
	s.nodeIsDrained("n1", s.ofOrphan(long))
}

// A hook that is to give the reason itself does not give it over an admin's.
func TestReasonByTheHook(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{Mode: "enforce"})
	job := s.starts(s.user, leavesOrphan+"\n"+awaits, oneGPU)
	s.adminUpdates("n1", "State=DRAIN", "Reason=disk swap")
	s.touches(s.user, "done")
	s.ends(job)
	s.nodeIsDrained("n1", "disk swap")
	s.hooksRan("n1", "prolog 0", "epilog 10")
}
