package answer

import (
	"fmt"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/ledger"
)

// Verdict is what a hook came to.
type Verdict struct {
	Action config.Action `json:"action"`    // ignore (clean), note, warn, drain: the strongest of its findings
	Code   code.Code     `json:"code"`      // of the finding that decided; empty where none did
	Exit   int           `json:"exit_code"` // of the hook; above 0 it drained the node
	Held   string        `json:"held"`      // why a drain was not carried out; empty where none was due
}

func newVerdict(v finding.Verdict) Verdict {
	return Verdict{Action: known(v.Action), Code: known(v.Code), Exit: v.Exit, Held: text(v.Held)}
}

// Finding is one thing that was found at one of a job's ends.
type Finding struct {
	Code     code.Code     `json:"code"`
	Title    string        `json:"title"`
	Severity code.Severity `json:"severity"` // note, warning, serious
	Action   config.Action `json:"action"`   // what policy made of it
	Weakened string        `json:"weakened"` // why that is less than configured; empty where it is not
	Index    *int          `json:"gpu_index"`
	UUID     string        `json:"uuid"`  // empty: the driver, or Bookend itself
	Minor    *int          `json:"minor"` // N of /dev/nvidiaN of a GPU that is not the job's; null where unknown
	Bytes    *uint64       `json:"bytes"` // memory it is about; null where it is about none, or unknown says why
	Process  *Process      `json:"process"`
	Owner    *Owner        `json:"owner"` // the job it is blamed on
	Maybe    []Process     `json:"candidates"`
	// number of the driver's error; null where it is about none, or an older record does not say
	Xid *int `json:"xid"`
	// what clean-up did to the process: gone, sigterm, sigkill, still_there, refused; empty: nothing
	Ended     string  `json:"ended"`
	Searched  bool    `json:"searched"` // every process of the node was looked into for them
	Observed  string  `json:"observed"`
	Undecided string  `json:"undecided"` // why the answer is neither yes nor no; empty where it is one
	Unknown   Unknown `json:"unknown,omitempty"`
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
	Classes []string `json:"classes,omitempty"`
	Owner   *Owner   `json:"owner,omitempty"` // of a candidate: whose it is
	Open    []string `json:"open"`            // device nodes that it has open, where that was looked at
	Unknown Unknown  `json:"unknown,omitempty"`
}

// Owner is a job that a finding is blamed on.
type Owner struct {
	Job   string  `json:"job"`
	UID   *uint32 `json:"uid"`
	Level string  `json:"evidence"` // cgroup, sighting, exclusive, environment, none
}

// findings are those of one end.
func findings(e ledger.End) []Finding {
	out := []Finding{}
	for i, f := range e.Findings {
		out = append(out, newFinding(f, e.Verdict.Of(i), e.Clock))
	}
	return out
}

func newFinding(f finding.Finding, j finding.Judged, at func(time.Duration) time.Time) Finding {
	entry, _ := code.Lookup(f.Code)
	n := Finding{
		Code: known(f.Code), Title: entry.Title, Severity: entry.Severity, Action: known(j.Action),
		Weakened: text(j.Why), Index: f.Index, UUID: text(string(f.GPU)),
		Ended: text(string(f.Ended)), Observed: text(f.Observed), Undecided: text(f.Unknown), Maybe: []Process{},
		Searched: f.Searched,
	}
	if f.Xid != 0 {
		n.Xid = &f.Xid
	}
	if !f.Bytes.Known() || f.Bytes.Bytes > 0 {
		n.Bytes = n.Unknown.bytes("bytes", f.Bytes)
	}
	if f.Holder != nil {
		p := newHolder(*f.Holder, at)
		n.Process = &p
	}
	for _, c := range f.Candidates {
		n.Maybe = append(n.Maybe, newHolder(c, at))
	}
	if o := f.Owner; o != nil {
		n.Owner = newOwner(*o)
		if f.Unknown != "" {
			n.Owner.UID = nil
		}
	}
	return n
}

func newOwner(o finding.Owner) *Owner {
	return &Owner{Job: text(o.JobName()), UID: &o.UID, Level: text(string(o.Level))}
}

func newHolder(h finding.Holder, at func(time.Duration) time.Time) Process {
	p := newProcess(h.Process, at)
	p.Bytes = p.Unknown.bytes("bytes", h.Memory)
	for _, name := range h.Open {
		p.Open = append(p.Open, text(name))
	}
	for _, c := range h.Classes {
		p.Classes = append(p.Classes, text(string(c)))
	}
	if h.Owner != nil {
		p.Owner = newOwner(*h.Owner)
	}
	return p
}

// Cause is one known cause of running out of memory, judged.
type Cause struct {
	Name     diagnosis.Name   `json:"name"`
	Title    string           `json:"title"`
	Answer   diagnosis.Answer `json:"answer"` // yes, no, cannot tell
	Evidence string           `json:"evidence"`
	Detail   string           `json:"detail"` // for the admin alone
	Index    *int             `json:"gpu_index"`
}

// Why is the answer to why a job ran out of memory.
type Why struct {
	Asked    string           `json:"asked"`  // why somebody would want to know; empty: no one
	Reason   diagnosis.Reason `json:"reason"` // message, shared, failure, cause, wanted; empty: no one asks
	Headline string           `json:"headline"`
	Causes   []Cause          `json:"causes"`
	Try      []string         `json:"try"`
	Peaks    []Peak           `json:"peaks"` // the most memory of single processes of the job, where accounting is on
}

func newWhy(d *diagnosis.Diagnosis) *Why {
	if d == nil {
		return nil
	}
	w := Why{Asked: text(d.Asked), Reason: known(d.Reason), Headline: text(d.Headline), Causes: []Cause{},
		Try: []string{}, Peaks: peaks(d.Peaks)}
	for _, c := range d.Causes {
		w.Causes = append(w.Causes, Cause{known(c.Name), c.Name.Title(), known(c.Answer), text(c.Evidence),
			text(c.Detail), c.Index})
	}
	for _, t := range d.Try {
		w.Try = append(w.Try, text(t))
	}
	return &w
}

// newProcess is what /proc said of one; at turns time since boot into a wall time.
func newProcess(p attrib.Process, at func(time.Duration) time.Time) Process {
	n := Process{
		PID: p.PID, Name: text(p.Name), Gone: p.Gone, Job: text(p.Cgroup.Name()), Service: text(p.Service),
		Container: text(p.Container), Open: []string{}, State: text(p.State),
	}
	if p.EnvJobID != 0 && n.Job == "" {
		n.Hint = fmt.Sprint(p.EnvJobID)
	}
	switch {
	case p.Gone:
		n.Unknown.because("uid", "the process is gone")
	case p.Why != "":
		n.Unknown.because("uid", p.Why)
	default:
		uid := p.UID
		n.UID = &uid
	}
	if p.Start > 0 {
		n.StartedAt = moment(at(p.Start))
	} else {
		n.Unknown.because("started_at", "not read")
	}
	return n
}
