package faults

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/test/fakegpu"
)

// story is one job on the first GPU of a node, with what is odd about it, and what must come of that at its end. A
// bystander's job runs beside it, whose record nobody may touch.
type story struct {
	mode    string // enforce where it is empty
	config  func(*conf)
	options []fakegpu.Option
	before  func(*node)     // ahead of the job
	job     func(*node) job // newJob where it is nil
	during  func(*node)     // between its start and its end
	status  string          // its wait status
	prints  string

	exit  int
	finds string   // by its end, as codes writes them
	reads []string // by its user at its end, in one line
	not   []string // what that line has not
	log   []string // of one line of the log
	check func(*node)
}

// tell plays stories.
func tell(t *testing.T, stories map[string]story) {
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.play(newNode(t, cmp.Or(s.mode, "enforce"), s.options...))
		})
	}
}

func (s story) play(n *node) {
	n.Helper()
	if s.config != nil {
		n.configure(s.config)
	}
	n.clean(prolog, bystanding())
	if s.before != nil {
		s.before(n)
	}
	j := newJob()
	if s.job != nil {
		j = s.job(n)
	}
	j, others := n.begin(j), n.record()
	if s.during != nil {
		s.during(n)
	}
	told, exit := n.end(j, cmp.Or(s.status, "0"), s.prints)
	if found := n.endOf(100).Findings; exit != s.exit || codes(found) != s.finds {
		n.Errorf("exit %d, found %q: want %d, %q: %+v\n%s", exit, codes(found), s.exit, s.finds, found, n.log())
	}
	text := unfolded(told)
	for _, want := range s.reads {
		if !strings.Contains(text, want) {
			n.Errorf("want %q, the user reads:\n%s", want, strings.Join(told, "\n"))
		}
	}
	for _, word := range s.not {
		if strings.Contains(text, word) {
			n.Errorf("the user reads %q:\n%s", word, strings.Join(told, "\n"))
		}
	}
	if s.log != nil {
		n.says(s.log...)
	}
	if s.check != nil {
		s.check(n)
	}
	n.unharmed(others)
}

// failed is the wait status of a script that ended with exit code 1.
const failed = "256"

// home makes a folder of the user's, with the job's output in it.
func (n *node) home() (output string) {
	n.Helper()
	must(n, os.Mkdir(n.in("home"), 0o755))
	output = n.give(n.put("home/slurm-100.out", "the job's own words\n", 0o644), user)
	n.give(n.in("home"), user)
	return output
}

// begin starts a job with an output file of its own, whose owner reads the start report there by the task hook.
func (n *node) begin(j job) job {
	n.Helper()
	j = j.With("SLURM_JOB_STDOUT", n.home())
	n.exits(0, prolog, j)
	if o := n.task(taskProlog, j.With("SLURM_JOB_STDOUT", "")); o.exit != 0 {
		n.Fatalf("%v", o)
	}
	return j
}

// finish ends a job with a wait status, after it has written so much, and returns what Bookend appended: well-formed,
// whatever it was told. A drain is none of what these jobs are for.
func (n *node) finish(j job, status, output string) []string {
	n.Helper()
	told, exit := n.end(j, status, output)
	if exit != 0 {
		n.Errorf("exit %d\n%s", exit, n.log())
	}
	return told
}

func (n *node) end(j job, status, output string) (told []string, exit int) {
	n.Helper()
	path := j["SLURM_JOB_STDOUT"]
	n.put(path, output, 0o644)
	o := n.hook(epilog, ended(j, status))
	if o.output != "" {
		n.Errorf("%v", o)
	}
	appended, ok := strings.CutPrefix(n.get(path), output)
	if appended == "" && strings.Contains(n.conf.extra, "job_log: ") { // which may ask for nothing
		return nil, o.exit
	}
	if !ok || !strings.HasPrefix(appended, "\n") || !strings.HasSuffix(appended, "\n") {
		n.Fatalf("appended %q\n%s", appended, n.log())
	}
	told = strings.Split(strings.Trim(appended, "\n"), "\n")
	for _, line := range told {
		if !strings.HasPrefix(line, "| bookend: ") || len(line) > len("| ")+report.Width || !printable(line) {
			n.Errorf("the user reads %q", line)
		}
	}
	if len(told) > report.MaxLines {
		n.Errorf("the user reads %d lines:\n%s", len(told), strings.Join(told, "\n"))
	}
	return told, o.exit
}

// ended is a job at its end, with a wait status.
func ended(j job, status string) job {
	return j.With("SLURM_SCRIPT_CONTEXT", string(slurm.Epilog), "SLURM_JOB_EXIT_CODE", status, "SLURM_JOB_DERIVED_EC",
		"0")
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') })
}

// unfolded is a text as one line, without the marks of lines.
func unfolded(told []string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(strings.Join(told, " "), "| bookend: ", "")), " ")
}

// found returns the finding of a code, which must be the only one of it.
func (n *node) found(all []finding.Finding, c code.Code) (f finding.Finding) {
	n.Helper()
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

// fault is one thing that can be wrong when a hook runs, and what must come of it.
type fault struct {
	harm  func(*node)
	job   job    // what slurmd tells the hook; nil: newJob
	hooks []hook // those it is tried with; nil: both
	finds code.Code
	says  string // in the log's line of the finding
	// exit is the number with mode enforce and on_unknown: drain; otherwise a fault of Bookend's never drains.
	exit int
	// unrecorded: nothing can be kept of it but the log.
	unrecorded bool
}

// try runs every fault through both hooks where it may drain.
func try(t *testing.T, faults map[string]fault) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, h := range f.hooks {
				f.check(newNode(t, "enforce"), h, "drain", f.exit)
			}
			if f.hooks == nil {
				f.check(newNode(t, "enforce"), prolog, "drain", f.exit)
				f.check(newNode(t, "enforce"), epilog, "drain", f.exit)
			}
		})
	}
}

func (f fault) check(n *node, h hook, onUnknown string, exit int) {
	n.Helper()
	n.configure(func(c *conf) { c.onUnknown = onUnknown })
	n.clean(prolog, bystanding())
	if h.context == slurm.Epilog {
		n.clean(prolog, newJob())
	}
	others := n.record()
	if f.harm != nil {
		f.harm(n)
	}
	if f.job == nil {
		f.job = newJob()
	}
	n.exits(exit, h, f.job)
	n.saysTimes(1, "findings: ", string(f.finds), filepath.Base(h.program))
	n.says(string(f.finds)+": ", f.says)
	if found := n.findings(h); !f.unrecorded && !has(found, f.finds) {
		n.Errorf("recorded: %v, want %s", found, f.finds)
	}
	n.unharmed(others)
}

// A fault of Bookend's own drains only where the site both enforces and says so; package finding has the whole table.
func TestModes(t *testing.T) {
	harm := func(n *node) { n.configure(func(c *conf) { c.backend = n.in("nothing") }) }
	for _, m := range []struct{ mode, onUnknown string }{{"observe", "drain"}, {"enforce", "warn"}} {
		for _, h := range hooks {
			fault{harm: harm, finds: code.BackendMissing}.check(newNode(t, m.mode), h, m.onUnknown, 0)
		}
	}
}
