package answer

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/report"
)

// Text writes the node at a glance.
func (s Status) Text(w io.Writer) {
	i := inkOf(w)
	fmt.Fprintf(w, "%s: mode %s\n", i.in(bold, "node "+name(s.Node)), s.Mode)
	s.troublesText(w)
	if s.Slurm.Bookend != "" {
		fmt.Fprintf(w, "drain: %s\n", cut(s.Slurm.Bookend))
	}
	s.hooksText(w)
	s.askedText(w)
	s.cardsText(w)
	fmt.Fprintf(w, "jobs with GPUs now: %d\n", len(s.Running))
	for _, r := range s.Running {
		fmt.Fprintf(w, "  job %s  GPU %s  since %s\n", r.name(), indexes(r.Cards), day(r.BeganAt, s.At))
	}
	fmt.Fprintf(w, "ended jobs on record: %d\n", s.OnRecord)
	for _, r := range s.Ended {
		came := "not seen: " + cut(r.Unknown["ended_at"])
		if r.End != nil {
			came = i.verdict(*r.End, r.End.text(r.StillBytes))
		}
		if r.Start != nil && r.Start.Code != "" {
			came += "; at its start: " + r.Start.text(0)
		}
		fmt.Fprintf(w, "  job %s  GPU %s  %s  %s\n", r.name(), indexes(r.Cards),
			day(cmp.Or(r.EndedAt, r.BeganAt), s.At), came)
	}
}

// day is a moment as people say it on a day: of another one with its date.
func day(at, now *time.Time) string {
	if at != nil && (now == nil || at.Local().Format(time.DateOnly) == now.Local().Format(time.DateOnly)) {
		return at.Local().Format(time.TimeOnly)
	}
	return stamp(at)
}

// mostDamaged is how many damaged records are named.
const mostDamaged = 10

// troublesText writes what is wrong, then what was until lately.
func (s Status) troublesText(w io.Writer) {
	i := inkOf(w)
	for _, t := range s.Troubles {
		switch {
		case t.Code == "":
			fmt.Fprintf(w, "  %s: %s\n", i.in(red, "trouble"), strings.Join(t.Said, "; "))
		default:
			t.text(w)
		}
	}
	for _, t := range s.Before {
		since := "not now"
		if t.Without > 0 {
			since = fmt.Sprintf("not by the %s since", count(int(t.Without), "hook", "s"))
		}
		fmt.Fprintf(w, "  seen before: %s, %s: last by %s, %s\n", t.Code, t.Title, t.lastBy(), since)
	}
	for at, d := range s.Damaged {
		if at == mostDamaged {
			fmt.Fprintf(w, "  %s: damaged records more: %d (bookend history names them all)\n", i.in(red, "trouble"),
				len(s.Damaged)-at)
			break
		}
		fmt.Fprintf(w, "  %s: damaged record set aside: %s: %s\n", i.in(red, "trouble"), cut(d.Path), cut(d.Why))
	}
}

// text writes one that stands: what, what was seen and when, and what to do about it.
func (t Trouble) text(w io.Writer) {
	fmt.Fprintf(w, "  %s: %s, %s\n", inkOf(w).in(red, "trouble"), t.Code, t.Title)
	for _, said := range t.Said {
		fmt.Fprintf(w, "    %s\n", cut(said))
	}
	if t.Since != nil {
		fmt.Fprintf(w, "    met by %s since %s, last by %s\n", count(int(t.Hooks), "hook", "s"), stamp(t.Since), t.lastBy())
	}
	fmt.Fprintf(w, "    do: %s\n", t.Remedy)
}

func (t Trouble) lastBy() string {
	if t.LastJob == "" {
		return fmt.Sprintf("the %s at %s", t.LastHook, stamp(t.LastAt))
	}
	return fmt.Sprintf("the %s of job %s at %s (bookend show %s)", t.LastHook, t.LastJob, stamp(t.LastAt), t.LastJob)
}

// hooksText says when the hooks ran last, and what the last health check found.
func (s Status) hooksText(w io.Writer) {
	var ran []string
	for _, h := range s.Hooks {
		if h.At != nil {
			ran = append(ran, strings.ReplaceAll(h.Hook, "_", " ")+" "+stamp(h.At))
		}
	}
	if len(ran) > 0 {
		fmt.Fprintln(w, "last hooks: "+strings.Join(ran, ", "))
	}
	if s.Check == nil || s.Check.At == nil {
		return
	}
	i, said := inkOf(w), "nothing found"
	switch {
	case s.Check.Stopped:
		said = i.in(yellow, "stopped before it was done")
	case len(s.Check.Codes) > 0:
		said = i.in(yellow, codeList(s.Check.Codes))
	}
	fmt.Fprintf(w, "last health check: %s, %.1f s: %s\n", stamp(s.Check.At), s.Check.TookSeconds, said)
}

func codeList(codes []code.Code) string {
	words := make([]string, len(codes))
	for at, c := range codes {
		words[at] = name(string(c))
	}
	return strings.Join(words, ", ")
}

// askedText writes what the driver and Slurm say of the node.
func (s Status) askedText(w io.Writer) {
	i := inkOf(w)
	switch d := s.Driver; {
	case d.Unknown["answers"] == NotAsked:
	case d.Answers == nil:
		fmt.Fprintf(w, "driver: not asked: %s\n", cut(d.Unknown["answers"]))
	case !*d.Answers:
		fmt.Fprintf(w, "driver: %s: %s\n", i.in(red, "no answer"), cut(d.Unknown["release"]))
	default:
		fmt.Fprintf(w, "driver: %s answered in %.1f s\n", cmp.Or(name(d.Release), "unknown release"), d.Seconds)
	}
	if s.Slurm.Unknown["state"] != NotAsked {
		fmt.Fprintf(w, "Slurm: %s\n", s.Slurm.text(i))
	}
}

func (n SlurmNode) text(i ink) string {
	if n.State == nil {
		return "unknown: " + cut(n.Unknown["state"])
	}
	text := name(*n.State)
	if n.Drained != nil && *n.Drained {
		text = i.in(red, text) + ", takes no new job"
	} else {
		text += ", takes jobs"
	}
	if n.Reason != nil && *n.Reason != "" {
		text += "; reason: " + cut(*n.Reason)
		if n.By != "" {
			text += " (by " + name(n.By) + ")"
		}
	}
	return text
}

// mostProcesses of one GPU are shown; bookend snapshot has them all.
const mostProcesses = 8

// cardsText is a table of the node's GPUs: how full each is, who has it, and what was last found on it.
func (s Status) cardsText(w io.Writer) {
	if len(s.Cards) == 0 {
		return
	}
	rows := []string{"GPU\tUSED\tUNEXPLAINED\tJOB\tLAST FOUND\tPROCESS"}
	for _, c := range s.Cards {
		processes := []string{"-"}
		for at, p := range c.Processes {
			if at == mostProcesses {
				processes = append(processes, fmt.Sprintf("and %d more: bookend snapshot", len(c.Processes)-at))
				break
			}
			processes = append(processes[:at], p.short())
		}
		row := []string{c.number(), c.used(), c.unexplained(), cmp.Or(strings.Join(c.Jobs, ","), "-"), c.Last.text(), ""}
		for _, p := range processes {
			row[5] = p
			rows = append(rows, strings.Join(row, "\t"))
			row = make([]string, 6)
		}
	}
	table(w, rows...)
}

// number is a GPU's: Slurm's, or N of nvidiaN in brackets where no record has that.
func (c Card) number() string {
	switch {
	case c.Index != nil:
		return fmt.Sprint(*c.Index)
	case c.Minor != nil:
		return fmt.Sprintf("(%d)", *c.Minor)
	}
	return "?"
}

// identity names a GPU beyond its number.
func (c Card) identity() string {
	text := name(c.UUID)
	if c.Name != "" {
		text += "  " + name(c.Name)
	}
	if c.Minor != nil {
		text += fmt.Sprintf("  nvidia%d", *c.Minor)
	}
	return text
}

func (c CardStatus) used() string {
	if c.UsedBytes == nil {
		return "unknown: " + string(report.Keep(c.Unknown["used_bytes"], nameWidth))
	}
	return size(c.UsedBytes) + " of " + size(c.TotalBytes)
}

func (c CardStatus) unexplained() string {
	switch {
	case c.UnexplainedBytes == nil && c.UsedBytes != nil:
		return "unknown: " + name(c.Unknown["unexplained_bytes"])
	case c.UnexplainedBytes == nil || *c.UnexplainedBytes < finding.WorthTelling:
		return "-"
	}
	return size(c.UnexplainedBytes)
}

// text is what was found at the last look: on record, not now.
func (l *LastLook) text() string {
	switch {
	case l == nil:
		return "-"
	case len(l.Codes) > 0:
		return codeList(l.Codes) + " (job " + name(l.Job) + ")"
	case l.Used != nil && *l.Used >= finding.WorthTelling:
		return "as before (job " + name(l.Job) + ")"
	}
	return "clean (job " + name(l.Job) + ")"
}

// short is a process in a table.
func (p Process) short() string {
	text := fmt.Sprint(p.PID)
	switch {
	case p.Gone:
		text += " gone"
	case p.UID != nil:
		text += fmt.Sprintf(" %s (uid %d)", name(p.Name), *p.UID)
	}
	if p.Bytes != nil {
		text += " " + size(p.Bytes)
	}
	for _, of := range []struct{ what, name string }{{"job ", p.Job}, {"", p.Service}, {"container ", p.Container}} {
		if of.name != "" {
			text += ", " + of.what + name(of.name)
		}
	}
	return text
}
