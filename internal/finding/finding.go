// Package finding compares a job's start and end, returns findings as data, and applies the policy to them.
package finding

import (
	"cmp"
	"fmt"
	"slices"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Finding is one observation, or one question that could not be answered (Unknown is set).
type Finding struct {
	Code    code.Code `json:"code"`
	GPU     gpu.ID    `json:"gpu,omitempty"`     // empty: the driver, or Bookend itself
	Index   *int      `json:"index,omitempty"`   // Slurm's index of that GPU, for display
	Unknown string    `json:"unknown,omitempty"` // why the answer is neither yes nor no

	Bytes  gpu.Figure `json:"bytes,omitzero"`   // memory this finding is about
	Holder *Holder    `json:"holder,omitempty"` // the process it is about
	Owner  *Owner     `json:"owner,omitempty"`  // the job it is blamed on, with the level of evidence
	// Candidates are live processes that may hold it: for a process that is gone, those that have this very GPU open;
	// for memory without a process, those that have the driver open without a known reason. Searched is set if every
	// process of the node was examined for that.
	Candidates []Holder `json:"candidates,omitempty"`
	Searched   bool     `json:"searched,omitempty"`

	Xid   int     `json:"xid,omitempty"`   // number of the driver error it is about; 0 for none
	Ended Outcome `json:"ended,omitempty"` // what became of Holder if clean-up was to end it; empty if it was not

	// Repeated is set if the last other job on this GPU, or on the node if GPU is empty, ended with the same finding.
	Repeated bool `json:"repeated,omitempty"`

	Observed string `json:"observed,omitempty"` // may contain raw strings of the system: use report.Clean
	Expected string `json:"expected,omitempty"`

	// Doubts are the reasons why this does not prove that the GPU is unusable. A drain requires that there are none.
	Doubts []string `json:"doubts,omitempty"`
}

// Holder is a process that holds a GPU's memory.
type Holder struct {
	Process
	Memory  gpu.Figure `json:"memory"` // unknown for a candidate: a descriptor proves no bytes
	Classes []Class    `json:"classes,omitempty"`
	Owner   *Owner     `json:"owner,omitempty"` // of a candidate; a holder's owner is that of its finding
	Open    []string   `json:"open,omitempty"`  // device nodes it has open, if that was read: "nvidia0"
}

// Saw returns a finding about no GPU in particular: what was observed and what was expected.
func Saw(c code.Code, observed, expected string) Finding {
	return Finding{Code: c, Observed: observed, Expected: expected}
}

// Unsure returns a question about no GPU in particular that could not be answered, and why.
func Unsure(c code.Code, why string) Finding { return Finding{Code: c, Unknown: why} }

func (f *Finding) doubt(format string, args ...any) {
	f.Doubts = append(f.Doubts, fmt.Sprintf(format, args...))
}

// Owner is the job a finding is blamed on.
type Owner struct {
	Job   slurm.JobID `json:"job"`
	SLUID slurm.SLUID `json:"sluid,omitempty"`
	UID   uint32      `json:"uid"`
	Level Level       `json:"level"`
}

func (o Attribution) job() *Owner {
	if o.Job == 0 && o.SLUID == "" {
		return nil
	}
	return &o.Owner
}

// JobName returns the job's id, its SLUID if that is all that its cgroup names, or "none".
func (o Owner) JobName() string { return cmp.Or(o.named().Name(), "none") }

// Named reports whether the owner is a job. For a process that the recorder saw in no job's cgroup it is not.
func (o Owner) Named() bool { return o.named().Found() }

// Recorded reports whether only the recorder saw this, between the job's two ends.
func (f Finding) Recorded() bool { return f.Owner != nil && f.Owner.Level == Recorded }

func (o Owner) named() slurm.Owner { return slurm.Owner{ID: o.Job, SLUID: o.SLUID} }

// Outcome is what became of a process that clean-up was to end. The values appear in records and in the documents of
// the command line, so they must not change.
type Outcome string

const (
	AlreadyGone Outcome = "gone" // before any signal was sent
	ByTerm      Outcome = "sigterm"
	ByKill      Outcome = "sigkill"
	StillThere  Outcome = "still_there" // SIGKILL was sent: it hangs in the kernel
	Refused     Outcome = "refused"     // no signal was sent
)

// Signal names the signal that ended the process, as signal(7) does, empty if clean-up did not end it.
func (o Outcome) Signal() string { return map[Outcome]string{ByTerm: "SIGTERM", ByKill: "SIGKILL"}[o] }

// Text returns the outcome in words.
func (o Outcome) Text() string {
	words := map[Outcome]string{
		ByTerm: "ended by SIGTERM", ByKill: "ended by SIGKILL", AlreadyGone: "already gone", StillThere: "still there",
	}
	return cmp.Or(words[o], string(o))
}

// WorthTelling is the default of thresholds.report, in bytes, for readers of records without the configuration.
const WorthTelling = 32 << 20

// Judged is what policy decided about one finding.
type Judged struct {
	Action config.Action `json:"action"`
	Why    string        `json:"why,omitempty"` // why the action is weaker than configured
}

// Verdict is a hook's outcome.
type Verdict struct {
	Action config.Action `json:"action"`
	Exit   int           `json:"exit"`
	// Code is the finding that decided, empty if none did.
	Code code.Code `json:"code,omitempty"`
	// Held is why a drain was not carried out: observe mode, or a guard.
	Held   string   `json:"held,omitempty"`
	Judged []Judged `json:"judged,omitempty"` // one for each finding, in order
}

// Of returns the decision about a finding by its index. A finding made after the verdict is reported (Warn).
func (v Verdict) Of(i int) Judged {
	if i < len(v.Judged) {
		return v.Judged[i]
	}
	return Judged{Action: config.Warn}
}

// Drains reports whether the finding with this index was judged to drain.
func (v Verdict) Drains(i int) bool { return v.Of(i).Action == config.Drain }

// Decisive returns the index of the finding that decided, -1 if none did: one that drains, with the most memory.
func (v Verdict) Decisive(found []Finding) int {
	best := -1
	for i, f := range found {
		switch {
		case f.Code != v.Code:
		case best < 0, v.Drains(i) && !v.Drains(best),
			v.Drains(i) == v.Drains(best) && f.Bytes.Bytes > found[best].Bytes.Bytes:
			best = i
		}
	}
	return best
}

// Tells reports whether policy reports the finding with this index: it neither ignores nor only notes it.
func (v Verdict) Tells(i int) bool {
	a := v.Of(i).Action
	return a != config.Ignore && a != config.Note
}

var strength = map[config.Action]int{config.Ignore: 0, config.Note: 1, config.Warn: 2, config.Drain: 3}

// Decide turns the findings of a job's hook into one verdict and one exit code; the strongest action decides. A drain
// needs a finding without doubts, a mode that may drain, and no guard against it.
func Decide(c config.Config, phase slurm.Context, job slurm.Job, found []Finding) Verdict {
	if own := c.Policy.Partitions[job.Partition]; own.Mode != "" {
		c.Mode = own.Mode
	}
	v := Verdict{Action: config.Ignore}
	for _, f := range found {
		j := judge(c, phase, job.Partition, f)
		v.Judged = append(v.Judged, j)
		if strength[j.Action] > strength[v.Action] {
			v.Action, v.Code = j.Action, f.Code
		}
	}
	most := c.Drain.MaxRestarts
	switch {
	case phase == slurm.HealthCheck:
		v.Exit = checkExit(found)
	case v.Action != config.Drain:
	case c.Mode != config.Enforce:
		v.Action, v.Held = config.Warn, "observe mode"
	case phase == slurm.Prolog && most > 0 && job.Restarts >= most:
		v.Action = config.Warn
		v.Held = fmt.Sprintf("the job was restarted %d times: another drained node would not help it", job.Restarts)
	default:
		v.Exit = code.Exit(v.Code)
	}
	return v
}

func judge(c config.Config, phase slurm.Context, partition string, f Finding) Judged {
	want := c.Action(phase, partition, f.Code)
	entry, _ := code.Lookup(f.Code)
	warn := func(why string) Judged { return Judged{Action: config.Warn, Why: why} }
	switch {
	case entry.Scope == code.Own && want != config.Ignore && want != config.Note && phase == slurm.HealthCheck:
		return warn("")
	case entry.Scope == code.Own && want != config.Ignore && want != config.Note:
		return Judged{Action: c.OnOwnError}
	case want == config.Repeat && !f.Repeated:
		return warn("it drains only if the next job meets it too")
	case want != config.Drain && want != config.Repeat:
		return Judged{Action: want}
	case phase == slurm.HealthCheck:
		return warn("the health check never drains")
	case entry.NeverDrains() != "":
		return warn(entry.NeverDrains())
	case f.Unknown != "":
		return warn("unknown: " + f.Unknown)
	case len(f.Doubts) > 0:
		return warn(f.Doubts[0])
	}
	return Judged{Action: config.Drain}
}

// checkExit returns 0 unless the node was not checked: Slurm only logs it, and nothing else should act on it.
func checkExit(found []Finding) int {
	for _, e := range code.All() {
		met := func(f Finding) bool { return f.Code == e.Code && f.Unknown == "" }
		if e.Unchecked && slices.ContainsFunc(found, met) {
			return e.Exit
		}
	}
	return 0
}

// Again joins the findings from before and after processes were ended; the scene is that of the second samples. A GPU
// that settled again is judged by these alone. On any other GPU a first finding stays unless they repeat it or prove
// that its process is gone, but what an ended process may have held is no longer certain.
func (s Scene) Again(first, second []Finding) []Finding {
	var kept []Finding
	for _, f := range first {
		settled := f.GPU != "" && s.Now.Curves[f.GPU].State.AtRest() || f.GPU == "" && s.Now.Settled(s.Cards)
		if settled || slices.ContainsFunc(second, f.same) || s.Now.lacks(f) {
			continue
		}
		if f.Holder != nil && f.Code != code.Trespass || f.withoutProcess() {
			f.Doubts = slices.Clone(f.Doubts)
			f.doubt("processes were ended since, and the GPU was not seen settled again")
		}
		kept = append(kept, f)
	}
	return append(kept, second...)
}

// withoutProcess reports whether no live process is listed for the memory: any process may have held it.
func (f Finding) withoutProcess() bool { return f.Code == code.Residue || f.Code == code.Phantom }

// same reports whether two findings have the same code, GPU and process.
func (f Finding) same(o Finding) bool {
	who := func(h *Holder) (i Instance) {
		if h != nil {
			i = Instance{PID: h.PID, Start: h.Start}
		}
		return i
	}
	return f.Code == o.Code && f.GPU == o.GPU && who(f.Holder) == who(o.Holder)
}

// lacks reports whether this sample proves that a finding's process has left its GPU.
func (s Side) lacks(f Finding) bool {
	r, read := s.Snapshot.Reading(f.GPU)
	if f.Holder == nil || !read || r.ProcessesUnknown != "" {
		return false
	}
	now, known := s.Processes[f.Holder.PID]
	another := known && now.Why == "" && now.Start != f.Holder.Start
	_, listed := s.listed(f.GPU, f.Holder.PID)
	return another || !listed
}
