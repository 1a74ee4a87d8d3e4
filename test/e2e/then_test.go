package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"bookend/internal/slurm"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/rig"
)

func (s *story) jobIs(id cluster.JobID, state string) {
	j := must.Have(s.on.Job(id))(s.t)
	must.Not(s.t, j.State != state,
		"job %s is %s (exit code %s, reason %s), want %s", id, j.State, j.ExitCode, j.Reason, state)
}

func (s *story) nodeIsUp(node string) {
	n := must.Have(s.on.Node(node))(s.t)
	must.Not(s.t, n.Has("DRAIN") || n.Has("DOWN") || n.Reason != "" && !s.keepsReasons(),
		"node %s is %v for %q, want it up", node, n.Flags, n.Reason)
}

// keepsReasons reports a Slurm that keeps the reason of a drain that is over, where it has no accounting: 23.11 to
// 25.11.
func (s *story) keepsReasons() bool {
	v := version(s.t.T)
	return v.Has(slurm.Version{23, 11}) && !v.Has(slurm.Version{26, 5})
}

// nodeIsDrained checks that a node takes no jobs, and what Slurm says why.
func (s *story) nodeIsDrained(node, reason string) {
	n := must.Have(s.on.Node(node))(s.t)
	must.Not(s.t, !n.Has("DRAIN") || n.Reason != reason,
		"node %s is %v for %q, want it drained for %q", node, n.Flags, n.Reason, reason)
}

// hooksRan checks which root hooks slurmd ran since the story began, and their exit codes: "prolog 0".
func (s *story) hooksRan(node string, want ...string) {
	var have []string
	for _, h := range s.hookRuns(node)[s.hooks[node]:] {
		have = append(have, fmt.Sprintf("%s %d", h.Hook, h.Exit))
		must.Not(s.t, h.Signal != 0 || h.Output != "",
			"%s on %s: signal %d, output %q", h.Hook, node, h.Signal, h.Output)
	}
	must.Not(s.t, !slices.Equal(have, want), "hooks of %s: %q, want %q", node, have, want)
}

func (s *story) hookRuns(node string) []cluster.HookRun {
	return must.Have(s.on.HookRuns(node))(s.t)
}

// outputOf is a job's output as its user reads it, less what an earlier job's end tested of a clean card, and what only
// a job that was there long enough for the recorder is told of its peak.
func (s *story) outputOf(id cluster.JobID) string {
	text := must.Have(s.on.Output(id))(s.t)
	return peak.ReplaceAllString(tested.ReplaceAllString(text, ""), "${1}139.8 of 139.8 GiB free")
}

var (
	tested = regexp.MustCompile(`, \d+ in one block`)
	peak   = regexp.MustCompile(`(GPU \d+ clean: )peak [0-9.]+ of 139.8 GiB, (one process|\d+ processes)[^\n]*`)
)

// surely is a text without its doubts about whose something is, where Slurm tracks by cgroups: what leaves its job's may
// have been seen there by the recorder, or not.
func (s *story) surely(text string) string {
	if s.track == cluster.LinuxProc {
		return text
	}
	return strings.NewReplacer("probably ", "", "evidence: recorded", "evidence: exclusive",
		"evidence: sighting", "evidence: exclusive").Replace(text)
}

// userReads checks a job's whole output, without the lines of the fake CUDA program and of Slurm itself.
func (s *story) userReads(id cluster.JobID, want ...string) {
	s.reads(s.outputOf(id), want...)
}

// reads compares lines.
func (s *story) reads(text string, want ...string) {
	var have []string
	want = strings.Split(s.surely(strings.Join(want, "\n")), "\n")
	for _, line := range strings.Split(strings.TrimSuffix(s.surely(text), "\n"), "\n") {
		if !strings.HasPrefix(line, "ready pid=") && !strings.HasPrefix(line, "slurmstepd") {
			have = append(have, line)
		}
	}
	must.Not(s.t, !slices.Equal(have, want), "the user reads\n%s\nwant\n%s", indented(have), indented(want))
}

func indented(lines []string) string { return "\t" + strings.Join(lines, "\n\t") }

// showSays checks pieces of "bookend show" on a node, in their order.
func (s *story) showSays(node string, job any, want ...string) {
	s.bookendSays(node, want, "show", "--node", node, fmt.Sprint(job))
}

// statusSays checks pieces of "bookend status" on a node, in their order.
func (s *story) statusSays(node string, want ...string) {
	s.bookendSays(node, want, "status", "--node", node)
}

func (s *story) bookendSays(node string, want []string, args ...string) {
	out, err := s.on.Bookend(node, args...)
	must.Not(s.t, err != nil, "bookend %s: %v", args[0], err)
	s.inOrder("bookend "+args[0], out, want...)
}

// nothingIsRecorded checks that a node knows nothing of a job.
func (s *story) nothingIsRecorded(node string, id cluster.JobID) {
	if out, err := s.on.Bookend(node, "show", "--node", node, string(id)); err == nil {
		s.t.Errorf("node %s has a record of job %s:\n%s", node, id, out)
	}
	if lines := s.logOf(node, id, ""); len(lines) > 0 {
		s.t.Errorf("Bookend's log speaks of job %s:\n%s", id, indented(lines))
	}
}

func (s *story) inOrder(what, text string, want ...string) {
	rest := s.surely(text)
	for _, w := range want {
		_, after, found := strings.Cut(rest, s.surely(w))
		if !found {
			s.t.Errorf("%s lacks %q (in this order: %q):\n%s", what, w, want, text)
			return
		}
		rest = after
	}
}

// logSays checks that a hook run left one line in Bookend's log, with these pieces in it.
func (s *story) logSays(node string, id cluster.JobID, program string, want ...string) {
	var lines []string
	for _, line := range s.logOf(node, id, program) {
		if strings.Contains(line, " action=") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 {
		s.t.Errorf("%s of job %s on %s has %d lines in Bookend's log, want one:\n%s", program, id, node, len(lines),
			indented(lines))
		return
	}
	for _, w := range want {
		must.Not(s.t, !strings.Contains(lines[0], w), "Bookend's log lacks %q:\n%s", w, lines[0])
	}
}

func (s *story) logOf(node string, id cluster.JobID, program string) []string {
	var found []string
	for _, line := range s.logLines()[s.logged:] {
		fields := " " + line + " "
		if strings.Contains(fields, " job="+string(id)+" ") && strings.Contains(fields, " node="+node+" ") &&
			(program == "" || strings.Contains(fields, " program="+program+" ")) {
			found = append(found, line)
		}
	}
	return found
}

func (s *story) logLines() []string {
	text, err := s.on.Log()
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return strings.Split(text, "\n")[:strings.Count(text, "\n")]
}

// nothingIsLeft checks that no hook left a process or a half-written file behind.
func (s *story) nothingIsLeft() {
	if left := s.hookProcesses(); len(left) > 0 {
		s.t.Errorf("hooks left processes behind:\n%s", indented(left))
	}
	var half []string
	must.Do(s.t, filepath.WalkDir(s.on.Dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(e.Name(), ".tmp-") {
			half = append(half, path)
		}
		return nil // what vanishes meanwhile is not there
	}))
	s.until(fmt.Sprintf("what a health check may just write is whole: %q", half), func() bool {
		half = slices.DeleteFunc(half, func(path string) bool { _, err := os.Lstat(path); return err != nil })
		return len(half) == 0
	})
}

// hookProcesses lists processes that run one of the site's programs, but for health checks, which Slurm may run at any
// time, recorders, and the children of both.
func (s *story) hookProcesses() (found []string) {
	rig.Written(s.on.Run())
	for _, p := range rig.Processes(func(p rig.Process) bool {
		return filepath.Dir(p.Exe()) == filepath.Join(s.on.Dir, "libexec")
	}) {
		parent := rig.Process{PID: p.Parent}
		if !slices.Contains([]string{p.Exe(), parent.Exe()}, s.on.Program("bookend-healthcheck")) &&
			!slices.Contains(append(p.Args(), parent.Args()...), "--record") && p.Exe() != "" { // else it has ended by now
			found = append(found, fmt.Sprintf("process %d: %s %q", p.PID, p.State, p.Args()))
		}
	}
	return found
}
