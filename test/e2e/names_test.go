package e2e

import (
	"regexp"
	"testing"

	"bookend/test/site"
)

// A process can have any name, and Slurm obeys lines of a TaskProlog that begin with "export".
func TestNameWithACommandInIt(t *testing.T) {
	t.Parallel()
	s := given(t, site.Options{})
	script := "echo PATH=$PATH"
	step := []string{oneGPU, "/bin/sh", "-c", "echo job $SLURM_JOB_ID; " + script}
	inScript := s.pathIn(s.outputOf(s.runs(s.user, script, oneGPU)))
	_, terminal := s.runsInForeground(s.user, "srun", step...)
	inStep := s.pathIn(terminal)

	s.runs(s.user, `{cuda} alloc --mib 2000 --orphan --name "$(printf '\nexport PATH=/x')"`, oneGPU)

	job := s.runs(s.user, script, oneGPU)
	s.inOrder("the output", s.outputOf(job), "held by process ", ` (\x0aexport PATH=/x) since`, "PATH="+inScript+"\n")
	s.showSays("n1", job, "start:", `(\x0aexport PATH=/x)`, "end:")
	s.statusSays("n1", "job "+string(job))
	_, terminal = s.runsInForeground(s.user, "srun", step...)
	s.inOrder("the terminal", terminal, notCleanBefore+"\n", "PATH="+inStep+"\n")
}

// pathIn is the search path that a job wrote down.
func (s *story) pathIn(text string) string {
	s.t.Helper()
	m := regexp.MustCompile(`(?m)^PATH=(/.*)$`).FindStringSubmatch(text)
	if m == nil {
		s.t.Fatalf("no PATH in\n%s", text)
	}
	return m[1]
}
