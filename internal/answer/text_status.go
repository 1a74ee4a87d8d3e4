package answer

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/report"
)

// Text writes the node at a glance: how it is, what is wrong, its GPUs, its last jobs, and what to type next.
func (s Status) Text(w io.Writer) {
	i := inkOf(w)
	problems := i.in(green, "no problems")
	if n := s.problems(); n > 0 {
		problems = i.in(red, count(n, "PROBLEM", "S"))
	}
	fmt.Fprintf(w, "%s  %s  %s%s%s\n", i.in(bold, name(s.Node)), s.Mode, problems, s.Driver.text(i), s.Slurm.text(i))
	s.troublesText(w)
	s.askedText(w)
	s.cardsText(w)
	s.jobsText(w)
	s.hooksText(w)
	if next := s.next(); next != "" {
		fmt.Fprintln(w, "Next: "+next)
	}
}

// problems counts what an admin has to look at.
func (s Status) problems() int {
	n := len(s.Troubles) + len(s.Damaged)
	for _, c := range s.Cards {
		if c.problem() {
			n++
		}
	}
	if s.Driver.Answers != nil && !*s.Driver.Answers || n == 0 && s.drained() {
		n++
	}
	return n
}

func (s Status) drained() bool { return s.Slurm.Drained != nil && *s.Slurm.Drained }

// next is the command that shows more of the first problem; empty without one.
func (s Status) next() string {
	for _, c := range s.Cards {
		if !c.problem() {
			continue
		}
		for _, p := range c.Processes {
			if p.Job != "" {
				return "bookend show " + name(p.Job)
			}
		}
		if c.Last != nil && len(c.Last.Codes) > 0 {
			return "bookend show " + name(c.Last.Job)
		}
		return "bookend snapshot"
	}
	switch {
	case s.problems() == 0:
		return ""
	case s.drained():
		return "bookend history --found"
	}
	return "bookend doctor"
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
	wrong := inkOf(w).in(red, "trouble")
	for _, t := range s.Troubles {
		if t.Code == "" {
			fmt.Fprintf(w, "  %s: %s\n", wrong, cut(strings.Join(t.Said, "; ")))
			continue
		}
		fmt.Fprintf(w, "  %s: %s, %s\n", wrong, t.Code, t.Title)
		for _, said := range t.Said {
			fmt.Fprintf(w, "    %s\n", cut(said))
		}
		if t.Since != nil {
			fmt.Fprintf(w, "    met by %s since %s, last by %s\n", count(int(t.Hooks), "hook", "s"), stamp(t.Since),
				t.lastBy())
		}
		fmt.Fprintf(w, "    do: %s\n", t.Remedy)
	}
	for _, t := range s.Before {
		since := "not now"
		if t.Without > 0 {
			since = fmt.Sprintf("not by the %s since", count(int(t.Without), "hook", "s"))
		}
		fmt.Fprintf(w, "  seen before: %s, %s: last by %s, %s\n", t.Code, t.Title, t.lastBy(), since)
	}
	for _, d := range s.Damaged[:min(len(s.Damaged), mostDamaged)] {
		fmt.Fprintf(w, "  %s: damaged record set aside: %s: %s\n", wrong, cut(d.Path), cut(d.Why))
	}
	if more := len(s.Damaged) - mostDamaged; more > 0 {
		fmt.Fprintf(w, "  %s: damaged records more: %d (bookend history names them all)\n", wrong, more)
	}
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
			ran = append(ran, strings.ReplaceAll(h.Hook, "_", " ")+" "+day(h.At, s.At))
		}
	}
	if c := s.Check; c != nil && c.At != nil && c.Stopped {
		ran = append(ran, "health check stopped before it was done")
	} else if c != nil && c.At != nil && len(c.Codes) > 0 {
		found := strings.Trim(fmt.Sprint(c.Codes), "[]")
		ran = append(ran, "health check found "+inkOf(w).in(yellow, cut(strings.ReplaceAll(found, " ", ", "))))
	}
	if r := s.Recorder; r != nil && r.Problem != "" {
		ran = append(ran, "recorder "+inkOf(w).in(yellow, cut("sees nothing: "+name(r.Problem))))
	} else if r != nil && r.At != nil {
		ran = append(ran, fmt.Sprintf("recorder %s (%s)", day(r.At, s.At), count(r.Jobs, "job", "s")))
	}
	if len(ran) > 0 {
		fmt.Fprintln(w, "last hooks: "+strings.Join(ran, ", "))
	}
}

// text is the driver in a word or two of the first line.
func (d Driver) text(i ink) string {
	switch {
	case d.Answers == nil:
		return ""
	case !*d.Answers:
		return "  driver " + i.in(red, "NO ANSWER")
	}
	return "  driver " + cmp.Or(name(d.Release), "of an unknown release") + " ok"
}

// text is the node's state in Slurm.
func (n SlurmNode) text(i ink) string {
	switch {
	case n.State == nil:
		return ""
	case n.Drained != nil && *n.Drained:
		return "  Slurm " + i.in(red, name(*n.State))
	}
	return "  Slurm " + name(*n.State)
}

// askedText writes why driver or Slurm gave no answer, and why the node takes no jobs.
func (s Status) askedText(w io.Writer) {
	switch d := s.Driver; {
	case d.Unknown["answers"] == NotAsked:
	case d.Answers == nil:
		fmt.Fprintf(w, "driver: not asked: %s\n", cut(d.Unknown["answers"]))
	case !*d.Answers:
		fmt.Fprintf(w, "driver: no answer: %s\n", cut(d.Unknown["release"]))
	}
	switch n := s.Slurm; {
	case n.Unknown["state"] == NotAsked:
	case n.State == nil:
		fmt.Fprintf(w, "Slurm: unknown: %s\n", cut(n.Unknown["state"]))
	case n.Reason != nil && *n.Reason != "" && n.By != "":
		fmt.Fprintf(w, "reason: %s (by %s)\n", cut(*n.Reason), name(n.By))
	case n.Reason != nil && *n.Reason != "":
		fmt.Fprintf(w, "reason: %s\n", cut(*n.Reason))
	}
	if s.Slurm.Bookend != "" {
		fmt.Fprintf(w, "drain: %s\n", cut(s.Slurm.Bookend))
	}
}

// mostProcesses of one GPU are shown; bookend snapshot has them all.
const mostProcesses = 8

// cardsText is a table of the node's GPUs, those with a problem first.
func (s Status) cardsText(w io.Writer) {
	if len(s.Cards) == 0 {
		return
	}
	rows := []string{"GPU\tUSED\tSTATE\tJOB\tPROCESS"}
	for _, problem := range []bool{true, false} {
		for _, c := range s.Cards {
			if c.problem() == problem {
				rows = append(rows, c.rows(s.At)...)
			}
		}
	}
	table(w, rows...)
}

// rows are a GPU's: one for each process.
func (c CardStatus) rows(now *time.Time) (rows []string) {
	processes := []string{"-"}
	for at, p := range c.Processes {
		if at == mostProcesses {
			processes = append(processes, fmt.Sprintf("and %d more: bookend snapshot", len(c.Processes)-at))
			break
		}
		processes = append(processes[:at], p.short(now, len(c.Processes) > 1))
	}
	state := c.state()
	if state == stateUnexplained {
		state += " " + size(c.UnexplainedBytes)
	}
	first := []string{c.number(), c.used(), state, cmp.Or(strings.Join(c.Jobs, ","), "-")}
	for _, p := range processes {
		rows = append(rows, strings.Join(append(first, p), "\t"))
		first = make([]string, len(first))
	}
	return rows
}

// The states of a GPU; in capitals what an admin has to look at.
const (
	stateUnknown     = "unknown"
	stateInUse       = "in use"
	stateFree        = "free"
	stateLeftover    = "LEFTOVER"    // a process of a job that is over, or what its end found is still there
	stateUnexplained = "UNEXPLAINED" // memory that no listed process has
	stateStray       = "STRAY"       // a process of no job that has this GPU, and of no service
)

func (c CardStatus) problem() bool {
	s := c.state()
	return s == stateLeftover || s == stateUnexplained || s == stateStray
}

// state says in a word how a GPU is.
func (c CardStatus) state() string {
	left := func(p Process) bool { return p.JobEnded != nil || p.Gone && len(c.Jobs) == 0 }
	stray := func(p Process) bool { return p.Job != "" || p.Service == "" && p.UID != nil && *p.UID != 0 }
	strays := slices.ContainsFunc(c.Processes, stray)
	unexplained := c.UnexplainedBytes != nil && *c.UnexplainedBytes >= finding.WorthTelling
	switch {
	case c.UsedBytes == nil:
		return stateUnknown
	case slices.ContainsFunc(c.Processes, left), (unexplained || strays && len(c.Jobs) == 0) && c.Last.stays():
		return stateLeftover
	case unexplained:
		return stateUnexplained
	case strays && len(c.Jobs) == 0:
		return stateStray
	case len(c.Jobs)+len(c.Processes) > 0:
		return stateInUse
	}
	return stateFree
}

// stays reports that the last look found memory of a job that is over.
func (l *LastLook) stays() bool {
	return l != nil && slices.ContainsFunc(l.Codes, func(c code.Code) bool { return c.Traits().Memory.Stays() })
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
	if c.Node != "" {
		text += "  " + c.Node
	}
	return text
}

func (c CardStatus) used() string {
	switch {
	case c.UsedBytes == nil:
		return "unknown: " + string(report.Keep(c.Unknown["used_bytes"], nameWidth))
	case c.TotalBytes == nil:
		return size(c.UsedBytes)
	}
	return fmt.Sprintf("%.1f/%.1f GiB", gib(*c.UsedBytes), gib(*c.TotalBytes))
}

func gib(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

// short is a process in a table; its memory is told where several share the GPU.
func (p Process) short(now *time.Time, several bool) string {
	text, facts := fmt.Sprint(p.PID), []string{}
	if p.Gone {
		text += " gone"
	} else if p.Name != "" {
		text += " " + name(p.Name)
	}
	if p.UID != nil {
		facts = append(facts, owner(p.User, *p.UID))
	}
	for _, of := range []struct{ what, name string }{{"job ", p.Job}, {"", p.Service}, {"container ", p.Container}} {
		if of.name != "" {
			facts = append(facts, of.what+name(of.name))
		}
	}
	if p.JobEnded != nil {
		facts = append(facts, "ended "+day(p.JobEnded, now))
	}
	if p.Bytes != nil && several {
		facts = append(facts, size(p.Bytes))
	}
	if len(facts) == 0 {
		return text
	}
	return text + " (" + strings.Join(facts, ", ") + ")"
}

// jobsText is a table of the jobs that have GPUs now, and of those that ended last.
func (s Status) jobsText(w io.Writer) {
	if len(s.Running)+len(s.Ended) == 0 {
		return
	}
	fmt.Fprintln(w)
	i, rows := inkOf(w), []string{"JOB\tGPU\tUSER\tWHEN\tRESULT"}
	for _, r := range s.Running {
		rows = append(rows, strings.Join([]string{r.name(), indexes(r.Cards), owner(r.User, r.UID),
			"since " + day(r.BeganAt, s.At), "-"}, "\t"))
	}
	for _, r := range s.Ended {
		when, came := "ended "+day(r.EndedAt, s.At), ""
		if r.End != nil {
			came = i.verdict(*r.End, outcome(*r.End, r.StillBytes))
		} else {
			when, came = "began "+day(r.BeganAt, s.At), "not seen: "+cut(r.Unknown["ended_at"])
		}
		if r.Start != nil && r.Start.Code != "" {
			came += "; at its start: " + outcome(*r.Start, 0)
		}
		rows = append(rows, strings.Join([]string{r.name(), indexes(r.Cards), owner(r.User, r.UID), when, came}, "\t"))
	}
	table(w, rows...)
	if more := s.OnRecord - len(s.Ended); more > 0 {
		fmt.Fprintf(w, "%s on record: bookend history\n", count(more, "more job", "s"))
	}
}
