package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/metrics"
	"bookend/internal/record"
)

// Status is printed by "bookend status": an overview of the node.
type Status struct {
	Head
	Node     string                     `json:"node"`
	At       time.Time                  `json:"at"`
	Mode     string                     `json:"mode"`             // observe, enforce
	Driver   *DriverStatus              `json:"driver,omitempty"` // if it was queried
	Slurm    *SlurmNode                 `json:"slurm,omitempty"`  // if it was queried
	Drain    string                     `json:"drain,omitempty"`  // what Bookend last did about a drain of the node
	Hooks    map[metrics.Hook]time.Time `json:"last_hooks"`       // last run for a job with GPUs, or of the check
	Check    *LastCheck                 `json:"last_check"`       // null if no health check has run
	Recorder *Recorder                  `json:"recorder,omitempty"`
	GPUs     []GPUStatus                `json:"gpus"`
	Struck   []record.Struck            `json:"gpu_faults,omitempty"` // GPUs with faults that speak against them
	Troubles []Trouble                  `json:"troubles"`
	Running  []RunSummary               `json:"running"`
	Ended    []RunSummary               `json:"ended"` // the newest few
	OnRecord int                        `json:"ended_on_record"`
	Damaged  []string                   `json:"damaged"`            // records that cannot be used
	Unlogged string                     `json:"unlogged,omitempty"` // how many ended jobs' reports are in no file

	refuted []catalog.Code // codes that were checked now and found not to apply
}

// DriverStatus reports whether the GPUs' driver answers.
type DriverStatus struct {
	Answers bool    `json:"answers"`
	Release string  `json:"release"` // empty if it is unknown
	Seconds float64 `json:"took_seconds"`
	Problem string  `json:"problem,omitempty"` // why it does not answer, or not fully
}

// SlurmNode is Slurm's state of the node.
type SlurmNode struct {
	State   string    `json:"state"`  // as scontrol shows it: "IDLE+DRAIN"; empty if unknown
	Drained bool      `json:"drain"`  // it accepts no new jobs
	Reason  string    `json:"reason"` // empty if there is none
	By      string    `json:"reason_by"`
	Since   time.Time `json:"reason_since,omitzero"`
	Problem string    `json:"problem,omitempty"` // why the state is unknown
}

// LastCheck is the result of the last health check.
type LastCheck struct {
	At          time.Time      `json:"at"`
	TookSeconds float64        `json:"took_seconds"`
	Stopped     bool           `json:"stopped"` // stopped before it finished: it has no findings, which proves nothing
	Codes       []catalog.Code `json:"codes"`   // without findings that policy ignores or only notes
}

// Recorder is the recorder that is running on the node.
type Recorder struct {
	At      time.Time `json:"at"`      // time of its last sample
	Jobs    int       `json:"jobs"`    // number of jobs it samples
	Problem string    `json:"problem"` // why it reads nothing now; empty if it does
}

// Trouble is a problem of Bookend, the driver or the node's file systems.
type Trouble struct {
	Code   catalog.Code `json:"code"` // empty if it has no finding code
	Title  string       `json:"title"`
	Seen   []string     `json:"said"` // what was found
	Remedy string       `json:"remedy"`
	Met    *Met         `json:"met,omitempty"` // by hooks
}

// Met is how often hooks met a trouble.
type Met struct {
	Since time.Time    `json:"since"` // since then no day was without it
	Last  time.Time    `json:"last"`
	Count uint64       `json:"count"`
	Hook  metrics.Hook `json:"hook"` // that met it last
	Job   uint32       `json:"job"`  // of that hook
}

// AddTrouble adds a problem that exists now. An empty text means that the code was checked and does not apply.
func (s *Status) AddTrouble(c catalog.Code, seen string) {
	if seen == "" {
		s.refuted = append(s.refuted, c)
		return
	}
	i := s.trouble(c)
	if i < 0 || c == "" {
		i = len(s.Troubles)
		entry, _ := catalog.Lookup(c)
		s.Troubles = append(s.Troubles, Trouble{Code: c, Title: entry.Title, Remedy: entry.Remedy})
	}
	s.Troubles[i].Seen = append(s.Troubles[i].Seen, seen)
}

func (s *Status) trouble(c catalog.Code) int {
	return slices.IndexFunc(s.Troubles, func(t Trouble) bool { return t.Code == c })
}

func (s *Status) AddUnread(what string, err error) {
	if err != nil {
		s.AddTrouble("", fmt.Sprintf("%s cannot be read: %v", what, err))
	}
}

func (s *Status) AddCounts(varDir string) {
	counts, err := metrics.Read(varDir)
	s.AddUnread("what the hooks have counted", err)
	s.Hooks = counts.Last
	s.addMet(counts.Troubles)
}

// addMet adds the hooks' counts to the troubles, and a trouble that the last hook met unless a check now refutes it.
func (s *Status) addMet(counted []metrics.Trouble) {
	for _, m := range counted {
		if s.trouble(m.Code) < 0 && m.Clear == 0 && !slices.Contains(s.refuted, m.Code) {
			s.AddTrouble(m.Code, string(m.Detail))
		}
		if i := s.trouble(m.Code); i >= 0 {
			s.Troubles[i].Met = &Met{m.Since, m.Last, m.Count, m.Hook, m.Job}
		}
	}
}

func (s *Status) AddCheck(c record.Check) {
	s.Check = &LastCheck{At: c.Wall, TookSeconds: c.Took.Round(time.Millisecond).Seconds(), Stopped: c.Stopped,
		Codes: []catalog.Code{}}
	for i, f := range c.Findings {
		if c.Verdict.Tells(i) && !slices.Contains(s.Check.Codes, f.Code) {
			s.Check.Codes = append(s.Check.Codes, f.Code)
		}
	}
}

// NewStatus is the document of a node with these runs, when all else is in it.
func NewStatus(s Status, runs []record.Run) Status {
	var live, ended []record.Run
	for _, r := range runs {
		if r.Closed() {
			ended = append(ended, r)
		} else if r.Running(runs) {
			live = append(live, r)
		}
	}
	ended = record.Newest(ended)
	s.Head, s.Running, s.OnRecord = head("status"), newRuns(live, runs), len(ended)
	s.Ended = newRuns(ended[:min(len(ended), 5)], runs) // the newest few
	s.GPUs, s.Troubles = append([]GPUStatus{}, s.GPUs...), append([]Trouble{}, s.Troubles...)
	s.Damaged = append([]string{}, s.Damaged...)
	return s
}

// Sound reports whether the node has no problem now and, as far as is known, nothing unexpected on its GPUs.
func (s Status) Sound() bool {
	return len(s.Troubles)+len(s.Damaged) == 0 && !s.drained() && !slices.ContainsFunc(s.GPUs, GPUStatus.problem)
}

func (s Status) drained() bool { return s.Slurm != nil && s.Slurm.Drained }

// Text writes the overview: problems, GPUs, last jobs, and the command to run next.
func (s Status) Text(w io.Writer) {
	problems := "no problems"
	if n := s.problems(); n > 0 {
		problems = count(n, "PROBLEM", "S")
	}
	fmt.Fprintf(w, "%s  %s  %s", s.Node, s.Mode, problems)
	if d := s.Driver; d != nil && d.Answers {
		fmt.Fprintf(w, "  driver %s ok", cmp.Or(d.Release, "of an unknown release"))
	} else if d != nil {
		fmt.Fprint(w, "  driver NO ANSWER")
	}
	if s.Slurm != nil {
		fmt.Fprint(w, after("  Slurm ", s.Slurm.State))
	}
	fmt.Fprintln(w)
	s.troublesText(w)
	s.askedText(w)
	s.gpusText(w)
	s.jobsText(w)
	s.hooksText(w)
	if next := s.next(); next != "" {
		fmt.Fprintln(w, "Next: "+next)
	}
}

func (s Status) problems() int {
	n := len(s.Troubles) + len(s.Damaged)
	for _, c := range s.GPUs {
		if c.problem() {
			n++
		}
	}
	if s.Driver != nil && !s.Driver.Answers || n == 0 && s.drained() {
		n++
	}
	return n
}

// next returns the command that shows more about the first problem; empty if there is none.
func (s Status) next() string {
	if i := slices.IndexFunc(s.GPUs, GPUStatus.problem); i >= 0 {
		c := s.GPUs[i]
		for _, p := range c.Processes {
			if p.Job != "" {
				return "bookend show " + p.Job
			}
		}
		if c.Last != nil && (c.Last.dirty || len(c.Last.Codes) > 0) {
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
			fmt.Fprintf(w, "  trouble: %s\n", strings.Join(t.Seen, "; "))
			continue
		}
		fmt.Fprintf(w, "  trouble: %s, %s\n    %s\n", t.Code, t.Title, strings.Join(t.Seen, "\n    "))
		if m := t.Met; m != nil {
			by := fmt.Sprintf("the %s at %s", hookName(m.Hook), stamp(m.Last))
			if m.Job != 0 {
				by = fmt.Sprintf("the %s of job %d at %s (bookend show %[2]d)", m.Hook, m.Job, stamp(m.Last))
			}
			fmt.Fprintf(w, "    met by %s since %s, last by %s\n", count(int(m.Count), "hook", "s"), stamp(m.Since), by)
		}
		fmt.Fprintf(w, "    do: %s\n", t.Remedy)
	}
	for _, line := range some(s.Damaged, 10, "and %d more: bookend history", strings.Clone) {
		fmt.Fprintf(w, "  trouble: damaged record set aside: %s\n", line)
	}
}

func hookName(h metrics.Hook) string { return strings.ReplaceAll(string(h), "_", " ") }

// askedText writes why the driver or Slurm did not answer, and why the node accepts no jobs.
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
	for _, line := range given(each(s.Struck, record.Struck.Words)...) {
		fmt.Fprintln(w, line)
	}
}

func (s Status) gpusText(w io.Writer) {
	if len(s.GPUs) == 0 {
		return
	}
	rows := []string{row("GPU", "USED", "STATE", "JOB", "PROCESS")}
	for _, problem := range []bool{true, false} {
		for _, c := range s.GPUs {
			if c.problem() == problem {
				rows = append(rows, c.row(s.At))
			}
		}
	}
	table(w, rows...)
}

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
		rows = append(rows, row(r.name(), r.numbers(), owner(r.User, r.UID), when, came))
	}
	table(w, rows...)
	if more := s.OnRecord - len(s.Ended); more > 0 {
		fmt.Fprintf(w, "%s on record: bookend history\n", count(more, "more job", "s"))
	}
}

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
		ran = append(ran, "health check found "+join(c.Codes, ", "))
	}
	if r := s.Recorder; r != nil && r.Problem != "" {
		ran = append(ran, "recorder sees nothing: "+r.Problem)
	} else if r != nil {
		ran = append(ran, fmt.Sprintf("recorder %s (%s)", day(r.At, s.At), count(r.Jobs, "job", "s")))
	} else if len(s.Running) > 0 {
		ran = append(ran, "no recorder")
	}
	if ran = append(ran, given(s.Unlogged)...); len(ran) > 0 {
		fmt.Fprintln(w, "last hooks: "+strings.Join(ran, ", "))
	}
}
