package finding

import (
	"fmt"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/slurm"
)

// Rules are the configuration's rules for one hook of one partition.
type Rules struct {
	config    config.Config
	phase     slurm.Context
	partition string
}

// Compile picks the rules for a phase and a partition.
func Compile(c config.Config, phase slurm.Context, partition string) Rules {
	if own := c.Policy.Partitions[partition]; own.Mode != "" {
		c.Mode = own.Mode
	}
	if phase == slurm.HealthCheck {
		c.OnUnknown = config.Warn
	}
	return Rules{c, phase, partition}
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
	want := r.config.Action(r.phase, r.partition, f.Code)
	entry, _ := code.Lookup(f.Code)
	never := entry.NeverDrains()
	switch {
	case entry.Scope == code.Own && want != config.Ignore && want != config.Note:
		return Judged{Action: r.config.OnUnknown}
	case want == config.Repeat && !f.Repeated:
		return Judged{Action: config.Warn, Why: "the first job to meet it: it drains if the next one meets it too"}
	case want != config.Drain && want != config.Repeat:
		return Judged{Action: want}
	case r.phase == slurm.HealthCheck:
		return Judged{Action: config.Warn, Why: "the health check never drains"}
	case never != "":
		return Judged{Action: config.Warn, Why: never}
	case f.Unknown != "":
		return Judged{Action: config.Warn, Why: "unknown: " + f.Unknown}
	case len(f.Doubts) > 0:
		return Judged{Action: config.Warn, Why: f.Doubts[0]}
	}
	return Judged{Action: config.Drain}
}

func (r Rules) guard(restarts int) string {
	most := r.config.Drain.MaxRestarts
	switch {
	case r.config.Mode != config.Enforce:
		return "observe mode"
	case r.phase == slurm.Prolog && most > 0 && restarts >= most:
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
