package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"bookend/internal/answer"
	"bookend/internal/code"
	"bookend/internal/metrics"
	"bookend/internal/report"
	"bookend/internal/slurm"
)

// Trouble is what "bookend status" itself sees to be wrong now.
type Trouble struct {
	Code code.Code // what hooks find because of it; empty for no finding
	Text string
}

// troubleWidth bounds what is quoted of a trouble.
const troubleWidth = 400

// met is how long a trouble that no hook meets any more is still told of.
const met = 24 * time.Hour

// standing is one trouble that is there: seen by status itself, met by the last hook, or on record alone.
type standing struct {
	code code.Code
	said []report.Safe
	met  *metrics.Trouble // where hooks have counted it
	on   *fault           // where a record alone has it
}

// standing are the troubles that are there now, each once.
func (n Node) standing() (all []standing) {
	told := map[code.Code]bool{}
	for _, t := range n.Now {
		switch {
		case t.Code == "":
			all = append(all, standing{said: []report.Safe{report.Clean(t.Text, troubleWidth)}})
		case !told[t.Code]:
			told[t.Code] = true
			all = append(all, standing{code: t.Code, said: n.seen(t.Code), met: n.metOf(t.Code)})
		}
	}
	for _, m := range n.Met {
		if !told[m.Code] && n.stands(m) {
			all = append(all, standing{code: m.Code, said: []report.Safe{m.Detail}, met: &m})
			told[m.Code] = true
		}
	}
	for _, f := range faults(n.Runs) {
		m := n.metOf(f.Code)
		if !told[f.Code] && !n.Well[f.Code] && (m == nil || m.Last.Add(slack).Before(f.at)) {
			all = append(all, standing{code: f.Code, on: &f})
			told[f.Code] = true
		}
	}
	return all
}

// before are the troubles of the last day that are none now; all are those that are.
func (n Node) before(all []standing) (past []metrics.Trouble) {
	for _, m := range n.Met {
		told := slices.ContainsFunc(all, func(s standing) bool { return s.code == m.Code })
		if !told && n.At.Sub(m.Last) < met {
			past = append(past, m)
		}
	}
	return past
}

// troubles writes what is wrong, then what was until lately.
func (n Node) troubles(w io.Writer) {
	all, i := n.standing(), inkOf(w)
	for _, s := range all {
		switch {
		case s.on != nil:
			fmt.Fprintf(w, "  %s: %s: job %d at %s (bookend show %d)\n", i.in(yellow, "trouble on record"), title(s.code), s.on.job, s.on.at.Local().Format(timestamp), s.on.job)
		case s.code == "":
			fmt.Fprintf(w, "  %s: %s\n", i.in(red, "trouble"), s.said[0])
		default:
			trouble(w, s)
		}
	}
	for _, m := range n.before(all) {
		since := "not now"
		if m.Clear > 0 {
			since = fmt.Sprintf("not by the %s since", count(int(m.Clear), "hook", "s"))
		}
		fmt.Fprintf(w, "  seen before: %s: last by %s, %s\n", title(m.Code), lastBy(m), since)
	}
}

// seen is all that status itself has seen of a trouble.
func (n Node) seen(c code.Code) (said []report.Safe) {
	for _, t := range n.Now {
		if t.Code == c {
			said = append(said, report.Clean(t.Text, troubleWidth))
		}
	}
	return said
}

func (n Node) metOf(c code.Code) *metrics.Trouble {
	for _, m := range n.Met {
		if m.Code == c {
			return &m
		}
	}
	return nil
}

// stands reports a trouble that the last hook met, unless status has looked for it itself in vain.
func (n Node) stands(m metrics.Trouble) bool { return m.Clear == 0 && !n.Well[m.Code] }

// trouble writes one that stands: what, what was seen and when, and what to do about it.
func trouble(w io.Writer, s standing) {
	entry, _ := code.Lookup(s.code)
	fmt.Fprintf(w, "  %s: %s\n", inkOf(w).in(red, "trouble"), title(s.code))
	for _, said := range s.said {
		fmt.Fprintf(w, "    %s\n", said)
	}
	if s.met != nil {
		fmt.Fprintf(w, "    %s\n", when(*s.met))
	}
	fmt.Fprintf(w, "    do: %s\n", entry.Remedy)
}

// document is a trouble for programs.
func (s standing) document() answer.Trouble {
	entry, _ := code.Lookup(s.code)
	t := answer.Trouble{Code: s.code, Title: entry.Title, Remedy: entry.Remedy, Said: []string{}}
	for _, said := range s.said {
		t.Said = append(t.Said, string(said))
	}
	switch {
	case s.met != nil:
		t.Since, t.LastAt, t.LastJob, t.Hooks, t.Without = utc(s.met.Since), utc(s.met.Last), jobOrNone(s.met.Job), s.met.Count, s.met.Clear
	case s.on != nil:
		t.LastAt, t.LastJob = utc(s.on.at), fmt.Sprint(s.on.job)
	}
	return t
}

func jobOrNone(id slurm.JobID) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprint(id)
}

func utc(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}

func title(c code.Code) string {
	entry, _ := code.Lookup(c)
	return fmt.Sprintf("%s, %s", c, entry.Title)
}

// when says how often and since when hooks meet a trouble.
func when(m metrics.Trouble) report.Safe {
	return report.Safe(fmt.Sprintf("met by %s since %s, last by %s", count(int(m.Count), "hook", "s"), m.Since.Local().Format(timestamp), lastBy(m)))
}

func lastBy(m metrics.Trouble) string {
	text := fmt.Sprintf("the %s at %s", m.Hook, m.Last.Local().Format(timestamp))
	if m.Job != 0 {
		text = fmt.Sprintf("the %s of job %d at %s (bookend show %d)", m.Hook, m.Job, m.Last.Local().Format(timestamp), m.Job)
	}
	return text
}

// slack is more than there is between a hook's record and its count.
const slack = time.Minute

// ran are the hooks that have run, in the order of a job's life, and others behind them.
func (n Node) ran() []metrics.Hook {
	rank := map[metrics.Hook]int{metrics.Prolog: 0, metrics.Epilog: 1}
	return slices.SortedFunc(maps.Keys(n.Last), func(a, b metrics.Hook) int {
		of := func(h metrics.Hook) int {
			if at, known := rank[h]; known {
				return at
			}
			return len(rank)
		}
		return cmp.Or(cmp.Compare(of(a), of(b)), cmp.Compare(a, b))
	})
}

// lastHooks says when the hooks ran last; empty where none has been counted.
func (n Node) lastHooks() string {
	var ran []string
	for _, h := range n.ran() {
		ran = append(ran, fmt.Sprintf("%s %s", strings.ReplaceAll(string(h), "_", " "), n.Last[h].Local().Format(timestamp)))
	}
	if len(ran) == 0 {
		return ""
	}
	return "last hooks: " + strings.Join(ran, ", ")
}
