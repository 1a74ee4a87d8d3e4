package view

import (
	"fmt"
	"io"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Finding is one finding of an end, with what policy decided.
type Finding struct {
	Code       catalog.Code   `json:"code"`
	At         string         `json:"at"` // start, end
	Action     config.Action  `json:"action"`
	Why        string         `json:"why,omitempty"`     // why the action is weaker than configured
	GPU        gpu.ID         `json:"gpu,omitempty"`     // empty: the driver, or Bookend itself
	Index      *int           `json:"index,omitempty"`   // Slurm's index of that GPU
	Unknown    string         `json:"unknown,omitempty"` // why the answer is neither yes nor no
	Bytes      gpu.Figure     `json:"bytes,omitzero"`    // memory that it is about
	Holder     *Process       `json:"holder,omitempty"`  // the process that it is about
	Owner      *record.Owner  `json:"owner,omitempty"`   // the job it is blamed on, with the level of evidence
	Candidates []Process      `json:"candidates,omitempty"`
	Searched   bool           `json:"searched,omitempty"` // every process of the node was examined for candidates
	Xid        int            `json:"xid,omitempty"`
	Ended      record.Outcome `json:"ended,omitempty"`    // what clean-up did to the holder
	Repeated   bool           `json:"repeated,omitempty"` // the job before ended with the same finding
	Observed   string         `json:"observed,omitempty"`
	Expected   string         `json:"expected,omitempty"`
	Doubts     []string       `json:"doubts,omitempty"` // why it does not prove that the GPU is unusable
}

func newFindings(at string, e record.End) []Finding {
	all := []Finding{}
	for i, f := range e.Findings {
		judged := e.Verdict.Of(i)
		one := Finding{Code: f.Code, At: at, Action: judged.Action, Why: judged.Why, GPU: f.GPU, Index: f.Index,
			Unknown: f.Unknown, Bytes: f.Bytes, Owner: f.Owner, Searched: f.Searched, Xid: f.Xid, Ended: f.Ended,
			Repeated: f.Repeated, Observed: f.Observed, Expected: f.Expected, Doubts: f.Doubts}
		if f.Holder != nil {
			holder := newHolder(*f.Holder, e)
			one.Holder = &holder
		}
		for _, h := range f.Candidates {
			one.Candidates = append(one.Candidates, newHolder(h, e))
		}
		all = append(all, one)
	}
	return all
}

func newHolder(h record.Holder, e record.End) Process {
	p := newProcess(h.Process, h.Memory, e.Clock)
	p.Classes, p.Owner, p.Open = h.Classes, h.Owner, h.Open
	return p
}

// text writes what was found, the owner with the evidence, and why it did not drain.
func (f Finding) text(w io.Writer) {
	place := ""
	switch {
	case f.Index != nil:
		place = fmt.Sprintf(" GPU %d", *f.Index)
	case f.GPU != "":
		place = " " + string(f.GPU)
	}
	entry, _ := catalog.Lookup(f.Code)
	fmt.Fprintf(w, "  %s%s: %s [%s]\n", f.Code, place, entry.Title, f.Action)
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(w, "    %-9s %s\n", label+":", text)
		}
	}
	if f.Bytes.Known() && f.Bytes.Bytes > 0 {
		line("memory", Figure(f.Bytes))
	}
	candidate := "maybe"
	if f.Holder != nil {
		line("process", holderText(*f.Holder))
		candidate = "holder"
	}
	for _, holder := range some(f.Candidates, 8, "and %d more", holderText) {
		line(candidate, holder)
	}
	if f.Searched {
		line("search", fmt.Sprintf("every process of the node was looked into; %d may hold it", len(f.Candidates)))
	}
	if o := f.Owner; o != nil {
		user := fmt.Sprintf("uid %d", o.UID)
		if f.Unknown != "" && o.Named() { // its job has no record here
			user = "uid unknown"
		}
		line("job", fmt.Sprintf("%s (%s), evidence: %s%s", o.JobName(), user, o.Level, evidence[o.Level]))
	}
	line("seen", f.Observed)
	line("unknown", f.Unknown)
	line("doubt", f.Why)
}

// evidence describes each level of attribution; docs/holders.md explains them.
var evidence = map[record.Level]string{
	record.ByCgroup:      " (it is in the job's cgroup)",
	record.BySighting:    " (an earlier hook saw it in the job's cgroup)",
	record.ByRecorder:    " (the recorder saw it while the job ran)",
	record.ByExclusive:   " (it came while the job had the GPU alone)",
	record.ByEnvironment: " (its environment names the job: a hint)",
}

func processText(p Process) string {
	switch {
	case p.Reused:
		return fmt.Sprintf("PID %d, which another process has by now", p.PID)
	case p.Gone:
		return fmt.Sprintf("PID %d, which no longer exists", p.PID)
	case p.Why != "":
		return fmt.Sprintf("PID %d, unknown: %s", p.PID, p.Why)
	}
	return fmt.Sprintf("PID %d (%s), uid %d, state %s, started %s", p.PID, p.Name, p.UID, p.State, stamp(p.BeganAt))
}

// holderText describes a process that an end found: its class, where it runs, its open files, and a candidate's job.
func holderText(p Process) string {
	text := processText(p)
	if len(p.Classes) > 0 {
		text += ", " + join(p.Classes, " ")
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
		text += fmt.Sprintf(", job %s by %s", p.Owner.JobName(), p.Owner.Level)
	}
	return text
}
