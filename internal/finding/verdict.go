package finding

import (
	"fmt"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/slurm"
)

// Rules are the configuration's rules for one hook of one partition.
type Rules struct {
	phase       slurm.Context
	mode        config.Mode
	onUnknown   config.Action
	actions     []map[code.Code]config.Action // the first that knows a code decides
	maxRestarts int
}

// Compile picks the rules for a phase and a partition.
func Compile(c config.Config, phase slurm.Context, partition string) Rules {
	own := c.Policy.Partitions[partition]
	r := Rules{phase: phase, mode: c.Mode, onUnknown: c.OnUnknown, maxRestarts: c.Drain.MaxRestarts}
	if own.Mode != "" {
		r.mode = own.Mode
	}
	r.actions = []map[code.Code]config.Action{own.Epilog, c.Policy.Epilog}
	switch phase {
	case slurm.Prolog:
		r.actions = []map[code.Code]config.Action{own.Prolog, c.Policy.Prolog}
	case slurm.HealthCheck:
		r.actions, r.onUnknown = []map[code.Code]config.Action{c.Policy.HealthCheck}, config.Warn
	}
	return r
}

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

// Decide turns findings into one verdict and one exit code; drain needs a finding without doubts, a mode that may drain,
// and no guard against it. It judges each finding and lets the strongest decide; restarts is the job's restart count. The health check has
// no job: all cards count, and nothing drains.
func (r Rules) Decide(found []Finding, restarts int) Verdict {
	v := Verdict{Action: config.Ignore}
	for _, f := range found {
		j := r.judge(f)
		v.Judged = append(v.Judged, j)
		entry, _ := code.Lookup(f.Code)
		if entry.Scope == code.Elsewhere && r.phase != slurm.HealthCheck {
			continue // judged and told, but a verdict is on the job's own cards
		}
		if strength[j.Action] > strength[v.Action] {
			v.Action, v.Code = j.Action, f.Code
		}
	}
	if r.phase == slurm.HealthCheck {
		v.Exit = checkExit(found)
	}
	if v.Action != config.Drain {
		return v
	}
	if v.Held = r.guard(restarts); v.Held != "" {
		v.Action = config.Warn
		return v
	}
	v.Exit = code.Exit(v.Code)
	return v
}

// judge weakens the configured action where the finding does not carry it.
func (r Rules) judge(f Finding) Judged {
	want := r.configured(f.Code)
	entry, _ := code.Lookup(f.Code)
	switch {
	case entry.Scope == code.Own && want == config.Warn:
		return Judged{Action: r.onUnknown}
	case want != config.Drain:
		return Judged{Action: want}
	case r.phase == slurm.HealthCheck:
		return Judged{Action: config.Warn, Why: "the health check never drains"}
	case entry.Scope == code.Elsewhere:
		return Judged{Action: config.Warn, Why: "it is about a card that is not this job's"}
	case entry.Scope == code.Card && entry.Severity == code.Note:
		return Judged{Action: config.Warn, Why: "it tells of a card and says nothing against it"}
	case f.Unknown != "":
		return Judged{Action: config.Warn, Why: "unknown: " + f.Unknown}
	case len(f.Doubts) > 0:
		return Judged{Action: config.Warn, Why: f.Doubts[0]}
	}
	return Judged{Action: config.Drain}
}

func (r Rules) configured(c code.Code) config.Action {
	for _, m := range r.actions {
		if a, ok := m[c]; ok {
			return a
		}
	}
	return config.Warn
}

func (r Rules) guard(restarts int) string {
	switch {
	case r.mode != config.Enforce:
		return "observe mode"
	case r.phase == slurm.Prolog && r.maxRestarts > 0 && restarts >= r.maxRestarts:
		return fmt.Sprintf("the job was restarted %d times: another drained node would not help it", restarts)
	}
	return ""
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
