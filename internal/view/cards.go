package view

import (
	"fmt"
	"io"
	"strings"

	"bookend/internal/answer"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/report"
)

// check writes what the last health check found.
func check(w io.Writer, c *answer.LastCheck) {
	if c == nil || c.At == nil {
		return
	}
	i := inkOf(w)
	said := i.in(green, "nothing found")
	switch {
	case c.Stopped:
		said = i.in(yellow, "stopped before it was done")
	case len(c.Codes) > 0:
		said = i.in(yellow, codeList(c.Codes))
	}
	fmt.Fprintf(w, "last health check: %s, %.1f s: %s\n", c.At.Local().Format(timestamp), c.TookSeconds, said)
}

func codeList(codes []code.Code) string {
	words := make([]string, len(codes))
	for at, c := range codes {
		words[at] = string(report.Keep(string(c), nameWidth))
	}
	return strings.Join(words, ", ")
}

// asked writes what the driver and Slurm say of the node.
func asked(w io.Writer, s answer.Status) {
	i := inkOf(w)
	switch d := s.Driver; {
	case d.Unknown["answers"] == answer.NotAsked:
	case d.Answers == nil:
		fmt.Fprintf(w, "driver: not asked: %s\n", report.Keep(d.Unknown["answers"], textWidth))
	case !*d.Answers:
		fmt.Fprintf(w, "driver: %s: %s\n", i.in(red, "no answer"), report.Keep(d.Unknown["release"], textWidth))
	default:
		fmt.Fprintf(w, "driver: %s answered in %.1f s\n", orUnknown(d.Release), d.Seconds)
	}
	if s.Slurm.Unknown["state"] != answer.NotAsked {
		fmt.Fprintf(w, "Slurm: %s\n", slurmState(i, s.Slurm))
	}
}

func orUnknown(text string) report.Safe {
	if text == "" {
		return "unknown release"
	}
	return report.Keep(text, nameWidth)
}

func slurmState(i ink, s answer.SlurmNode) string {
	if s.State == nil {
		return "unknown: " + string(report.Keep(s.Unknown["state"], textWidth))
	}
	text := string(report.Keep(*s.State, nameWidth))
	if s.Drained != nil && *s.Drained {
		text = i.in(red, text) + ", takes no new job"
	} else {
		text += ", takes jobs"
	}
	if s.Reason != nil && *s.Reason != "" {
		text += "; reason: " + string(report.Keep(*s.Reason, textWidth))
		if s.By != "" {
			text += " (by " + string(report.Keep(s.By, nameWidth)) + ")"
		}
	}
	return text
}

// Parts of a bar, in the order in which they are drawn.
const (
	usedMark   = "#" // listed processes, and what the driver takes for them
	oddMark    = "!" // memory that no listed process explains
	freeMark   = "."
	keptMark   = "=" // the driver's own reserve
	unknownBar = "?"
)

// cards draws each card of the node: how full it is, who has it, and what was last found on it.
func cards(w io.Writer, s answer.Status) {
	if len(s.Cards) == 0 {
		return
	}
	fmt.Fprintf(w, "GPUs: %s used, %s used and unexplained, %s free, %s the driver's own\n", usedMark, oddMark,
		freeMark, keptMark)
	for _, c := range s.Cards {
		head := fmt.Sprintf("  %-4s", cardName(c.Card))
		tail := amount(c)
		fmt.Fprintf(w, "%s[%s]  %s\n", head,
			bar(inkOf(w), c, max(10, min(widthOf(w)-len(head)-len(tail)-4, widestBar))), tail)
		onCard(w, s, c)
	}
}

// widestBar: more columns tell nothing more.
const widestBar = 64

// cardName is a card's number: Slurm's, or N of nvidiaN where no record has that.
func cardName(c answer.Card) string {
	switch {
	case c.Index != nil:
		return fmt.Sprint(*c.Index)
	case c.Minor != nil:
		return fmt.Sprintf("(%d)", *c.Minor)
	}
	return "?"
}

func amount(c answer.CardStatus) string {
	if c.UsedBytes == nil {
		return "memory unknown"
	}
	if c.TotalBytes == nil {
		return fmt.Sprintf("%d MiB used", *c.UsedBytes>>20)
	}
	return fmt.Sprintf("%6d of %d MiB", *c.UsedBytes>>20, *c.TotalBytes>>20)
}

// bar is a card's memory in so many columns. What is there is never drawn as nothing.
func bar(i ink, c answer.CardStatus, columns int) string {
	if c.UsedBytes == nil || c.TotalBytes == nil || *c.TotalBytes == 0 {
		return strings.Repeat(unknownBar, columns)
	}
	part := func(bytes uint64) int {
		n := int(float64(min(bytes, *c.TotalBytes)) / float64(*c.TotalBytes) * float64(columns))
		if n == 0 && bytes >= finding.WorthTelling {
			return 1
		}
		return n
	}
	odd := 0
	if c.UnexplainedBytes != nil {
		odd = part(*c.UnexplainedBytes)
	}
	kept := 0
	if c.ReservedBytes != nil {
		kept = part(*c.ReservedBytes)
	}
	all := min(part(*c.UsedBytes), columns)
	odd = min(odd, all)
	kept = min(kept, columns-all)
	return i.in(yellow, strings.Repeat(usedMark, all-odd)) + i.in(red, strings.Repeat(oddMark, odd)) +
		strings.Repeat(freeMark, columns-all-kept) + i.in(dim, strings.Repeat(keptMark, kept))
}

// onCard writes what there is to say of one card.
func onCard(w io.Writer, s answer.Status, c answer.CardStatus) {
	i := inkOf(w)
	fmt.Fprintf(w, "      %s\n", i.in(dim, identity(c.Card)))
	if why := c.Unknown["used_bytes"]; why != "" {
		fmt.Fprintf(w, "      memory: unknown: %s\n", report.Keep(why, textWidth))
	}
	if len(c.Jobs) > 0 {
		fmt.Fprintf(w, "      job:    %s\n", strings.Join(c.Jobs, ", "))
	}
	switch {
	case c.UnexplainedBytes != nil && *c.UnexplainedBytes >= finding.WorthTelling:
		fmt.Fprintf(w, "      %s\n", i.in(red,
			fmt.Sprintf("%d MiB are explained by no listed process", *c.UnexplainedBytes>>20)))
	case c.UnexplainedBytes == nil && c.UsedBytes != nil:
		fmt.Fprintf(w, "      unexplained: unknown: %s\n", report.Keep(c.Unknown["unexplained_bytes"], textWidth))
	}
	for at, p := range c.Processes {
		if at == mostProcesses {
			fmt.Fprintf(w, "      and %d processes more: bookend snapshot\n", len(c.Processes)-at)
			break
		}
		fmt.Fprintf(w, "      %s\n", listed(p))
	}
	if l := c.Last; l != nil {
		fmt.Fprintf(w, "      last:   %s, job %s at %s\n", lastFound(i, *l), report.Keep(l.Job, nameWidth),
			day(l.At, s.At))
	}
}

// mostProcesses of one card are shown; bookend snapshot has them all.
const mostProcesses = 8

func identity(c answer.Card) string {
	text := string(report.Keep(c.UUID, nameWidth))
	if c.Name != "" {
		text += "  " + string(report.Keep(c.Name, nameWidth))
	}
	if c.Minor != nil {
		text += fmt.Sprintf("  nvidia%d", *c.Minor)
	}
	return text
}

func listed(p answer.Process) string {
	text := fmt.Sprintf("PID %d", p.PID)
	switch {
	case p.Gone:
		text += ", which no longer exists"
	case p.UID != nil:
		text += fmt.Sprintf(" (%s), uid %d", report.Keep(p.Name, nameWidth), *p.UID)
	}
	if p.Bytes != nil {
		text += fmt.Sprintf(", %d MiB", *p.Bytes>>20)
	}
	for _, of := range []struct{ what, name string }{{"job ", p.Job}, {"", p.Service}, {"container ", p.Container}} {
		if of.name != "" {
			text += ", " + of.what + string(report.Keep(of.name, nameWidth))
		}
	}
	return text
}

func lastFound(i ink, l answer.LastLook) string {
	switch {
	case len(l.Codes) == 0 && l.Used != nil && *l.Used >= finding.WorthTelling:
		return "nothing that was not there before"
	case len(l.Codes) == 0:
		return i.in(green, "clean")
	}
	return i.in(yellow, codeList(l.Codes))
}
