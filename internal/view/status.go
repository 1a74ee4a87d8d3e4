package view

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/ledger"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Node is what "bookend status" shows.
type Node struct {
	Name     string
	Mode     config.Mode
	Troubles []string // of now: configuration, backend, a driver that does not answer
	Runs     []ledger.Run
	Damaged  []state.Damage
}

// recent is how many ended jobs a status lists, and how many runs it searches for faults.
const recent = 5

// faults are the newest runs' findings on the driver or Bookend itself, each code once, newest first: on a node whose
// driver is gone nothing else shows it, as no card was found unclean.
func faults(runs []ledger.Run) []string {
	ends := lastEnds(runs)
	var out []string
	said := map[code.Code]bool{}
	for _, e := range ends[:min(len(ends), recent)] {
		for i, f := range e.Findings {
			entry, _ := code.Lookup(f.Code)
			action := judged(e.Verdict, i).Action
			if entry.Scope == code.Card || action == config.Ignore || action == config.Note || said[f.Code] {
				continue
			}
			said[f.Code] = true
			out = append(out, fmt.Sprintf("%s, %s: job %d at %s (bookend show %d)", f.Code, entry.Title, e.job, e.Wall.Local().Format(timestamp), e.job))
		}
	}
	return out
}

type ended struct {
	ledger.End
	job slurm.JobID
}

// lastEnds is the newest end of each run, newest first.
func lastEnds(runs []ledger.Run) []ended {
	var out []ended
	for _, r := range runs {
		switch {
		case r.Closed():
			out = append(out, ended{r.Ends[len(r.Ends)-1], r.Job.ID})
		case r.Start != nil:
			out = append(out, ended{*r.Start, r.Job.ID})
		}
	}
	slices.SortStableFunc(out, func(a, b ended) int { return b.Wall.Compare(a.Wall) })
	return out
}

// Status writes the node at a glance.
func Status(w io.Writer, n Node) {
	fmt.Fprintf(w, "node %s: mode %s\n", report.Clean(n.Name, nameWidth), n.Mode)
	for _, trouble := range n.Troubles {
		fmt.Fprintf(w, "  trouble: %s\n", report.Clean(trouble, 400))
	}
	for _, fault := range faults(n.Runs) {
		fmt.Fprintf(w, "  trouble on record: %s\n", fault)
	}
	for _, d := range n.Damaged {
		fmt.Fprintf(w, "  trouble: damaged record set aside: %s: %s\n", report.Clean(d.Path, 200), report.Clean(d.Why, 200))
	}
	live, ended := split(n.Runs)
	fmt.Fprintf(w, "jobs with GPUs now: %d\n", len(live))
	for _, r := range live {
		fmt.Fprintf(w, "  job %s  GPU %s  since %s\n", Name(r), gpus(r), started(r))
	}
	fmt.Fprintf(w, "ended jobs on record: %d\n", len(ended))
	for _, r := range ended[:min(len(ended), recent)] {
		last := r.Ends[len(r.Ends)-1]
		fmt.Fprintf(w, "  job %s  GPU %s  %s  %s%s\n", Name(r), gpus(r), last.Wall.Local().Format("15:04:05"), outcome(r, last, r.Start), got(r))
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
		} else if _, over := r.Superseded(runs); !over {
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

func started(r ledger.Run) string {
	if r.Start == nil {
		return "unknown"
	}
	return r.Start.Wall.Local().Format("15:04:05")
}
