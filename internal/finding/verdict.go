package finding

import (
	"fmt"
	"slices"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

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

// Decide turns the findings of a job's hook into one verdict and one exit code; drain needs a finding without doubts, a
// mode that may drain, and no guard against it. It judges each finding and lets the strongest decide. The health check
// has no job, and nothing drains.
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

// judge weakens the configured action where the finding does not carry it.
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
		return warn("the first job to meet it: it drains if the next one meets it too")
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

// checkExit returns the exit code of a health check: 0 unless it has not checked the node. Slurm only logs that, and
// nothing else should act on it: what was found is in the log, the metrics and the state.
func checkExit(found []Finding) int {
	for _, e := range code.All() {
		for _, f := range found {
			if e.Unchecked && f.Code == e.Code && f.Unknown == "" {
				return e.Exit
			}
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
	who := func(h *Holder) (i attrib.Instance) {
		if h != nil {
			i = attrib.Instance{PID: h.PID, Start: h.Start}
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
	return another || !slices.ContainsFunc(r.Processes, func(p gpu.Process) bool { return p.PID == f.Holder.PID })
}
