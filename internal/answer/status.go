package answer

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
)

// Status is what "bookend status" says: the node at a glance.
type Status struct {
	Head
	Node     string                     `json:"node"`
	At       time.Time                  `json:"at"`
	Mode     config.Mode                `json:"mode"`             // observe, enforce
	Driver   *Driver                    `json:"driver,omitempty"` // where it was asked
	Slurm    *SlurmNode                 `json:"slurm,omitempty"`  // where it was asked
	Drain    string                     `json:"drain,omitempty"`  // what Bookend last did about a drain of the node
	Hooks    map[metrics.Hook]time.Time `json:"last_hooks"`       // when one ran last for a job with GPUs, or of itself
	Check    *LastCheck                 `json:"last_check"`       // null where no health check has run
	Recorder *Recorder                  `json:"recorder,omitempty"`
	Cards    []CardStatus               `json:"gpus"`
	Troubles []Trouble                  `json:"troubles"`
	Running  []Run                      `json:"running"`
	Ended    []Run                      `json:"ended"` // the newest few
	OnRecord int                        `json:"ended_on_record"`
	Damaged  []string                   `json:"damaged"` // records that cannot be used

	well map[code.Code]bool // what was looked for, and is none now
}

// Driver is whether the GPUs' driver answers.
type Driver struct {
	Answers bool    `json:"answers"`
	Release string  `json:"release"` // empty where it did not say
	Seconds float64 `json:"took_seconds"`
	Problem string  `json:"problem,omitempty"` // why it does not answer, or not all
}

// SlurmNode is what Slurm says of the node.
type SlurmNode struct {
	State   string    `json:"state"`  // as scontrol shows it: "IDLE+DRAIN"; empty where Slurm did not say
	Drained bool      `json:"drain"`  // it takes no new job
	Reason  string    `json:"reason"` // empty for none
	By      string    `json:"reason_by"`
	Since   time.Time `json:"reason_since,omitzero"`
	Problem string    `json:"problem,omitempty"` // why Slurm did not say
}

// LastCheck is what the last health check found.
type LastCheck struct {
	At          time.Time   `json:"at"`
	TookSeconds float64     `json:"took_seconds"`
	Stopped     bool        `json:"stopped"` // before it was done: it has found nothing, and says nothing
	Codes       []code.Code `json:"codes"`   // without those that policy ignores or only notes
}

// Recorder is the one at work on the node.
type Recorder struct {
	At      time.Time `json:"at"`      // of its last sample
	Jobs    int       `json:"jobs"`    // that it samples
	Problem string    `json:"problem"` // why it sees nothing now; empty where it does
}

// Trouble is something wrong with Bookend, the driver or the node's file systems.
type Trouble struct {
	Code   code.Code        `json:"code"` // empty for one that is no finding
	Title  string           `json:"title"`
	Said   []string         `json:"said"` // what was seen
	Remedy string           `json:"remedy"`
	Met    *metrics.Trouble `json:"met,omitempty"` // by hooks
}

// See adds what is seen to be wrong now, or of a code, with no words, that there is none of it.
func (s *Status) See(c code.Code, said string) {
	if said == "" {
		if s.well == nil {
			s.well = map[code.Code]bool{}
		}
		s.well[c] = true
		return
	}
	i := slices.IndexFunc(s.Troubles, func(t Trouble) bool { return c != "" && t.Code == c })
	if i < 0 {
		i = len(s.Troubles)
		entry, _ := code.Lookup(c)
		s.Troubles = append(s.Troubles, Trouble{Code: c, Title: entry.Title, Remedy: entry.Remedy})
	}
	s.Troubles[i].Said = append(s.Troubles[i].Said, said)
}

// Meet adds the troubles that hooks have counted: those that the last one met, and of what is seen now since when.
func (s *Status) Meet(counted []metrics.Trouble) {
	for _, m := range counted {
		is := func(t Trouble) bool { return t.Code == m.Code }
		if !slices.ContainsFunc(s.Troubles, is) && m.Clear == 0 && !s.well[m.Code] {
			s.See(m.Code, string(m.Detail))
		}
		if i := slices.IndexFunc(s.Troubles, is); i >= 0 {
			s.Troubles[i].Met = &m
		}
	}
}

// Checked adds what the last health check found.
func (s *Status) Checked(c ledger.Check) {
	s.Check = &LastCheck{At: c.Wall, TookSeconds: c.Took.Round(time.Millisecond).Seconds(), Stopped: c.Stopped,
		Codes: []code.Code{}}
	for i, f := range c.Findings {
		if c.Verdict.Tells(i) && !slices.Contains(s.Check.Codes, f.Code) {
			s.Check.Codes = append(s.Check.Codes, f.Code)
		}
	}
}

const recent = 5

// NewStatus is the document of a node with these runs, when all else is in it.
func NewStatus(s Status, runs []ledger.Run) Status {
	var live, ended []ledger.Run
	for _, r := range runs {
		if r.Closed() {
			ended = append(ended, r)
		} else if r.Running(runs) {
			live = append(live, r)
		}
	}
	ended = ledger.Newest(ended)
	s.Head, s.Running, s.OnRecord = head(KindStatus), newRuns(live, runs), len(ended)
	s.Ended = newRuns(ended[:min(len(ended), recent)], runs)
	s.Cards, s.Troubles = append([]CardStatus{}, s.Cards...), append([]Trouble{}, s.Troubles...)
	s.Damaged = append([]string{}, s.Damaged...)
	return cleaned(s)
}

// Sound reports a node with no trouble now and, as far as is known, nothing on its GPUs that should not be there.
func (s Status) Sound() bool {
	return len(s.Troubles)+len(s.Damaged) == 0 && !s.drained() && !slices.ContainsFunc(s.Cards, CardStatus.problem)
}

func (s Status) drained() bool { return s.Slurm != nil && s.Slurm.Drained }

// Text writes the node at a glance: how it is, what is wrong, its GPUs, its last jobs, and what to type next.
func (s Status) Text(w io.Writer) {
	problems := "no problems"
	if n := s.problems(); n > 0 {
		problems = count(n, "PROBLEM", "S")
	}
	line := []string{s.Node, string(s.Mode), problems}
	if d := s.Driver; d != nil && d.Answers {
		line = append(line, "driver "+cmp.Or(d.Release, "of an unknown release")+" ok")
	} else if d != nil {
		line = append(line, "driver NO ANSWER")
	}
	if s.Slurm != nil && s.Slurm.State != "" {
		line = append(line, "Slurm "+s.Slurm.State)
	}
	fmt.Fprintln(w, strings.Join(line, "  "))
	s.troublesText(w)
	s.askedText(w)
	s.cardsText(w)
	s.jobsText(w)
	s.hooksText(w)
	if next := s.next(); next != "" {
		fmt.Fprintln(w, "Next: "+next)
	}
}

func (s Status) problems() int {
	n := len(s.Troubles) + len(s.Damaged)
	for _, c := range s.Cards {
		if c.problem() {
			n++
		}
	}
	if s.Driver != nil && !s.Driver.Answers || n == 0 && s.drained() {
		n++
	}
	return n
}

// next is the command that shows more of the first problem; empty without one.
func (s Status) next() string {
	if i := slices.IndexFunc(s.Cards, CardStatus.problem); i >= 0 {
		c := s.Cards[i]
		for _, p := range c.Processes {
			if p.Cgroup.Found() {
				return "bookend show " + p.Cgroup.Name()
			}
		}
		if c.Last != nil && len(c.Last.Codes) > 0 {
			return "bookend show " + c.Last.Job
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

func (s Status) troublesText(w io.Writer) {
	for _, t := range s.Troubles {
		if t.Code == "" {
			fmt.Fprintf(w, "  trouble: %s\n", strings.Join(t.Said, "; "))
			continue
		}
		fmt.Fprintf(w, "  trouble: %s, %s\n", t.Code, t.Title)
		for _, said := range t.Said {
			fmt.Fprintf(w, "    %s\n", said)
		}
		if m := t.Met; m != nil {
			fmt.Fprintf(w, "    met by %s since %s, last by %s\n", count(int(m.Count), "hook", "s"), stamp(m.Since),
				lastBy(*m))
		}
		fmt.Fprintf(w, "    do: %s\n", t.Remedy)
	}
	for _, line := range some(s.Damaged, 10, "and %d more: bookend history", strings.Clone) {
		fmt.Fprintf(w, "  trouble: damaged record set aside: %s\n", line)
	}
}

func lastBy(m metrics.Trouble) string {
	if m.Job == 0 {
		return fmt.Sprintf("the %s at %s", hookName(m.Hook), stamp(m.Last))
	}
	return fmt.Sprintf("the %s of job %d at %s (bookend show %[2]d)", m.Hook, m.Job, stamp(m.Last))
}

func hookName(h metrics.Hook) string { return strings.ReplaceAll(string(h), "_", " ") }

// askedText writes why driver or Slurm gave no answer, and why the node takes no jobs.
func (s Status) askedText(w io.Writer) {
	if d := s.Driver; d != nil && !d.Answers {
		fmt.Fprintf(w, "driver: no answer: %s\n", d.Problem)
	}
	switch n := s.Slurm; {
	case n == nil:
	case n.State == "":
		fmt.Fprintf(w, "Slurm: unknown: %s\n", n.Problem)
	case n.Reason != "":
		fmt.Fprintf(w, "reason: %s (by %s)\n", n.Reason, cmp.Or(n.By, "unknown"))
	}
	if s.Drain != "" {
		fmt.Fprintf(w, "drain: %s\n", s.Drain)
	}
}

func (s Status) cardsText(w io.Writer) {
	if len(s.Cards) == 0 {
		return
	}
	rows := []string{row("GPU", "USED", "STATE", "JOB", "PROCESS")}
	for _, problem := range []bool{true, false} {
		for _, c := range s.Cards {
			if c.problem() == problem {
				rows = append(rows, c.rows(s.At)...)
			}
		}
	}
	table(w, rows...)
}

// jobsText is a table of the jobs that have GPUs now, and of those that ended last.
func (s Status) jobsText(w io.Writer) {
	if len(s.Running)+len(s.Ended) == 0 {
		return
	}
	rows := []string{row("\nJOB", "GPU", "USER", "WHEN", "RESULT")}
	for _, r := range append(slices.Clone(s.Running), s.Ended...) {
		when, came := "ended "+day(r.EndedAt, s.At), "-"
		switch {
		case r.State == Running:
			when = "since " + day(r.BeganAt, s.At)
		case r.End != nil:
			came = outcome(*r.End, r.StillBytes)
		default:
			when, came = "began "+day(r.BeganAt, s.At), "not seen: "+r.Unseen
		}
		if r.State != Running && r.Start != nil && r.Start.Code != "" {
			came += "; at its start: " + outcome(*r.Start, 0)
		}
		rows = append(rows, row(r.name(), r.gpus(), owner(r.User, r.UID), when, came))
	}
	table(w, rows...)
	if more := s.OnRecord - len(s.Ended); more > 0 {
		fmt.Fprintf(w, "%s on record: bookend history\n", count(more, "more job", "s"))
	}
}

// hooksText says when each hook ran last, what the last health check found, and whether the recorder runs.
func (s Status) hooksText(w io.Writer) {
	var ran []string
	for _, h := range []metrics.Hook{metrics.Prolog, metrics.Epilog, metrics.HealthCheck} {
		if at := s.Hooks[h]; !at.IsZero() {
			ran = append(ran, hookName(h)+" "+day(at, s.At))
		}
	}
	if c := s.Check; c != nil && c.Stopped {
		ran = append(ran, "health check stopped before it was done")
	} else if c != nil && len(c.Codes) > 0 {
		codes := each(c.Codes, func(c code.Code) string { return string(c) })
		ran = append(ran, "health check found "+strings.Join(codes, ", "))
	}
	if r := s.Recorder; r != nil && r.Problem != "" {
		ran = append(ran, "recorder sees nothing: "+r.Problem)
	} else if r != nil {
		ran = append(ran, fmt.Sprintf("recorder %s (%s)", day(r.At, s.At), count(r.Jobs, "job", "s")))
	} else if len(s.Running) > 0 {
		ran = append(ran, "no recorder")
	}
	if len(ran) > 0 {
		fmt.Fprintln(w, "last hooks: "+strings.Join(ran, ", "))
	}
}
