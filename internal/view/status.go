package view

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"bookend/internal/answer"
	"bookend/internal/report"
)

// mostDamaged is how many damaged records are named.
const mostDamaged = 10

// Status writes the node at a glance.
func Status(w io.Writer, s answer.Status) {
	i := inkOf(w)
	fmt.Fprintf(w, "%s: mode %s\n", i.in(bold, "node "+string(report.Keep(s.Node, nameWidth))), s.Mode)
	troubles(w, s)
	for at, d := range s.Damaged {
		if at == mostDamaged {
			fmt.Fprintf(w, "  %s: damaged records more: %d (bookend history names them all)\n", i.in(red, "trouble"),
				len(s.Damaged)-at)
			break
		}
		fmt.Fprintf(w, "  %s: damaged record set aside: %s: %s\n", i.in(red, "trouble"), report.Keep(d.Path, textWidth),
			report.Keep(d.Why, textWidth))
	}
	if s.Slurm.Bookend != "" {
		fmt.Fprintf(w, "drain: %s\n", report.Keep(s.Slurm.Bookend, textWidth))
	}
	lastHooks(w, s)
	check(w, s.Check)
	asked(w, s)
	cards(w, s)
	fmt.Fprintf(w, "jobs with GPUs now: %d\n", len(s.Running))
	for _, r := range s.Running {
		fmt.Fprintf(w, "  job %s  GPU %s  since %s\n", name(r.RunHead), indexes(r.Cards), day(r.BeganAt, s.At))
	}
	fmt.Fprintf(w, "ended jobs on record: %d\n", s.OnRecord)
	for _, r := range s.Ended {
		fmt.Fprintf(w, "  job %s  GPU %s  %s  %s%s\n", name(r.RunHead), indexes(r.Cards),
			day(cmp.Or(r.EndedAt, r.BeganAt), s.At), came(i, r), got(r))
	}
}

// came is what a run's end came to.
func came(i ink, r answer.Summary) string {
	if r.End == nil {
		return "not seen: " + string(report.Keep(r.Unknown["ended_at"], textWidth))
	}
	return i.verdict(*r.End, outcome(*r.End, r.StillBytes))
}

// got is what the start found, where it found something.
func got(r answer.Summary) string {
	if r.Start == nil || r.Start.Code == "" {
		return ""
	}
	return "; at its start: " + outcome(*r.Start, 0)
}

// day is a moment as people say it on a day: of another one with its date.
func day(at, now *time.Time) string {
	if at == nil {
		return "unknown"
	}
	t := at.Local()
	if now == nil || t.Format(time.DateOnly) == now.Local().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(timestamp)
}

// troubles writes what is wrong, then what was until lately.
func troubles(w io.Writer, s answer.Status) {
	i := inkOf(w)
	for _, t := range s.Troubles {
		switch {
		case t.Code == "":
			fmt.Fprintf(w, "  %s: %s\n", i.in(red, "trouble"), strings.Join(t.Said, "; "))
		case t.LastHook == "" && t.LastAt != nil:
			fmt.Fprintf(w, "  %s: %s: job %s at %s (bookend show %s)\n", i.in(yellow, "trouble on record"), title(t),
				t.LastJob, t.LastAt.Local().Format(timestamp), t.LastJob)
		default:
			trouble(w, t)
		}
	}
	for _, t := range s.Before {
		since := "not now"
		if t.Without > 0 {
			since = fmt.Sprintf("not by the %s since", count(int(t.Without), "hook", "s"))
		}
		fmt.Fprintf(w, "  seen before: %s: last by %s, %s\n", title(t), lastBy(t), since)
	}
}

// trouble writes one that stands: what, what was seen and when, and what to do about it.
func trouble(w io.Writer, t answer.Trouble) {
	fmt.Fprintf(w, "  %s: %s\n", inkOf(w).in(red, "trouble"), title(t))
	for _, said := range t.Said {
		fmt.Fprintf(w, "    %s\n", report.Keep(said, textWidth))
	}
	if t.Since != nil {
		fmt.Fprintf(w, "    met by %s since %s, last by %s\n", count(int(t.Hooks), "hook", "s"),
			t.Since.Local().Format(timestamp), lastBy(t))
	}
	fmt.Fprintf(w, "    do: %s\n", t.Remedy)
}

func title(t answer.Trouble) string { return fmt.Sprintf("%s, %s", t.Code, t.Title) }

func lastBy(t answer.Trouble) string {
	at := "an unknown time"
	if t.LastAt != nil {
		at = t.LastAt.Local().Format(timestamp)
	}
	if t.LastJob == "" {
		return fmt.Sprintf("the %s at %s", t.LastHook, at)
	}
	return fmt.Sprintf("the %s of job %s at %s (bookend show %s)", t.LastHook, t.LastJob, at, t.LastJob)
}

// lastHooks says when the hooks ran last, where one has been counted.
func lastHooks(w io.Writer, s answer.Status) {
	var ran []string
	for _, h := range s.Hooks {
		if h.At != nil {
			ran = append(ran, strings.ReplaceAll(h.Hook, "_", " ")+" "+h.At.Local().Format(timestamp))
		}
	}
	if len(ran) > 0 {
		fmt.Fprintln(w, "last hooks: "+strings.Join(ran, ", "))
	}
}
