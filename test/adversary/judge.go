package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// The kinds of what must not be.
const (
	corrupt    = "corrupt reads"
	lost       = "lost records not said"
	falseDrain = "false drains"
	mixture    = "mixtures"
	unsaid     = "troubles not said"
	litter     = "things left behind"
	others     = "other jobs' records changed"
)

// verdict is what the judge makes of a trial.
type verdict struct {
	class string   // what is on record, and whether trouble was said
	wrong []string // what must not be
}

func (v *verdict) fault(kind, format string, args ...any) {
	v.wrong = append(v.wrong, kind+": "+fmt.Sprintf(format, args...))
}

// judge says what the faulty hook made of its step. It must have said what it could not do. A killed one cannot, and
// leaves that to the next.
func judge(r reference, t trial, a attempt) (v verdict) {
	said := r.said(a)
	v.hook(r, r, r.was, a, said, r.exit)
	for name, content := range a.is.files { // what is whole stays, even if it cannot be read just now
		_, was := r.was.files[name]
		if !was && strings.Contains(name, "/damaged/") && !(r.damaged && content == r.was.files[r.file()]) {
			v.fault(lost, "%s was set aside, and was whole", name)
		}
	}
	if left := a.is.temporary(); len(left) > 0 && !a.killed && t.call != "unlinkat" {
		v.fault(litter, "%q", left)
	}
	own, old := a.is.runs[r.key()], r.was.runs[r.key()]
	if r.damaged && len(own.run.Ends) == 0 && !a.is.doubts(r) {
		v.fault(lost, "the record of %s was damaged, and nothing says so any more", r.key())
	}
	v.class = "new state"
	switch {
	case own.equal(old):
		if v.class = "old state"; !a.killed && !said {
			v.fault(unsaid, "the record of %s was not written, and nothing says so: %q", r.key(), a.output)
		}
	case !own.equal(r.is.runs[r.key()]):
		v.made(r, own, said)
	}
	switch {
	case !a.met:
		v.class = "not reached"
	case a.killed:
		v.class = "killed: " + v.class
	case said:
		v.class += ", trouble said"
	default:
		v.class += " without a word"
	}
	return v
}

// said reports whether the hook told of trouble that it does not have without the fault: in the log, to slurmd, in its
// record.
func (r reference) said(a attempt) bool {
	without, now := r.is.files[logFile], a.is.files[logFile]
	return strings.Contains(a.output, "bookend") || slices.ContainsFunc(ownFaults, func(c catalog.Code) bool {
		return strings.Count(now, string(c)) > strings.Count(without, string(c))
	})
}

// hook judges what is true of every hook. It exits as without a fault, or with 0 and a reason. Nothing is damaged but
// what the history itself has damaged in step r, as long as no hook has looked. What is not the hook's is still there and
// as it was, in memory or on disk, or as the history itself has made it.
func (v *verdict) hook(r, step reference, was look, a attempt, said bool, may ...int) {
	switch {
	case a.exit == -1 && a.killed, slices.Contains(may, a.exit):
	case a.exit != 0:
		v.fault(falseDrain, "%s ended with %d, not with one of %v: %q", step.name, a.exit, may, a.output)
	case !said:
		v.fault(unsaid, "%s did not drain as it should have, and does not say why: %q", step.name, a.output)
	}
	for _, d := range a.is.damage {
		if !r.damaged || !strings.HasPrefix(d, r.file()) || a.is.files[r.file()] != r.was.files[r.file()] {
			v.fault(corrupt, "%s", d)
		}
	}
	for key, old := range was.runs {
		now, there := a.is.runs[key]
		switch {
		case key == step.key():
		case there && now.whole != old.whole:
			v.fault(others, "%s changed", key)
		case !there && a.is.history[key].whole != old.whole:
			v.fault(lost, "%s is gone, and not in the history on disk", key)
		}
	}
	for key, now := range a.is.history {
		whole := []string{was.history[key].whole, was.runs[key].whole, a.is.runs[key].whole, step.is.history[key].whole}
		if !slices.Contains(whole, now.whole) {
			v.fault(mixture, "%s on disk is neither what it was nor what it is", key)
		}
	}
	for key := range was.history {
		if _, there := a.is.history[key]; !there {
			v.fault(lost, "%s is gone from the history on disk", key)
		}
	}
	for line := range strings.Lines(a.is.files[logFile]) {
		if strings.Count(line, "level=") > 1 {
			v.fault(litter, "two entries in one line of the log: %q", line)
		}
	}
}

// made judges a record that is neither the old one nor what it would be without the fault: it must say why, and what was
// seen must be what there was to see.
func (v *verdict) made(r reference, own runRecord, said bool) {
	old, fresh := r.was.runs[r.key()], r.is.runs[r.key()]
	if own.whole == "" {
		v.fault(lost, "the record of %s is gone", r.key())
		return
	}
	added, want := own.last(r.hook), fresh.last(r.hook)
	rest := r.hook == slurm.Prolog || (own.run.Start == nil || plain(own.run.Start) == plain(old.run.Start)) &&
		len(own.run.Ends) <= len(old.run.Ends)+1
	if !rest || !admits(added) && (own.who() != fresh.who() && own.who() != old.who() || seen(added) != seen(want)) {
		v.fault(mixture, "the record of %s is neither the old nor the new one", r.key())
	}
	if !admits(added) && !said && !(untested(added) && own.alike(fresh)) {
		v.fault(unsaid, "the record of %s differs, and nothing says why: %s", r.key(), own.difference(fresh))
	}
}

// next judges what the hook r after the faulty one made of what that left.
func (v *verdict) next(before, r reference, faulty, a attempt) {
	own, fresh := a.is.runs[r.key()], r.is.runs[r.key()]
	added, may, as := own.last(r.hook), []int{r.exit}, []runRecord{fresh}
	if r.hook == before.hook && r.key() == before.key() { // if the faulty one put nothing on record, this is the first
		may, as = append(may, before.exit), append(as, before.is.runs[r.key()])
	}
	v.hook(before, r, faulty.is, a, admits(added), may...)
	// a test that was lost is none, and a GPU whose baseline was lost is watched for longer
	known := faulty.killed || before.said(faulty) || untested(faulty.is.runs[before.key()].last(before.hook))
	admitted := admits(own.run.Start) ||
		slices.ContainsFunc(own.run.Ends, func(e record.End) bool { return admits(&e) })
	if !admitted && !slices.ContainsFunc(as, own.equal) && !(known && slices.ContainsFunc(as, own.alike)) {
		v.fault(unsaid, "%s: the record of %s differs, and does not say why: %s", r.name, r.key(), own.difference(fresh))
	}
	if own.whole == "" || r.hook == slurm.Epilog && len(own.run.Ends) == 0 {
		v.fault(lost, "%s: no record of %s", r.name, r.key())
	}
	if left := a.is.temporary(); len(left) > 0 && r.hook == slurm.Epilog {
		v.fault(litter, "%q", left)
	}
}
