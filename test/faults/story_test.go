package faults

import (
	"cmp"
	"os"
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/test/fakegpu"
	"bookend/test/must"
)

// story is one job on the first GPU of a node, with what is odd about it, and what must come of that at its end. A
// bystander's job runs beside it, whose record nobody may touch.
type story struct {
	mode    string // enforce where it is empty
	options []fakegpu.Option
	job     func(*node) job // newJob where it is nil
	during  func(*node)     // between its start and its end

	exit  int
	finds string   // by its end, as codes writes them
	reads []string // by its user at its end, in one line
	not   []string // what that line has not
	check func(*node)
}

func tell(t *testing.T, stories map[string]story) {
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seeHoldersOf(t, s.finds)
			s.play(newNode(t, cmp.Or(s.mode, "enforce"), s.options...))
		})
	}
}

// seeHoldersOf skips a test that finds memory or a PID without a process, for which all processes are searched, where
// some cannot be seen.
func seeHoldersOf(t *testing.T, finds string) {
	t.Helper()
	if strings.Contains(finds, string(catalog.Phantom)) || strings.Contains(finds, string(catalog.Residue)) {
		must.SeeAll(t)
	}
}

func (s story) play(n *node) {
	n.clean(prolog, bystanding())
	j := newJob()
	if s.job != nil {
		j = s.job(n)
	}
	j = n.begin(j)
	s.during(n)
	told := n.ends(j, "0", "", s.exit, s.finds)
	for _, want := range s.reads {
		must.Not(n, !strings.Contains(told, want), "want %q, the user reads:\n%s", want, told)
	}
	for _, word := range s.not {
		must.Not(n, strings.Contains(told, word), "the user reads %q:\n%s", word, told)
	}
	if s.check != nil {
		s.check(n)
	}
	n.unharmed()
}

// ends is end of job 100, with what must come of it, and returns what its user reads.
func (n *node) ends(j job, status, output string, exit int, finds string) (told string) {
	told, got := n.end(j, status, output)
	found := n.endOf(100).Findings
	must.Not(n, got != exit || codes(found) != finds, "exit %d, found %q: want %d, %q: %+v\n%s", got, codes(found), exit,
		finds, found, n.log())
	must.Not(n, told == "", "the user reads nothing")
	return told
}

// one is the wait status of a script that ended with exit code 1; failed is a job whose script has.
const one = "256"

func failed(j job) job { return j.With("SLURM_JOB_EXIT_CODE", one, "SLURM_JOB_EXIT_CODE2", "1:0") }

// home makes a folder of the user's, with the job's output in it.
func (n *node) home() (output string) {
	must.Do(n, os.Mkdir(n.in("home"), 0o755))
	output = n.give(n.put("home/slurm-100.out", "the job's own words\n", 0o644), user)
	n.give(n.in("home"), user)
	return output
}

// begin starts a job with an output file of its own, whose owner reads the start report there by the task hook.
func (n *node) begin(j job) job {
	j = j.With("SLURM_JOB_STDOUT", n.home())
	n.exits(0, prolog, j)
	if o := n.task(taskProlog, j.With("SLURM_JOB_STDOUT", "")); o.exit != 0 {
		n.Fatalf("%v", o)
	}
	return j
}

// end ends a job with a wait status, after it has written so much, and returns what Bookend appended, as one line:
// well-formed, whatever it was told.
func (n *node) end(j job, status, output string) (told string, exit int) {
	path := j["SLURM_JOB_STDOUT"]
	n.put(path, output, 0o644)
	o := n.hook(epilog, j.With("SLURM_SCRIPT_CONTEXT", string(slurm.Epilog), "SLURM_JOB_EXIT_CODE", status,
		"SLURM_JOB_DERIVED_EC", "0"))
	must.Not(n, o.output != "", "%v", o)
	appended, ok := strings.CutPrefix(n.get(path), output)
	if appended == "" {
		return "", o.exit
	}
	if !ok || !strings.HasPrefix(appended, "\n") || !strings.HasSuffix(appended, "\n") {
		n.Fatalf("appended %q\n%s", appended, n.log())
	}
	all := strings.Split(strings.Trim(appended, "\n"), "\n")
	for i, line := range all {
		must.Not(n, !strings.HasPrefix(line, "| bookend: ") || len(line) > len("| ")+report.Width || !printable(line),
			"the user reads %q", line)
		all[i] = strings.TrimPrefix(line, "| bookend: ")
	}
	must.Not(n, len(all) > report.MaxLines, "the user reads %d lines:\n%s", len(all), appended)
	return strings.Join(strings.Fields(strings.Join(all, " ")), " "), o.exit
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') })
}

// found returns the finding of a code, which must be the only one of it.
func (n *node) found(all []record.Finding, c catalog.Code) (f record.Finding) {
	count := 0
	for _, one := range all {
		if one.Code == c {
			f = one
			count++
		}
	}
	if count != 1 {
		n.Fatalf("want one %s: %+v", c, all)
	}
	return f
}
