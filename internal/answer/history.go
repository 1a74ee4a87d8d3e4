package answer

import (
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/ledger"
)

// History is what "bookend history" says: runs, the newest first.
type History struct {
	Head
	Node string    `json:"node"`
	Runs []Summary `json:"runs"`
	More int       `json:"more"` // how many more there are that --limit leaves out
}

// RunHead says which run of which job it is, and how that stands.
type RunHead struct {
	Job       string     `json:"job"` // as its user names it: "42", "42_3", "42+1"
	JobID     uint32     `json:"job_id"`
	SLUID     string     `json:"sluid"` // the run's own id, from Slurm 25.11 on
	User      string     `json:"user"`
	UID       uint32     `json:"uid"`
	Partition string     `json:"partition"`
	State     State      `json:"state"`
	BeganAt   *time.Time `json:"began_at"` // when the prolog looked
	EndedAt   *time.Time `json:"ended_at"` // when its epilog looked
	Seconds   *float64   `json:"duration_seconds"`
	Exit      *int       `json:"exit_code"`   // of the job; null while it runs, or where Slurm does not say
	Signal    *int       `json:"exit_signal"` // that ended it; 0 for none
	Unknown   Unknown    `json:"unknown,omitempty"`
}

// State is how a run stands.
type State string

// The states. Of a run that is lost no epilog came: it is over all the same, as what began since shows, or a health
// check.
const (
	Running State = "running"
	Ended   State = "ended"
	Lost    State = "lost"
)

// Summary is one run in short.
type Summary struct {
	RunHead
	Cards    []Card   `json:"gpus"`
	Start    *Verdict `json:"start"` // null where no prolog is on record
	End      *Verdict `json:"end"`   // of the last epilog; null where none is
	Findings []Brief  `json:"findings"`
	// memory that was there at its start and still is, where nothing else was found
	StillBytes uint64 `json:"still_bytes"`
}

// Brief is a finding in short.
type Brief struct {
	Code   code.Code     `json:"code"`
	At     string        `json:"at"`     // start, end
	Action config.Action `json:"action"` // what policy made of it
	Index  *int          `json:"gpu_index"`
	UUID   string        `json:"uuid"`
	Bytes  *uint64       `json:"bytes"` // null where it is about none, or not known
	Owner  string        `json:"owner"` // the job it is blamed on; empty for none
}

// NewHistory is the document of runs that were picked, the newest first; more are left out.
func NewHistory(node string, runs, all []ledger.Run, more int) History {
	return History{Head: head(KindHistory), Node: text(node), Runs: Summaries(runs, all), More: more}
}

// Summaries are runs in short, in their order; all are the node's.
func Summaries(runs, all []ledger.Run) []Summary {
	out := []Summary{}
	for _, r := range runs {
		out = append(out, newSummary(r, all))
	}
	return out
}

func newSummary(r ledger.Run, all []ledger.Run) Summary {
	s := Summary{RunHead: newRunHead(r, all), Cards: []Card{}, Findings: []Brief{}}
	for _, d := range r.Devices {
		s.Cards = append(s.Cards, assigned(d))
	}
	if r.Start != nil {
		v := newVerdict(r.Start.Verdict)
		s.Start = &v
		s.Findings = append(s.Findings, briefs("start", *r.Start)...)
	}
	if r.Epilog() != nil {
		v := newVerdict(r.Last().Verdict)
		s.End, s.StillBytes = &v, stillThere(r, r.Last())
		for _, e := range r.Ends {
			s.Findings = append(s.Findings, briefs("end", e)...)
		}
	}
	return s
}

func briefs(at string, e ledger.End) []Brief {
	var out []Brief
	for i, f := range e.Findings {
		b := Brief{
			Code: known(f.Code), At: at, Action: known(e.Verdict.Of(i).Action), Index: f.Index,
			UUID: text(string(f.GPU)),
		}
		if f.Bytes.Known() && f.Bytes.Bytes > 0 {
			b.Bytes = &f.Bytes.Bytes
		}
		if f.Owner != nil {
			b.Owner = text(f.Owner.JobName())
		}
		out = append(out, b)
	}
	return out
}

func newRunHead(r ledger.Run, all []ledger.Run) RunHead {
	h := RunHead{
		Job: r.JobName(), JobID: uint32(r.Job.ID), SLUID: text(string(r.Job.SLUID)), User: text(r.Job.User),
		UID: r.Job.UID, Partition: text(r.Job.Partition),
		State: stateOf(r, all),
	}
	if r.Start != nil {
		h.BeganAt = h.Unknown.moment("began_at", r.Start.Wall)
	} else {
		h.Unknown.because("began_at", "no prolog is on record")
	}
	h.ended(r)
	if e := r.Job.Exit; e.Known {
		code, signal := e.Raw>>8, e.Raw&0x7f
		h.Exit, h.Signal = &code, &signal
	} else {
		why := e.Why
		if why == "" {
			why = "Slurm has not said it"
		}
		h.Unknown.because("exit_code", why)
		h.Unknown.because("exit_signal", why)
	}
	return h
}

func (h *RunHead) ended(r ledger.Run) {
	seen := r.Epilog()
	if seen == nil {
		why := "no epilog is on record"
		if r.Closed() {
			why = r.Last().Unseen
		}
		h.Unknown.because("ended_at", why)
		h.Unknown.because("duration_seconds", why)
		return
	}
	h.EndedAt = h.Unknown.moment("ended_at", seen.Wall)
	if r.Start == nil {
		h.Unknown.because("duration_seconds", "no prolog is on record")
		return
	}
	took := seconds(seen.At - r.Start.At)
	h.Seconds = &took
}

func stateOf(r ledger.Run, all []ledger.Run) State {
	switch {
	case r.Epilog() != nil:
		return Ended
	case r.Running(all):
		return Running
	}
	return Lost
}

// every is each finding of a run with the end that made it.
func every(r ledger.Run, visit func(e ledger.End, i int, f finding.Finding)) {
	for _, e := range r.Both() {
		for i, f := range e.Findings {
			visit(e, i, f)
		}
	}
}
