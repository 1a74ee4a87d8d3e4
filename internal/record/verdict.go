package record

import (
	"bookend/internal/catalog"
)

// Judged is what policy decided about one finding.
type Judged struct {
	Action catalog.Action `json:"action"`
	Why    string         `json:"why,omitempty"` // why the action is weaker than configured
}

// Verdict is a hook's outcome.
type Verdict struct {
	Action catalog.Action `json:"action"`
	// Exit is the exit code of the drain, 0 for none. With ByScontrol the hook itself exits 0.
	Exit       int          `json:"exit"`
	ByScontrol bool         `json:"by_scontrol,omitempty"`
	Code       catalog.Code `json:"code,omitempty"`   // the finding that decided, empty if none did
	Held       string       `json:"held,omitempty"`   // why a drain was not carried out: observe mode, or a guard
	Judged     []Judged     `json:"judged,omitempty"` // one for each finding, in order
}

func (v Verdict) Status() int {
	if v.ByScontrol {
		return 0
	}
	return v.Exit
}

// Of returns the decision about a finding by its index. A finding made after the verdict is reported (Warn).
func (v Verdict) Of(i int) Judged {
	if i < len(v.Judged) {
		return v.Judged[i]
	}
	return Judged{Action: catalog.ToWarn}
}

// Drains reports whether the finding with this index was judged to drain.
func (v Verdict) Drains(i int) bool { return v.Of(i).Action == catalog.ToDrain }

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
	return a != catalog.ToIgnore && a != catalog.ToNote
}
