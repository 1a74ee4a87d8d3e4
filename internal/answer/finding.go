package answer

import (
	"fmt"
	"io"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
)

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
	Unknown   Unknown    `json:"unknown,omitempty"`
}

// newProcess is what /proc said of one; at turns time since boot into a wall time.
func newProcess(p finding.Process, at func(time.Duration) time.Time) Process {
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

// findingText writes one finding of an end: what, whose by which evidence, and why it did not drain.
func findingText(w io.Writer, f finding.Finding, judged finding.Judged, e ledger.End) {
	place := ""
	switch {
	case f.Index != nil:
		place = fmt.Sprintf(" GPU %d", *f.Index)
	case f.GPU != "":
		place = " " + name(string(f.GPU))
	}
	entry, _ := code.Lookup(f.Code)
	fmt.Fprintf(w, "  %s%s: %s [%s]\n", inkOf(w).action(judged.Action, name(string(f.Code))), place, entry.Title,
		judged.Action)
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(w, "    %-9s %s\n", label+":", cut(text))
		}
	}
	if f.Bytes.Known() && f.Bytes.Bytes > 0 {
		line("memory", Figure(f.Bytes))
	}
	candidate := "maybe"
	if f.Holder != nil {
		line("process", holderText(*f.Holder, e))
		candidate = "holder"
	}
	for _, c := range f.Candidates[:min(len(f.Candidates), mostCandidates)] {
		line(candidate, holderText(c, e))
	}
	if more := len(f.Candidates) - mostCandidates; more > 0 {
		line("maybe", fmt.Sprintf("and %d more", more))
	}
	if f.Searched {
		line("search", fmt.Sprintf("every process of the node was looked into; %d may hold it", len(f.Candidates)))
	}
	if o := f.Owner; o != nil {
		user := fmt.Sprintf("uid %d", o.UID)
		if f.Unknown != "" { // a job without a record here
			user = "uid unknown"
		}
		line("job", fmt.Sprintf("%s (%s), evidence: %s%s", o.JobName(), user, o.Level, evidence[o.Level]))
	}
	line("seen", f.Observed)
	line("unknown", f.Unknown)
	line("doubt", judged.Why)
}

// evidence words what blames a job; docs/findings.md explains the levels.
var evidence = map[finding.Level]string{
	finding.ByCgroup:      " (it is in the job's cgroup)",
	finding.BySighting:    " (an earlier hook saw it in the job's cgroup)",
	finding.Recorded:      " (the recorder saw it in the job's cgroup)",
	finding.ByExclusive:   " (it came while the job had the GPU alone)",
	finding.ByEnvironment: " (its environment names the job: a hint)",
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

// holderText names a process that an end found: what kind of holder it is, where it runs, what it has open, and of a
// candidate its job.
func holderText(h finding.Holder, e ledger.End) string {
	text := newProcess(h.Process, e.Clock).text()
	for i, c := range h.Classes {
		text += []string{", ", " "}[min(i, 1)] + string(c)
	}
	for _, place := range []string{h.Service, h.Container} {
		if place != "" {
			text += ", in " + place
		}
	}
	if len(h.Open) > 0 {
		text += ", has open " + strings.Join(h.Open, " ")
	}
	if h.Owner != nil {
		text += fmt.Sprintf(", job %s by %s", h.Owner.JobName(), h.Owner.Level)
	}
	return text
}
