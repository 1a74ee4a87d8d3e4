package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/code"
)

// class is how a trial went.
type class string

// The classes. Of what a hook could not do it must have said so; a killed one cannot, and leaves it to the next.
const (
	notMet    class = "not reached"
	unnoticed class = "as without the fault"
	newSaid   class = "new state, trouble said"
	oldSaid   class = "old state, trouble said"
	killedOld class = "killed: old state"
	killedNew class = "killed: new state"
)

// verdict is what the judge makes of a trial: wrong lists what must not be.
type verdict struct {
	class class
	wrong []string
}

func (v *verdict) fault(kind, format string, args ...any) {
	v.wrong = append(v.wrong, kind+": "+fmt.Sprintf(format, args...))
}

// The kinds of what must not be, as they are counted.
const (
	corrupt    = "corrupt reads"
	lost       = "lost records not said"
	falseDrain = "false drains"
	mixture    = "mixtures"
	unsaid     = "troubles not said"
	litter     = "things left behind"
	others     = "other jobs' records changed"
	badExit    = "undocumented exits"
)

// judge says what the faulty hook made of its step.
func (s *stand) judge(t trial, a attempt) (v verdict) {
	r := s.steps[t.step]
	said := r.said(a)
	v.exit(r, a, []int{r.exit}, said)
	v.damage(r, a.is, a.after)
	v.aside(r, a)
	v.neighbours(r, a)
	v.shared(r, a, said || a.is.runs[r.key()].last(r.hook).untested)
	own, old, fresh := a.is.runs[r.key()], r.was.runs[r.key()], r.is.runs[r.key()]
	switch {
	case own.equal(fresh) && !own.equal(old):
		v.class = newSaid
		if a.killed {
			v.class = killedNew
		} else if !said {
			v.class = unnoticed
		}
	case own.equal(old):
		v.class = oldSaid
		if a.killed {
			v.class = killedOld
		} else if !said {
			v.fault(unsaid, "the record of %s was not written, and no one was told: %q", r.key(), a.out.output)
		}
	default:
		v.class = newSaid
		if a.killed {
			v.class = killedNew
		}
		v.made(r, own, said)
	}
	if !a.met {
		v.class = notMet
	}
	v.clean(s, a, a.killed || t.call == "unlinkat" && t.undone)
	return v
}

// said reports whether the hook told anybody of trouble that it has not without the fault: in the log, to slurmd, in
// its record.
func (r reference) said(a attempt) bool {
	if strings.Contains(a.out.output, "bookend") {
		return true
	}
	without, now := r.after["log/bookend.log"].data, a.after["log/bookend.log"].data
	more := func(c code.Code) bool { return strings.Count(now, string(c)) > strings.Count(without, string(c)) }
	return slices.ContainsFunc(ownFaults, more)
}

// exit allows what the history has without a fault, and a 0 with a reason.
func (v *verdict) exit(r reference, a attempt, may []int, said bool) {
	exit := a.out.exit
	documented := exit == 0 || exit == code.ExitOther
	for _, e := range code.Exits() {
		documented = documented || e.Exit == exit
	}
	switch {
	case exit == -1 && a.killed, slices.Contains(may, exit):
	case !documented:
		v.fault(badExit, "%d: %q", exit, a.out.output)
	case exit != 0:
		v.fault(falseDrain, "%s ended with %d, not with one of %v", r.name, exit, may)
	case !said:
		v.fault(unsaid, "%s did not drain as it should have, and does not say why: %q", r.name, a.out.output)
	}
}

// damage allows only the record that the history itself has damaged, and that nobody has looked at.
func (v *verdict) damage(r reference, is states, now image) {
	for _, d := range is.damage {
		if !r.damaged || !strings.HasPrefix(d, r.file()) || now[r.file()].data != r.before[r.file()].data {
			v.fault(corrupt, "%s", d)
		}
	}
}

// aside allows only that record among those set aside: what is whole stays, even where it cannot be read just now.
func (v *verdict) aside(r reference, a attempt) {
	for name, e := range a.after {
		_, was := r.before[name]
		if !was && e.mode.IsRegular() && strings.Contains(name, "/damaged/") &&
			!(r.damaged && e.data == r.before[r.file()].data) {
			v.fault(lost, "%s was set aside, and was whole", name)
		}
	}
}

// neighbours compares the records that are not the hook's: they are what they were, or have gone to the disk as without
// the fault.
func (v *verdict) neighbours(r reference, a attempt) {
	for key, was := range r.was.runs {
		if key == r.key() {
			continue
		}
		now, there := a.is.runs[key]
		_, stays := r.is.runs[key]
		archived := a.is.history[key].whole == was.whole
		switch {
		case there && now.whole != was.whole:
			v.fault(others, "%s changed", key)
		case !there && stays:
			v.fault(lost, "%s is gone", key)
		case !there && !archived:
			v.fault(lost, "%s is gone, and not in the history on disk", key)
		}
	}
	for key, now := range a.is.history {
		may := []string{r.was.history[key].whole, r.was.runs[key].whole, a.is.runs[key].whole}
		if !slices.Contains(may, now.whole) {
			v.fault(mixture, "%s on disk is neither what it was nor what it is", key)
		}
	}
	for key := range r.was.history {
		if _, there := a.is.history[key]; !there {
			v.fault(lost, "%s is gone from the history on disk", key)
		}
	}
}

// shared compares what hooks keep of cards.
func (v *verdict) shared(r reference, a attempt, said bool) {
	for what, maps := range map[string][3]map[string]string{
		"baseline": {r.was.baselines, r.is.baselines, a.is.baselines},
		"test":     {r.was.probes, r.is.probes, a.is.probes},
	} {
		was, is, now := maps[0], maps[1], maps[2]
		for card := range merged(was, is, now) {
			text := now[card]
			untrusted := what == "test" && strings.Contains(text, `"skipped"`)
			if text != was[card] && text != is[card] && !(untrusted && (said || a.killed)) {
				v.fault(mixture, "the %s of %s is neither the old nor the new one: %q", what, card, text)
			}
		}
	}
}

func merged(maps ...map[string]string) map[string]bool {
	all := map[string]bool{}
	for _, m := range maps {
		for key := range m {
			all[key] = true
		}
	}
	return all
}

// made judges a record that is neither the old one nor what it would be without the fault: it must say why, and what
// was seen must be what there was to see.
func (v *verdict) made(r reference, own record, said bool) {
	old, fresh := r.was.runs[r.key()], r.is.runs[r.key()]
	if own.who == "" {
		v.fault(lost, "the record of %s is gone", r.key())
		return
	}
	added, want := own.last(r.hook), fresh.last(r.hook)
	rest := r.hook == prolog || (own.start.all == old.start.all || own.start.all == "") &&
		len(own.ends) <= len(old.ends)+1
	if own.who != fresh.who && own.who != old.who && !added.admits() || !rest || added.seen != want.seen &&
		!added.admits() {
		v.fault(mixture, "the record of %s is neither the old nor the new one", r.key())
	}
	if !added.admits() && !said && !(added.untested && own.alike(fresh)) {
		v.fault(unsaid, "the record of %s differs, and no one was told: %s", r.key(), own.difference(fresh))
	}
}

// clean says what was left lying about that nobody may leave; a killed hook may leave what it was writing.
func (v *verdict) clean(s *stand, a attempt, mayLeave bool) {
	if held := a.after.heldLocks(s.dir); len(held) > 0 {
		v.fault(litter, "locks are held, and no hook is left: %q", held)
	}
	if left := a.after.temporary(); len(left) > 0 && !mayLeave {
		v.fault(litter, "%q", left)
	}
	for _, line := range a.after.lines() {
		if strings.Count(line, "level=") > 1 {
			v.fault(litter, "two entries in one line of the log: %q", line)
		}
	}
}

// judgeNext says what the hook after the faulty one made of what that left.
func (s *stand) judgeNext(t trial, faulty, a attempt) (v verdict) {
	r, before := s.steps[t.step+1], s.steps[t.step]
	own := a.is.runs[r.key()]
	added := own.last(r.hook)
	may := []int{r.exit}
	same := r.hook == before.hook && r.key() == before.key()
	if same { // where the faulty one put nothing on record, this is the first
		may = append(may, before.exit)
	}
	v.exit(r, a, may, added.admits())
	v.damage(before, a.is, a.after)
	fresh := r.is.runs[r.key()]
	// a test that was lost is none, and a GPU whose baseline was lost is looked at for longer
	known := faulty.killed || before.said(faulty) || faulty.is.runs[before.key()].last(before.hook).untested
	switch {
	case own.equal(fresh), same && own.equal(before.is.runs[r.key()]), added.admits(), faultySaid(own):
	case known && (own.alike(fresh) || same && own.alike(before.is.runs[r.key()])):
	default:
		v.fault(unsaid, "%s: the record of %s differs, and does not say why: %s", r.name, r.key(),
			own.difference(fresh))
	}
	if own.who == "" || r.hook == epilog && len(own.ends) == 0 {
		v.fault(lost, "%s: no record of %s", r.name, r.key())
	}
	v.bystanders(faulty, a, r)
	v.clean(s, a, r.hook == prolog)
	return v
}

// faultySaid reports whether an earlier end of the record tells of trouble.
func faultySaid(r record) bool {
	return r.start.admits() || slices.ContainsFunc(r.ends, end.admits)
}

// bystanders compares the records of other jobs before and after the following hook.
func (v *verdict) bystanders(was, now attempt, r reference) {
	for key, rec := range was.is.runs {
		kept, there := now.is.runs[key]
		switch {
		case key == r.key():
		case there && kept.whole != rec.whole:
			v.fault(others, "%s changed", key)
		// runs of long ago are removed
		case !there && now.is.history[key].whole != rec.whole && !strings.HasPrefix(key, "1"):
			v.fault(lost, "%s is gone", key)
		}
	}
	bystander := prelude.key()
	if was.is.runs[bystander].whole != now.is.runs[bystander].whole {
		v.fault(others, "the bystander's record changed")
	}
}
