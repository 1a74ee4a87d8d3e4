package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"bookend/internal/answer"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Node is what "bookend status" shows.
type Node struct {
	Name string
	Mode config.Mode
	At   time.Time // wall time
	// Now are the troubles that status itself has seen, Well those that it has looked for and that are none now.
	Now  []Trouble
	Well map[code.Code]bool
	// Met are the troubles that hooks have counted, Last is when they ran.
	Met     []metrics.Trouble
	Last    map[metrics.Hook]time.Time
	Runs    []ledger.Run
	Damaged []state.Damage
	Drain   drain.Memory // what Bookend remembers of the node's drain
	// Driver, Slurm and Cards are as they are now; nil where nobody asked.
	Driver *answer.Driver
	Check  *answer.LastCheck // nil where no health check has run
	Slurm  *answer.SlurmNode
	Cards  []answer.CardStatus
}

// recent is how many ended jobs a status lists, and how many runs it searches for faults.
const recent = 5

// mostDamaged is how many damaged records are named.
const mostDamaged = 10

// fault is a finding on the driver or Bookend itself.
type fault struct {
	code.Code
	job slurm.JobID
	at  time.Time
}

// faults are the newest runs' findings on the driver or Bookend itself, each code once, newest first: on a node whose
// driver is gone nothing else shows it, as no card was found unclean.
func faults(runs []ledger.Run) []fault {
	seen := slices.DeleteFunc(ledger.Newest(runs), func(r ledger.Run) bool { return r.Last() == nil })
	var out []fault
	said := map[code.Code]bool{}
	for _, r := range seen[:min(len(seen), recent)] {
		e := r.Last()
		for i, f := range e.Findings {
			if entry, _ := code.Lookup(f.Code); entry.Scope == code.Card || !e.Verdict.Tells(i) || said[f.Code] {
				continue
			}
			said[f.Code] = true
			out = append(out, fault{f.Code, r.Job.ID, e.Wall})
		}
	}
	return out
}

// Status writes the node at a glance.
func Status(w io.Writer, n Node) {
	i := inkOf(w)
	fmt.Fprintf(w, "%s: mode %s\n", i.in(bold, "node "+string(report.Clean(n.Name, nameWidth))), n.Mode)
	n.troubles(w)
	for at, d := range n.Damaged {
		if at == mostDamaged {
			fmt.Fprintf(w, "  %s: damaged records more: %d (bookend history names them all)\n", i.in(red, "trouble"), len(n.Damaged)-at)
			break
		}
		fmt.Fprintf(w, "  %s: damaged record set aside: %s: %s\n", i.in(red, "trouble"), report.Clean(d.Path, 200), report.Clean(d.Why, 200))
	}
	if drain := n.Drain.Words(); drain != "" {
		fmt.Fprintf(w, "drain: %s\n", drain)
	}
	if hooks := n.lastHooks(); hooks != "" {
		fmt.Fprintln(w, hooks)
	}
	n.check(w)
	n.asked(w)
	n.cards(w)
	live, ended := split(n.Runs)
	fmt.Fprintf(w, "jobs with GPUs now: %d\n", len(live))
	for _, r := range live {
		fmt.Fprintf(w, "  job %s  GPU %s  since %s\n", Name(r), gpus(r), started(r, n.At))
	}
	fmt.Fprintf(w, "ended jobs on record: %d\n", len(ended))
	for _, r := range ended[:min(len(ended), recent)] {
		last := *r.Last()
		fmt.Fprintf(w, "  job %s  GPU %s  %s  %s%s\n", Name(r), gpus(r), day(last.Wall, n.At), i.verdict(last.Verdict, outcome(r, last, r.Start)), got(r))
	}
}

// got is what the start found, where it found something.
func got(r ledger.Run) string {
	if r.Start == nil || r.Start.Verdict.Code == "" {
		return ""
	}
	return "; at its start: " + Verdict(r.Start.Verdict)
}

func split(runs []ledger.Run) (live, ended []ledger.Run) {
	for _, r := range runs {
		if r.Closed() {
			ended = append(ended, r)
		} else if r.Running(runs) {
			live = append(live, r)
		}
	}
	slices.SortStableFunc(ended, func(a, b ledger.Run) int { return b.Ends[0].Wall.Compare(a.Ends[0].Wall) })
	return live, ended
}

func gpus(r ledger.Run) string {
	list := make([]string, len(r.Devices))
	for i, d := range r.Devices {
		list[i] = fmt.Sprint(d.Index)
	}
	if len(list) == 0 {
		return "unknown"
	}
	return strings.Join(list, ",")
}

func started(r ledger.Run, now time.Time) string {
	if r.Start == nil {
		return "unknown"
	}
	return day(r.Start.Wall, now)
}

// day is a moment as people say it on a day: of another one with its date.
func day(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if now.IsZero() || t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}
