// Package finding compares a job's two ends and says what was found, as data. Rules say what
// each leads to. Rendering is report's.
package finding

import (
	"cmp"
	"fmt"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Finding is one thing that was seen, or one question that could not be answered (Unknown set).
type Finding struct {
	Code    code.Code `json:"code"`
	GPU     gpu.ID    `json:"gpu,omitempty"`     // empty: the driver, or Bookend itself
	Index   *int      `json:"index,omitempty"`   // Slurm's number of that GPU, for display
	Unknown string    `json:"unknown,omitempty"` // why the answer is neither yes nor no

	Bytes  gpu.Figure `json:"bytes,omitzero"`   // memory this finding is about
	Holder *Holder    `json:"holder,omitempty"` // the process it is about
	Owner  *Owner     `json:"owner,omitempty"`  // the job it is blamed on, never without its level
	// Candidates are live processes that may hold it: for a process that is gone those that have this very card
	// open, for memory without a process those that have the driver open and nothing that explains why. Searched
	// says that every process of the node was looked into for them.
	Candidates []Holder `json:"candidates,omitempty"`
	Searched   bool     `json:"searched,omitempty"`

	Xid   int     `json:"xid,omitempty"`   // the number of the driver's error it is about; 0: of none
	Ended Outcome `json:"ended,omitempty"` // what became of Holder where clean-up was to end it; empty: it was not

	// Repeated: the last other job on this GPU, or on the node where it is about no GPU, ended with the same.
	Repeated bool `json:"repeated,omitempty"`

	Observed string `json:"observed,omitempty"` // raw strings of the system may be inside: report.Clean before use
	Expected string `json:"expected,omitempty"`

	// Doubts are the reasons why this does not prove that the card is unusable. Drain needs none left.
	Doubts []string `json:"doubts,omitempty"`
}

// Holder is a process that holds a GPU's memory.
type Holder struct {
	attrib.Process
	Memory  gpu.Figure     `json:"memory"` // unknown for a candidate: a descriptor proves no bytes
	Classes []attrib.Class `json:"classes,omitempty"`
	Owner   *Owner         `json:"owner,omitempty"` // of a candidate: a finding has one for its holder
	Open    []string       `json:"open,omitempty"`  // device nodes it has open, where that was looked at: "nvidia0"
}

// Saw is a finding about no GPU in particular: what was observed, in the place of what.
func Saw(c code.Code, observed, expected string) Finding {
	return Finding{Code: c, Observed: observed, Expected: expected}
}

// Unsure is a question about no GPU in particular that could not be answered, and why.
func Unsure(c code.Code, why string) Finding { return Finding{Code: c, Unknown: why} }

// doubt adds a reason why a finding does not prove that the GPU is unusable.
func (f *Finding) doubt(format string, args ...any) {
	f.Doubts = append(f.Doubts, fmt.Sprintf(format, args...))
}

// Owner is the job a finding is blamed on.
type Owner struct {
	Job   slurm.JobID  `json:"job"`
	SLUID slurm.SLUID  `json:"sluid,omitempty"`
	UID   uint32       `json:"uid"`
	Level attrib.Level `json:"level"`
}

// asOwner is the job that attribution found, nil for none.
func asOwner(o attrib.Owner) *Owner {
	if o.Job == 0 && o.SLUID == "" {
		return nil
	}
	return &Owner{Job: o.Job, SLUID: o.SLUID, UID: o.UID, Level: o.Level}
}

// JobName names the job as its cgroup did.
func (o Owner) JobName() string { return slurm.Owner{ID: o.Job, SLUID: o.SLUID}.Name() }

// Outcome is what became of a process that clean-up was to end. The values are part of records and of the command
// line's documents: they keep their names.
type Outcome string

// The outcomes.
const (
	AlreadyGone Outcome = "gone" // before anything was sent to it
	ByTerm      Outcome = "sigterm"
	ByKill      Outcome = "sigkill"
	StillThere  Outcome = "still_there" // SIGKILL was sent: it hangs in the kernel
	Refused     Outcome = "refused"     // nothing was sent to it
)

// Signal names what ended the process, as signal(7) does; empty where clean-up did not end it.
func (o Outcome) Signal() string { return map[Outcome]string{ByTerm: "SIGTERM", ByKill: "SIGKILL"}[o] }

// Text words an outcome.
func (o Outcome) Text() string {
	words := map[Outcome]string{
		ByTerm: "ended by SIGTERM", ByKill: "ended by SIGKILL", AlreadyGone: "already gone", StillThere: "still there",
	}
	return cmp.Or(words[o], string(o))
}

// WorthTelling is the shipped thresholds.report, in bytes, for readers of records, which do not have the configuration
// that was in force: less may be the driver's own.
const WorthTelling = 32 << 20
