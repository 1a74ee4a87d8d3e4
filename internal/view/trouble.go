package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/metrics"
	"bookend/internal/report"
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

// troubles writes what is wrong, then what was until lately.
func (n Node) troubles(w io.Writer) {
	told := map[code.Code]bool{}
	for _, t := range n.Now {
		switch {
		case t.Code == "":
			fmt.Fprintf(w, "  trouble: %s\n", report.Clean(t.Text, troubleWidth))
		case !told[t.Code]:
			told[t.Code] = true
			trouble(w, t.Code, n.seen(t.Code)...)
		}
	}
	for _, m := range n.Met {
		if !told[m.Code] && n.stands(m) {
			trouble(w, m.Code, m.Detail, when(m))
			told[m.Code] = true
		}
	}
	n.faults(w, told)
	for _, m := range n.Met {
		if !told[m.Code] && n.At.Sub(m.Last) < met {
			since := "not now"
			if m.Clear > 0 {
				since = fmt.Sprintf("not by the %s since", count(int(m.Clear), "hook", "s"))
			}
			fmt.Fprintf(w, "  seen before: %s: last by %s, %s\n", title(m.Code), lastBy(m), since)
		}
	}
}

// seen is all that status itself has seen of a trouble, and when hooks met it.
func (n Node) seen(c code.Code) (said []report.Safe) {
	for _, t := range n.Now {
		if t.Code == c {
			said = append(said, report.Clean(t.Text, troubleWidth))
		}
	}
	for _, m := range n.Met {
		if m.Code == c {
			said = append(said, when(m))
		}
	}
	return said
}

// stands reports a trouble that the last hook met, unless status has looked for it itself in vain.
func (n Node) stands(m metrics.Trouble) bool { return m.Clear == 0 && !n.Well[m.Code] }

// trouble writes one that stands: what, what was seen and when, and what to do about it.
func trouble(w io.Writer, c code.Code, said ...report.Safe) {
	entry, _ := code.Lookup(c)
	fmt.Fprintf(w, "  trouble: %s\n", title(c))
	for _, s := range said {
		fmt.Fprintf(w, "    %s\n", s)
	}
	fmt.Fprintf(w, "    do: %s\n", entry.Remedy)
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

// faults writes the newest runs' findings on the driver or Bookend itself that the counts do not have: a hook that was
// stopped on its way is only on record, and where the disk is full all of them are.
func (n Node) faults(w io.Writer, told map[code.Code]bool) {
	for _, f := range faults(n.Runs) {
		i := slices.IndexFunc(n.Met, func(m metrics.Trouble) bool { return m.Code == f.Code })
		if told[f.Code] || n.Well[f.Code] || i >= 0 && !n.Met[i].Last.Add(slack).Before(f.at) {
			continue
		}
		told[f.Code] = true
		fmt.Fprintf(w, "  trouble on record: %s: job %d at %s (bookend show %d)\n", title(f.Code), f.job, f.at.Local().Format(timestamp), f.job)
	}
}

// slack is more than there is between a hook's record and its count.
const slack = time.Minute

// lastHooks says when the hooks ran last; empty where none has been counted.
func (n Node) lastHooks() string {
	var ran []string
	for _, h := range []metrics.Hook{metrics.Prolog, metrics.Epilog} {
		if at, did := n.Last[h]; did {
			ran = append(ran, fmt.Sprintf("%s %s", h, at.Local().Format(timestamp)))
		}
	}
	if len(ran) == 0 {
		return ""
	}
	return "last hooks: " + strings.Join(ran, ", ")
}
