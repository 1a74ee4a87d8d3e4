package session

import (
	"errors"
	"slices"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/routine"
	"bookend/internal/state"
)

// Faults are what went wrong in one step, on its way to the step's value.
type Faults struct{ list []finding.Finding }

// Add adds a finding.
func (f *Faults) Add(found ...finding.Finding) { f.list = append(f.list, found...) }

// Take hands over what there is, and begins anew.
func (f *Faults) Take() []finding.Finding {
	all := f.list
	f.list = nil
	return all
}

// Once leaves out of what was found what is said in the same words before, there or among what was said.
func Once(found, said []finding.Finding) (news []finding.Finding) {
	for _, f := range found {
		same := func(o finding.Finding) bool {
			return o.Code == f.Code && o.GPU == f.GPU && o.Observed == f.Observed && o.Unknown == f.Unknown
		}
		if !slices.ContainsFunc(said, same) && !slices.ContainsFunc(news, same) {
			news = append(news, f)
		}
	}
	return news
}

// Try adds a failure of Bookend's own state, which never stops a hook.
func (f *Faults) Try(err error) {
	switch {
	case err == nil:
	case errors.Is(err, state.ErrExists): // a prolog run twice: the first look counts
	case errors.As(err, new(state.Damage)):
		f.Add(finding.Finding{Code: code.StateDamage, Observed: err.Error(), Expected: "a whole record"})
	case errors.Is(err, state.ErrLocked):
		f.Add(finding.Finding{Code: code.StateLock, Unknown: err.Error()})
	default:
		f.Add(finding.Finding{Code: code.StateWrite, Observed: err.Error(), Expected: "state can be written"})
	}
}

// Defect reports whether an error is a panic of ours, and adds it.
func (d *Driver) Defect(err error) bool {
	var p *routine.Panic
	if !errors.As(err, &p) {
		return false
	}
	d.Add(d.Panicked(p))
	return true
}
