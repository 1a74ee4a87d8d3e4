// Package finding compares a job's two ends, as data. Policy says what each leads to, report words it.
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
	Process
	Memory  gpu.Figure `json:"memory"` // unknown for a candidate: a descriptor proves no bytes
	Classes []Class    `json:"classes,omitempty"`
	Owner   *Owner     `json:"owner,omitempty"` // of a candidate: a finding has one for its holder
	Open    []string   `json:"open,omitempty"`  // device nodes it has open, where that was looked at: "nvidia0"
}

// Saw is a finding about no GPU in particular: what was observed, in the place of what.
func Saw(c code.Code, observed, expected string) Finding {
	return Finding{Code: c, Observed: observed, Expected: expected}
}

// Unsure is a question about no GPU in particular that could not be answered, and why.
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

// JobName names the job as its cgroup did.
func (o Owner) JobName() string { return cmp.Or(o.named().Name(), "none") }

// Named reports whether there is a job: what the recorder saw in no job's cgroup has an owner without one.
func (o Owner) Named() bool { return o.named().Found() }

// Recorded reports what the recorder saw between a job's two ends, of which neither saw it.
func (f Finding) Recorded() bool { return f.Owner != nil && f.Owner.Level == Recorded }

func (o Owner) named() slurm.Owner { return slurm.Owner{ID: o.Job, SLUID: o.SLUID} }

// Outcome is what became of a process that clean-up was to end. The values are part of records and of the command
// line's documents: they keep their names.
type Outcome string

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

// WorthTelling is the default thresholds.report, in bytes, for readers of records without the configuration.
const WorthTelling = 32 << 20

// Judged is what policy made of one finding.
type Judged struct {
	Action config.Action `json:"action"`
	Why    string        `json:"why,omitempty"` // why it is weaker than the configuration says
}

// Verdict is a hook's outcome.
type Verdict struct {
	Action config.Action `json:"action"`
	Exit   int           `json:"exit"`
	// Code is the finding that decided, empty when none did.
	Code code.Code `json:"code,omitempty"`
	// Held is why a drain was not carried out: observe mode, or a guard.
	Held   string   `json:"held,omitempty"`
	Judged []Judged `json:"judged,omitempty"` // one for each finding, in order
}

// Of is what was made of the finding at a place; one that was found after the verdict is told.
func (v Verdict) Of(i int) Judged {
	if i < len(v.Judged) {
		return v.Judged[i]
	}
	return Judged{Action: config.Warn}
}

// Drains reports a finding that was judged to drain.
func (v Verdict) Drains(i int) bool { return v.Of(i).Action == config.Drain }

// Tells reports a finding that policy neither ignores nor only notes.
func (v Verdict) Tells(i int) bool {
	a := v.Of(i).Action
	return a != config.Ignore && a != config.Note
}

var strength = map[config.Action]int{config.Ignore: 0, config.Note: 1, config.Warn: 2, config.Drain: 3}

// Decide turns the findings of a job's hook into one verdict and one exit code; the strongest decides. Drain needs a
// finding without doubts, a mode that may drain, and no guard against it.
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

// checkExit is 0 unless the node was not checked: Slurm only logs it, and nothing else should act on it.
func checkExit(found []Finding) int {
	for _, e := range code.All() {
		met := func(f Finding) bool { return f.Code == e.Code && f.Unknown == "" }
		if e.Unchecked && slices.ContainsFunc(found, met) {
			return e.Exit
		}
	}
	return 0
}

// Again joins what was found before and after processes were ended; the scene is that of the second look. A GPU that
// settled again is judged by the second look alone. On any other one what was found first stays, unless the second look
// says it too or proves that its process is gone; but what an ended process may have held is not certain any more.
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

// withoutProcess reports memory that no live process is listed for: any process may have held it.
func (f Finding) withoutProcess() bool { return f.Code == code.Residue || f.Code == code.Phantom }

// same reports whether two findings say the same of one process, or of one GPU.
func (f Finding) same(o Finding) bool {
	who := func(h *Holder) (i Instance) {
		if h != nil {
			i = Instance{PID: h.PID, Start: h.Start}
		}
		return i
	}
	return f.Code == o.Code && f.GPU == o.GPU && who(f.Holder) == who(o.Holder)
}

// lacks reports whether this look proves a finding's process gone from its GPU.
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
