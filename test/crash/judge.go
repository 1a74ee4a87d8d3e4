package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"bookend/internal/code"
)

// verdict is what the judge makes of a trial: wrong lists what must not be.
type verdict struct {
	class string // what was there, and whether it was said
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
)

// judge says what the faulty hook made of its step. Of what it could not do it must have said so; a killed one cannot,
// and leaves it to the next.
func (s *stand) judge(t trial, a attempt) (v verdict) {
	r := s.steps[t.step]
	said := r.said(a)
	v.hook(r, r, r.was, a, said, r.exit)
	for name, e := range a.is.files { // what is whole stays, even where it cannot be read just now
		_, was := r.was.files[name]
		if !was && e.mode.IsRegular() && strings.Contains(name, "/damaged/") &&
			!(r.damaged && e.data == r.was.files[r.file()].data) {
			v.fault(lost, "%s was set aside, and was whole", name)
		}
	}
	if left := a.is.temporary(); len(left) > 0 && !a.killed && t.call != "unlinkat" {
		v.fault(litter, "%q", left)
	}
	own, old := a.is.runs[r.key()], r.was.runs[r.key()]
	if r.damaged && len(own.ends) == 0 && !a.is.doubts(r) {
		v.fault(lost, "the record of %s was damaged, and nothing says so any more", r.key())
	}
	v.class = "new state"
	switch {
	case own.equal(old):
		if v.class = "old state"; !a.killed && !said {
			v.fault(unsaid, "the record of %s was not written, and no one was told: %q", r.key(), a.out.output)
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

// said reports whether the hook told anybody of trouble that it has not without the fault: in the log, to slurmd, in
// its record.
func (r reference) said(a attempt) bool {
	without, now := r.is.files[logFile].data, a.is.files[logFile].data
	return strings.Contains(a.out.output, "bookend") || slices.ContainsFunc(ownFaults, func(c code.Code) bool {
		return strings.Count(now, string(c)) > strings.Count(without, string(c))
	})
}

// hook judges what holds of every hook: its exit is what the history has without a fault, or a 0 with a reason; nothing
// is damaged but what the history itself has damaged in the step r, and nobody has looked at; what is not the hook's
// was there before and is what it was, in memory or on disk, or what the history itself has put there.
func (v *verdict) hook(r, step reference, was look, a attempt, said bool, may ...int) {
	switch exit := a.out.exit; {
	case exit == -1 && a.killed, slices.Contains(may, exit):
	case exit != 0:
		v.fault(falseDrain, "%s ended with %d, not with one of %v: %q", step.name, exit, may, a.out.output)
	case !said:
		v.fault(unsaid, "%s did not drain as it should have, and does not say why: %q", step.name, a.out.output)
	}
	for _, d := range a.is.damage {
		if !r.damaged || !strings.HasPrefix(d, r.file()) || a.is.files[r.file()].data != r.was.files[r.file()].data {
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
	for line := range strings.Lines(a.is.files[logFile].data) {
		if strings.Count(line, "level=") > 1 {
			v.fault(litter, "two entries in one line of the log: %q", line)
		}
	}
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
	if !rest || !added.admits() && (own.who != fresh.who && own.who != old.who || added.seen != want.seen) {
		v.fault(mixture, "the record of %s is neither the old nor the new one", r.key())
	}
	if !added.admits() && !said && !(added.untested && own.alike(fresh)) {
		v.fault(unsaid, "the record of %s differs, and no one was told: %s", r.key(), own.difference(fresh))
	}
}

// judgeNext says what the hook after the faulty one made of what that left.
func (s *stand) judgeNext(v *verdict, t trial, faulty, a attempt) {
	r, before := s.steps[t.step+1], s.steps[t.step]
	own, fresh := a.is.runs[r.key()], r.is.runs[r.key()]
	added := own.last(r.hook)
	may := []int{r.exit}
	as := []record{fresh}
	if r.hook == before.hook && r.key() == before.key() { // where the faulty one put nothing on record, this is the first
		may, as = append(may, before.exit), append(as, before.is.runs[r.key()])
	}
	v.hook(before, r, faulty.is, a, added.admits(), may...)
	// a test that was lost is none, and a GPU whose baseline was lost is looked at for longer
	known := faulty.killed || before.said(faulty) || faulty.is.runs[before.key()].last(before.hook).untested
	told := own.start.admits() || slices.ContainsFunc(own.ends, end.admits)
	if !told && !slices.ContainsFunc(as, own.equal) && !(known && slices.ContainsFunc(as, own.alike)) {
		v.fault(unsaid, "%s: the record of %s differs, and does not say why: %s", r.name, r.key(), own.difference(fresh))
	}
	if own.who == "" || r.hook == epilog && len(own.ends) == 0 {
		v.fault(lost, "%s: no record of %s", r.name, r.key())
	}
	if left := a.is.temporary(); len(left) > 0 && r.hook == epilog {
		v.fault(litter, "%q", left)
	}
}

// tally counts what became of trials; many workers add to it.
type tally struct {
	mu          sync.Mutex
	classes     map[string]int
	wrong       map[string]int // by kind
	failed      []string
	seen, tried int // calls of the history, trials
}

func newTally() *tally { return &tally{classes: map[string]int{}, wrong: map[string]int{}} }

func (t *tally) add(tr trial, v verdict) {
	t.mu.Lock()
	t.classes[v.class]++
	t.mu.Unlock()
	t.fail(v.wrong, fmt.Sprintf("--only %q", tr.String()))
}

func (t *tally) fail(wrong []string, replay string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range wrong {
		kind, _, _ := strings.Cut(w, ":")
		t.wrong[kind]++
		t.failed = append(t.failed, fmt.Sprintf("%s (%s)", w, replay))
	}
}

// print writes what was tried, what became of it, and what must not be.
func (t *tally) print(w io.Writer) {
	fmt.Fprintf(w, "%d calls of the hooks touch what they keep; %d faults were tried\n", t.seen, t.tried)
	for _, c := range slices.Sorted(maps.Keys(t.classes)) {
		fmt.Fprintf(w, "%-28s %d\n", c+":", t.classes[c])
	}
	for _, kind := range []string{corrupt, lost, falseDrain, mixture, unsaid, litter, others} {
		fmt.Fprintf(w, "%-28s %d\n", kind+":", t.wrong[kind])
	}
	for _, f := range t.failed[:min(20, len(t.failed))] {
		fmt.Fprintf(w, "FAILED %s\n", f)
	}
}
