package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"bookend/internal/slurm"
)

// life is the long history of one node, of several jobs on its cards, in which hooks are killed.
type life struct {
	*node
	rng   *rand.Rand
	aim   *aim
	jobs  []*job
	next  slurm.JobID
	clock int64
	now   image
	is    states
}

// job is one job id on the node.
type job struct {
	run
	stage stage
	tried int // ends that were killed
}

// stage is how far Slurm has got with a job.
type stage string

const (
	begun stage = "begun"
	over  stage = "over"
)

// freeCards are those that jobs of a life get; one of the others is the bystander's, and one is kept for the end.
var freeCards = len(cardIDs) - 2

// newLife makes a node in a folder that does not exist, with the bystander's job on it.
func newLife(dir, programs string, seed, number uint64) (*life, error) {
	n, err := newNode(dir, programs, "")
	if err != nil {
		return nil, err
	}
	l := &life{node: n, rng: rand.New(rand.NewPCG(seed, number)), next: 100, clock: 1_700_000_000}
	l.aim = newAim(l.rng)
	if _, err := l.whole(prelude); err != nil {
		return nil, err
	}
	if l.rng.IntN(2) == 0 { // half of the lives have runs to remove
		if err := fill(n); err != nil {
			return nil, err
		}
	}
	return l, l.see()
}

// see looks at what the hooks keep by now.
func (l *life) see() (err error) {
	l.now, l.is, err = l.look()
	return err
}

// live is the job that Slurm has on a card, nil for none.
func (l *life) live(card int) *job {
	for _, j := range l.jobs {
		if j.card == card && j.stage == begun {
			return j
		}
	}
	return nil
}

// choose is the next thing that Slurm does on the node.
func (l *life) choose() (step, *job) {
	card := l.rng.IntN(freeCards)
	j := l.live(card)
	ended := l.last(card)
	switch {
	case j != nil:
		j.stage = over
		return l.step(epilog, j), j
	case ended != nil && l.rng.IntN(4) == 0: // its end once more, by slurmd's own mistake
		return l.step(epilog, ended), ended
	case ended != nil && l.rng.IntN(5) == 0: // a requeue: the same id, another start
		l.clock++
		again := &job{run: ended.run, stage: begun}
		again.start = l.clock
		l.jobs = append(slices.DeleteFunc(l.jobs, func(o *job) bool { return o == ended }), again)
		return l.step(prolog, again), again
	}
	l.next++
	l.clock++
	fresh := &job{run: run{id: l.next, start: l.clock, card: card, uid: user}, stage: begun}
	l.jobs = append(slices.DeleteFunc(l.jobs, func(o *job) bool { return o.card == card && o.stage == over }), fresh)
	return l.step(prolog, fresh), fresh
}

// last is the job that has ended on a card, nil for none.
func (l *life) last(card int) *job {
	for _, j := range slices.Backward(l.jobs) {
		if j.card == card && j.stage == over {
			return j
		}
	}
	return nil
}

func (l *life) step(h hookName, j *job) step {
	return step{name: fmt.Sprintf("%s of job %d", h, j.id), hook: h, run: j.run, world: quiet}
}

// event is one hook of a life: what was killed, and what must not be.
type event struct {
	hook   hookName
	killed victim
	fresh  bool // its part is on record all the same
	wrong  []string
}

// event runs the next hook, killed or not.
func (l *life) event() (e event, err error) {
	s, j := l.choose()
	if err := l.begin(s); err != nil {
		return e, err
	}
	out, killed, err := l.aim.shoot(l.node, s)
	if err != nil {
		return e, err
	}
	was := l.is
	if err := l.see(); err != nil {
		return e, err
	}
	old, now := was.runs[s.key()], l.is.runs[s.key()]
	e = event{s.hook, killed, now.whole != old.whole, l.check(s, was, out, killed != alive).wrong}
	if killed != alive && s.hook == epilog && j.tried < 3 && !closed(l.is, s) && l.rng.IntN(2) == 0 {
		j.stage, j.tried = begun, j.tried+1 // an admin lets it end once more
	}
	return e, nil
}

func closed(s states, st step) bool {
	if len(s.runs[st.key()].ends) > 0 {
		return true
	}
	return len(s.history[st.key()].ends) > 0
}

// check compares what the hooks keep before and after a hook.
func (l *life) check(s step, was states, out outcome, killed bool) (v verdict) {
	for _, d := range l.is.damage {
		v.fault(corrupt, "%s", d)
	}
	if held := l.now.heldLocks(l.dir); len(held) > 0 {
		v.fault(litter, "locks are held, and no hook is left: %q", held)
	}
	if out.exit != 0 && !(killed && out.exit == -1) {
		v.fault(falseDrain, "%s: exit %d: %q", s.name, out.exit, out.output)
	}
	for key, old := range was.runs {
		now, there := l.is.runs[key]
		switch {
		case there && key != s.key() && now.whole != old.whole:
			v.fault(others, "%s changed by %s", key, s.name)
		case !there && l.is.history[key].whole != old.whole && key != s.key():
			v.fault(lost, "%s is gone after %s", key, s.name)
		}
	}
	for key, old := range was.history {
		now := l.is.history[key].whole
		if now != old.whole && now != l.is.runs[key].whole && now != was.runs[key].whole {
			v.fault(mixture, "%s on disk is neither what it was nor what it is", key)
		}
	}
	l.own(&v, s, was, killed)
	return v
}

// own judges the record of the hook's own run: what it was, or with this hook's part added, nothing else.
func (l *life) own(v *verdict, s step, was states, killed bool) {
	old, there := was.runs[s.key()]
	now, stays := l.is.runs[s.key()]
	if !stays {
		if archived := l.is.history[s.key()]; archived.who != "" {
			now, stays = archived, true
		}
	}
	unchanged := there == stays && now.whole == old.whole
	added := s.hook == prolog && !there && stays && now.start.all != "" && len(now.ends) == 0
	if s.hook == epilog {
		n := len(now.ends)
		added = stays && n > 0 && now.start.all == old.start.all &&
			(n == len(old.ends)+1 || n == 4 && len(old.ends) == 4)
		for i := range max(0, n-1) {
			added = added && now.ends[i].all == old.ends[i].all
		}
	}
	switch {
	case there && !stays:
		v.fault(lost, "%s: its own record %s is gone", s.name, s.key())
	case !unchanged && !added:
		v.fault(mixture, "%s: record %s is neither what it was nor that with more: %s", s.name, s.key(),
			now.difference(old))
	case !killed && !added && !(s.hook == prolog && there):
		v.fault(lost, "%s put nothing on record, and was not killed", s.name)
	}
	if !killed && s.hook == epilog && stays {
		l.told(v, s, old, now.last(epilog))
	}
}

// told wants an end to say just what is so: no record of a start where there is none, an end again where there was one.
func (l *life) told(v *verdict, s step, old record, e end) {
	want := ""
	switch {
	case len(old.ends) > 0:
		want = "BKD-AGAIN"
	case old.start.all == "":
		want = "BKD-NORECORD"
	}
	if got := e.found(); got != want {
		v.fault(unsaid, "%s found %q, not %q", s.name, got, want)
	}
}
