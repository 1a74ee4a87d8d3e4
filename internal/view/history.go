package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"bookend/internal/answer"
	"bookend/internal/config"
	"bookend/internal/report"
)

// Columns of the list of runs.
const historyRow = "%-19s  %-10s %-8s %-6s %7s  %s\n"

// History writes runs, a line each, the newest first.
func History(w io.Writer, h answer.History) {
	if len(h.Runs) == 0 {
		fmt.Fprintf(w, "no such run is on record of node %s\n", report.Keep(h.Node, nameWidth))
		return
	}
	i := inkOf(w)
	fmt.Fprint(w, i.in(bold, strings.TrimSuffix(fmt.Sprintf(historyRow, "last seen", "job", "user", "GPU", "ran",
		"found"), "\n"))+"\n")
	for _, r := range h.Runs {
		fmt.Fprintf(w, historyRow, lastSeen(r), report.Keep(r.Job, nameWidth), report.Keep(r.User, nameWidth),
			indexes(r.Cards), ran(r), found(i, r))
	}
	if h.More > 0 {
		fmt.Fprintf(w, "older runs not shown: %d (--limit 0 shows all)\n", h.More)
	}
}

func lastSeen(r answer.Summary) string {
	for _, t := range []*time.Time{r.EndedAt, r.BeganAt} {
		if t != nil {
			return t.Local().Format(timestamp)
		}
	}
	return "unknown"
}

func indexes(cards []answer.Card) string {
	list := make([]string, len(cards))
	for i, c := range cards {
		list[i] = cardName(c)
	}
	if len(list) == 0 {
		return "?"
	}
	return strings.Join(list, ",")
}

func ran(r answer.Summary) string {
	switch {
	case r.State == answer.Running:
		return "runs"
	case r.Seconds == nil:
		return "?"
	}
	return span(time.Duration(*r.Seconds * float64(time.Second)))
}

// span words a duration in at most seven characters.
func span(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// found words what both ends of a run found, and how the job itself ended where it failed.
func found(i ink, r answer.Summary) string {
	var parts []string
	for _, at := range []struct {
		name    string
		verdict *answer.Verdict
	}{{"end", r.End}, {"start", r.Start}} {
		if codes := codesAt(i, r, at.name); codes != "" {
			if at.name == "start" {
				codes = "at start " + codes
			}
			parts = append(parts, codes)
		}
		switch v := at.verdict; {
		case v == nil:
		case v.Exit != 0:
			parts = append(parts, i.in(red, fmt.Sprintf("drained (%d)", v.Exit)))
		case v.Held != "":
			parts = append(parts, i.in(yellow, fmt.Sprintf("would drain (%s)", report.Keep(v.Held, 2*nameWidth))))
		}
	}
	switch {
	case r.State == answer.Lost:
		parts = append(parts, "no end on record")
	case len(parts) == 0 && r.State == answer.Ended:
		parts = append(parts, i.in(green, "clean"))
	}
	if r.Exit != nil && (*r.Exit != 0 || *r.Signal != 0) {
		parts = append(parts, "job failed ("+jobExit(r)+")")
	}
	return strings.Join(parts, "; ")
}

func jobExit(r answer.Summary) string {
	if *r.Signal != 0 {
		return fmt.Sprintf("signal %d", *r.Signal)
	}
	return fmt.Sprintf("exit %d", *r.Exit)
}

// codesAt are the findings of one end, each code once, without those that policy ignores or only notes.
func codesAt(i ink, r answer.Summary, end string) string {
	var said, words []string
	for _, f := range r.Findings {
		if f.At != end || f.Action == config.Ignore || f.Action == config.Note ||
			slices.Contains(said, string(f.Code)) {
			continue
		}
		said = append(said, string(f.Code))
		word := i.action(f.Action, string(report.Clean(string(f.Code), nameWidth)))
		if f.Bytes != nil {
			word += fmt.Sprintf(" %d MiB", *f.Bytes>>20)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// Lemons writes the cards on which the same was found again and again.
func Lemons(w io.Writer, l answer.Lemons) {
	if len(l.Cards) == 0 {
		fmt.Fprintf(w, "on no card of node %s was the same found in two of %s\n", report.Keep(l.Node, nameWidth),
			count(l.Runs, "run", "s"))
		return
	}
	i := inkOf(w)
	for _, c := range l.Cards {
		fmt.Fprintf(w, "%s  %s\n", i.in(bold, "GPU "+cardName(c.Card)), identity(c.Card))
		for _, r := range c.Codes {
			fmt.Fprintf(w, "  %s: %s\n", i.in(yellow, string(r.Code)), report.Clean(r.Title, nameWidth))
			fmt.Fprintf(w, "    in %d of its %s, %s of %s, %s to %s\n", r.Runs, count(c.Runs, "run", "s"),
				count(r.Jobs, "job", "s"), count(r.Users, "user", "s"), minute(r.FirstAt), minute(r.LastAt))
			fmt.Fprintf(w, "    %s\n", suspects[r.Suspect])
		}
	}
}

// suspects say where to look first.
var suspects = map[answer.Suspect]string{
	answer.SuspectCard: "several users met it: look at the card and the node " +
		"(nvidia-smi -q, dcgmi diag, the kernel's log)",
	answer.SuspectUser: "always the same user: look at what they run, before you doubt the card",
	answer.SuspectNode: "no job's process: look at what else runs on the node",
}

func minute(t *time.Time) string {
	if t == nil {
		return "unknown"
	}
	return t.Local().Format("2006-01-02 15:04")
}
