package answer

import (
	"fmt"
	"io"
	"strings"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/ledger"
)

// Finding is one thing that was found at one of a job's ends: as the record has it, with what policy made of it.
type Finding struct {
	finding.Finding
	Title    string        `json:"title"`
	Severity code.Severity `json:"severity"`   // note, warning, serious
	Action   config.Action `json:"action"`     // what policy made of it
	Weakened string        `json:"weakened"`   // why that is less than configured; empty where it is not
	Process  *Process      `json:"holder"`     // the process it is about
	Maybe    []Process     `json:"candidates"` // processes that may hold the memory
	Owner    *Owner        `json:"owner"`      // the job it is blamed on
}

// Process is one process on a GPU, or that may hold its memory.
type Process struct {
	PID       int        `json:"pid"` // 0: another user's, of whom who is not root reads no more
	Name      string     `json:"name"`
	UID       *uint32    `json:"uid"`
	User      string     `json:"user,omitempty"` // by name, where a job's record has it
	Gone      bool       `json:"gone"`           // the driver lists it, and it is dead
	StartedAt *time.Time `json:"started_at"`
	Bytes     *uint64    `json:"bytes"`
	Job       string     `json:"job"`                    // whose cgroup it is in; empty for none
	JobEnded  *time.Time `json:"job_ended_at,omitempty"` // of a job that is over
	Service   string     `json:"service"`                // the system's service whose cgroup it is in
	Container string     `json:"container"`
	Hint      string     `json:"job_hint,omitempty"` // that its environment names: whoever started it chose that
	State     string     `json:"state"`              // R, S, D, T (stopped), Z (dead); empty where not read
	// what kind of holder it is: orphan, phantom, exported, stopped, dying, mps, container, system
	Classes []attrib.Class `json:"classes,omitempty"`
	Owner   *Owner         `json:"owner,omitempty"` // of a candidate: whose it is
	Open    []string       `json:"open,omitempty"`  // device nodes that it has open, where that was looked at
	Unknown Unknown        `json:"unknown,omitempty"`
}

// Owner is a job that a finding is blamed on.
type Owner struct {
	Job   string       `json:"job"`
	UID   *uint32      `json:"uid"`
	Level attrib.Level `json:"evidence"` // cgroup, sighting, exclusive, environment, none
}

// findings are those of one end.
func findings(e ledger.End) []Finding {
	out := []Finding{}
	for i, f := range e.Findings {
		entry, _ := code.Lookup(f.Code)
		judged := e.Verdict.Of(i)
		n := Finding{Finding: f, Title: entry.Title, Severity: entry.Severity, Action: judged.Action,
			Weakened: judged.Why, Maybe: []Process{}, Owner: newOwner(f.Owner)}
		if f.Unknown != "" && n.Owner != nil {
			n.Owner.UID = nil
		}
		if f.Holder != nil {
			p := newHolder(*f.Holder, e.Clock)
			n.Process = &p
		}
		for _, c := range f.Candidates {
			n.Maybe = append(n.Maybe, newHolder(c, e.Clock))
		}
		out = append(out, n)
	}
	return out
}

func newOwner(o *finding.Owner) *Owner {
	if o == nil {
		return nil
	}
	return &Owner{Job: o.JobName(), UID: &o.UID, Level: o.Level}
}

func newHolder(h finding.Holder, at func(time.Duration) time.Time) Process {
	p := newProcess(h.Process, at)
	p.Bytes = p.Unknown.bytes("bytes", h.Memory)
	p.Open, p.Classes, p.Owner = h.Open, h.Classes, newOwner(h.Owner)
	return p
}

// newProcess is what /proc said of one; at turns time since boot into a wall time.
func newProcess(p attrib.Process, at func(time.Duration) time.Time) Process {
	n := Process{PID: p.PID, Name: p.Name, Gone: p.Gone, Job: p.Cgroup.Name(), Service: p.Service,
		Container: p.Container, State: p.State}
	if p.EnvJobID != 0 && n.Job == "" {
		n.Hint = fmt.Sprint(p.EnvJobID)
	}
	switch {
	case p.Gone:
		n.Unknown.because("uid", "the process is gone")
	case p.Why != "":
		n.Unknown.because("uid", p.Why)
	default:
		n.UID = &p.UID
	}
	if p.Start > 0 {
		n.StartedAt = moment(at(p.Start))
	} else {
		n.Unknown.because("started_at", "not read")
	}
	return n
}

// mostCandidates is how many processes are listed for one finding; the record has them all.
const mostCandidates = 8

// text writes one finding: what, whose by which evidence, and why it did not drain.
func (f Finding) text(w io.Writer) {
	place := ""
	switch {
	case f.Index != nil:
		place = fmt.Sprintf(" GPU %d", *f.Index)
	case f.GPU != "":
		place = " " + name(string(f.GPU))
	}
	fmt.Fprintf(w, "  %s%s: %s [%s]\n", inkOf(w).action(f.Action, string(f.Code)), place, f.Title, f.Action)
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(w, "    %-9s %s\n", label+":", cut(text))
		}
	}
	if f.Bytes.Known() && f.Bytes.Bytes > 0 {
		line("memory", Figure(f.Bytes))
	}
	candidate := "maybe"
	if f.Process != nil {
		line("process", f.Process.text()+f.Process.kinds())
		candidate = "holder"
	}
	for _, c := range f.Maybe[:min(len(f.Maybe), mostCandidates)] {
		line(candidate, c.text()+c.kinds())
	}
	if more := len(f.Maybe) - mostCandidates; more > 0 {
		line("maybe", fmt.Sprintf("and %d more", more))
	}
	if f.Searched {
		line("search", fmt.Sprintf("every process of the node was looked into; %d may hold it", len(f.Maybe)))
	}
	if o := f.Owner; o != nil {
		user := "uid unknown"
		if o.UID != nil {
			user = fmt.Sprintf("uid %d", *o.UID)
		}
		line("job", fmt.Sprintf("%s (%s), evidence: %s%s", o.Job, user, o.Level, evidence[o.Level]))
	}
	line("seen", f.Observed)
	line("unknown", f.Unknown)
	line("held", f.Weakened)
}

// evidence words what blames a job; docs/findings.md explains the levels.
var evidence = map[attrib.Level]string{
	attrib.ByCgroup:      " (it is in the job's cgroup)",
	attrib.BySighting:    " (an earlier hook saw it in the job's cgroup)",
	attrib.ByExclusive:   " (it came while the job had the GPU alone)",
	attrib.ByEnvironment: " (its environment names the job: a hint)",
}

// text names a process for an admin.
func (p Process) text() string {
	switch {
	case p.Gone:
		return fmt.Sprintf("PID %d, which no longer exists", p.PID)
	case p.UID == nil:
		return fmt.Sprintf("PID %d, unknown: %s", p.PID, p.Unknown["uid"])
	}
	return fmt.Sprintf("PID %d (%s), uid %d, state %s, started %s", p.PID, p.Name, *p.UID, p.State, stamp(p.StartedAt))
}

// kinds adds what kind of holder a process is, where it runs, what it has open, and of a candidate its job.
func (p Process) kinds() (text string) {
	for i, c := range p.Classes {
		text += []string{", ", " "}[min(i, 1)] + string(c)
	}
	for _, place := range []string{p.Service, p.Container} {
		if place != "" {
			text += ", in " + place
		}
	}
	if len(p.Open) > 0 {
		text += ", has open " + strings.Join(p.Open, " ")
	}
	if p.Owner != nil {
		text += fmt.Sprintf(", job %s by %s", p.Owner.Job, p.Owner.Level)
	}
	return text
}
