package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"bookend/internal/answer"
	"bookend/internal/gpu"
	"bookend/internal/report"
	"bookend/internal/settle"
)

// Show writes the runs of a job.
func Show(w io.Writer, s answer.Show) {
	for i, r := range s.Runs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		job(w, s.Node, r)
	}
}

// job writes one run of a job: both ends, each card, each finding with what policy made of it.
func job(w io.Writer, node string, r answer.Run) {
	fmt.Fprintf(w, "%s on %s, user %s (uid %d), partition %s\n", inkOf(w).in(bold, "job "+name(r.RunHead)),
		report.Keep(node, nameWidth), report.Keep(r.User, nameWidth), r.UID, report.Keep(r.Partition, nameWidth))
	for _, c := range r.Cards {
		card(w, r, c)
	}
	if r.Start == nil {
		fmt.Fprintln(w, "start: no record (no prolog ran, or it could not write)")
	} else {
		end(w, "start", r, *r.Start, func(c answer.CardEnds) *answer.CardEnd { return c.Start })
	}
	if len(r.Ends) == 0 {
		fmt.Fprintln(w, "end: not yet")
	}
	for i, e := range r.Ends {
		title, of := "end", func(answer.CardEnds) *answer.CardEnd { return nil }
		if i > 0 {
			title = fmt.Sprintf("end, epilog run %d", i+1)
		}
		if i == len(r.Ends)-1 {
			of = func(c answer.CardEnds) *answer.CardEnd { return c.End }
		}
		end(w, title, r, e, of)
	}
}

// name is a job's name as its user knows it, with the id that Slurm's logs have where that is another: "1234_7 (1240)".
func name(r answer.RunHead) string {
	if id := fmt.Sprint(r.JobID); r.Job != id {
		return string(report.Keep(r.Job, nameWidth)) + " (" + id + ")"
	}
	return r.Job
}

// card writes one card of a job with both ends side by side.
func card(w io.Writer, r answer.Run, c answer.CardEnds) {
	fmt.Fprintf(w, "  %s  %s%s\n", inkOf(w).in(bold, "GPU "+cardName(c.Card)), report.Keep(c.UUID, nameWidth), model(c))
	left, right := side(c.Start, nil, "no record"), side(c.End, c.Start, "not yet")
	if c.Start == nil && r.Start != nil {
		left[0] = "not read"
	}
	if c.End == nil && len(r.Ends) > 0 {
		right[0] = "not read"
	}
	row(w, "", "start", "end")
	for i, name := range rows {
		if left[i]+right[i] != "" {
			row(w, name, left[i], right[i])
		}
	}
}

// rows are what is told of a card at both ends.
var rows = [...]string{"used", "free", "largest block", "processes", "watched"}

// Widths of the table: both ends and their names fit 80 columns.
const (
	nameColumn = 15
	endColumn  = 28
)

// besideWidth is the least width of a terminal on which both ends stand beside each other.
const besideWidth = 4 + nameColumn + 2*endColumn

func row(w io.Writer, name, start, end string) {
	if widthOf(w) < besideWidth {
		fmt.Fprintf(w, "    %-*s%s -> %s\n", nameColumn, name, cmp.Or(start, "?"), cmp.Or(end, "?"))
		return
	}
	line := fmt.Sprintf("    %-*s%s  %s", nameColumn, name, padded(start, endColumn), end)
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

// side is one end of a card, a text for each row; none says why there is nothing.
func side(c, before *answer.CardEnd, none string) (out [len(rows)]string) {
	if c == nil {
		out[0] = none
		return out
	}
	out = [...]string{mib(c.UsedBytes), mib(c.FreeBytes), "not tested", "unknown", watched(*c, before)}
	if c.Processes != nil {
		out[3] = fmt.Sprint(*c.Processes)
	}
	if t := c.Test; t != nil && (t.Result == gpu.ProbeOK || t.Result == gpu.ProbeGap) {
		out[2] = mib(t.LargestBytes)
	} else if t != nil && t.Result != gpu.ProbeSkipped {
		out[2] = string(report.Keep(string(t.Result), nameWidth))
	}
	return out
}

// watched words how a card came to rest. Of one that the job got with something on it, clean means no more than that.
func watched(c answer.CardEnd, before *answer.CardEnd) string {
	looks := count(c.Looks, "look", "s")
	switch dirty := before != nil && settle.State(before.State).Dirty(); {
	case c.State == "":
		return "not judged"
	case c.State == string(settle.Clean) && dirty:
		return fmt.Sprintf("no more than at the start after %.1f s (%s)", c.SettleSeconds, looks)
	case c.State == string(settle.Clean):
		return fmt.Sprintf("clean after %.1f s (%s)", c.SettleSeconds, looks)
	}
	return fmt.Sprintf("%s over %.1f s (%s)", report.Keep(c.State, nameWidth), c.WatchSeconds, looks)
}

// model names a card's type and size, where one of its ends was read.
func model(c answer.CardEnds) string {
	text := ""
	if c.Name != "" {
		text = "  " + string(report.Keep(c.Name, nameWidth))
	}
	for _, e := range []*answer.CardEnd{c.Start, c.End} {
		if e != nil && e.TotalBytes != nil {
			return text + "  " + mib(e.TotalBytes)
		}
	}
	return text
}

// end writes one end of a job; of is that end of a card.
func end(w io.Writer, title string, r answer.Run, e answer.End, of func(answer.CardEnds) *answer.CardEnd) {
	at := "at an unknown time"
	if e.At != nil {
		at = e.At.Local().Format(timestamp)
	}
	if e.Unseen != "" {
		fmt.Fprintf(w, "%s: %s, not seen: %s\n", title, at, e.Unseen)
		return // nobody looked
	}
	fmt.Fprintf(w, "%s: %s, %s\n", title, at, inkOf(w).verdict(e.Verdict, outcome(e.Verdict, e.StillBytes)))
	for _, c := range r.Cards {
		if one := of(c); one != nil && one.Test != nil {
			when := ""
			if one.TestedAt != nil && e.At != nil && one.TestedAt.Before(*e.At) {
				when = ", tested at " + one.TestedAt.Local().Format(timestamp)
			}
			fmt.Fprintf(w, "  GPU %s  %s%s\n", cardName(c.Card), test(*one.Test), when)
		}
	}
	conditions(w, r, e)
	for _, f := range e.Findings {
		about(w, f)
	}
	why(w, r, e)
	rest(w, e)
}

// rest says what a record leaves out to stay small.
func rest(w io.Writer, e answer.End) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(e.LeftOut)) {
		parts = append(parts, fmt.Sprintf("%s %d", report.Keep(name, nameWidth), e.LeftOut[name]))
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "  left out of the record, which would be too large: %s\n", strings.Join(parts, ", "))
	}
}

// outcome words a hook's verdict. A card that the job got dirty and gave back so is not simply clean.
func outcome(v answer.Verdict, still uint64) string {
	switch {
	case v.Exit != 0:
		return fmt.Sprintf("DRAIN for %s (exit %d)", v.Code, v.Exit)
	case v.Held != "":
		return fmt.Sprintf("would drain for %s, held back: %s", v.Code, report.Keep(v.Held, 2*nameWidth))
	case v.Code != "":
		return fmt.Sprintf("%s (%s)", v.Action, v.Code)
	case still > 0:
		return "clean; still there from before: " + mib(&still)
	}
	return "clean"
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s%s", n, one, more)
}

// test words one test allocation.
func test(t answer.Test) report.Safe {
	text := "test allocation: "
	switch e := t.Error; {
	case t.Result == gpu.ProbeSkipped:
		text += "not made: " + t.Why
	case t.Result == gpu.ProbeOK || t.Result == gpu.ProbeGap:
		text += fmt.Sprintf("%s, largest block %s of %s free%s", t.Result, mib(t.LargestBytes), mib(t.FreeBytes),
			effort(t))
	case e == nil:
		text += fmt.Sprintf("%s: %s", t.Result, t.Why)
	default:
		text += fmt.Sprintf("%s: %s: %s (%d)", t.Result, e.Call, e.Name, e.Code)
		for _, more := range []string{e.Meaning, e.Remedy} {
			if more != "" {
				text += "; " + more
			}
		}
	}
	return report.Keep(text, textWidth)
}

// effort is what a test took.
func effort(t answer.Test) string {
	text := fmt.Sprintf(" (%s, %.0f ms", count(t.Attempts, "attempt", "s"), t.TookSeconds*1000)
	if t.Method == gpu.WithContext {
		text += ", in a context, which takes some 500 MiB itself"
	}
	return text + ")"
}
