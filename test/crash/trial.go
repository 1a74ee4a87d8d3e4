package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/test/intercept"
)

// planned is a fault at a point.
type planned struct {
	point
	fault
}

func (p planned) String() string { return p.point.String() + ": " + p.fault.name }

// trial is one step with one or two faults.
type trial struct {
	step   int
	faults []planned
}

func (t trial) String() string {
	words := make([]string, len(t.faults))
	for i, f := range t.faults {
		words[i] = f.String()
	}
	return history[t.step].name + ": " + strings.Join(words, ", then ")
}

// attempt is what became of a trial.
type attempt struct {
	out    outcome
	hit    int // faults that were met
	killed bool
	after  image
	is     states
	points []point // from the first fault on, where they were asked for
}

// try runs a trial's step from where the history has it.
func (s *stand) try(t trial, trace bool) (a attempt, err error) {
	r := s.steps[t.step]
	if err := r.before.copyTo(s.dir); err != nil {
		return a, err
	}
	s.leaked = r.leaked
	if err := s.world(r.step); err != nil {
		return a, err
	}
	tr := newTracer(s.dir)
	a.out, err = s.call(r.step, t.kinds(trace), func(hook int, c intercept.Call) intercept.Answer {
		p, ok := tr.point(c)
		if !ok {
			return intercept.Pass()
		}
		if trace && a.hit > 0 {
			a.points = append(a.points, p)
		}
		if a.hit >= len(t.faults) || t.faults[a.hit].point != p {
			return intercept.Pass()
		}
		f := t.faults[a.hit]
		a.hit++
		a.killed = a.killed || f.kills
		if f.group {
			_ = unix.Kill(-hook, unix.SIGKILL)
			return intercept.Pass()
		}
		return f.answer
	})
	if err != nil {
		return a, err
	}
	if a.after, err = capture(s.dir); err != nil {
		return a, err
	}
	a.is, err = a.after.decode(s.folder)
	return a, err
}

func (s *stand) world(st step) error {
	if err := st.world(s.node); err != nil {
		return fmt.Errorf("%s: %w", st.name, err)
	}
	return nil
}

// kinds are those calls alone that matter: each one that is asked about costs time.
func (t trial) kinds(trace bool) (all []intercept.Kind) {
	if trace {
		return kinds("")
	}
	known := map[string]bool{}
	for _, f := range t.faults {
		if !known[f.call] {
			all = append(all, kinds(f.call)...)
		}
		known[f.call] = true
	}
	return all
}

// follow runs the step after the trial's, without a fault.
func (s *stand) follow(t trial) (a attempt, err error) {
	next := s.steps[t.step+1]
	if err := s.begin(next.step); err != nil {
		return a, err
	}
	if a.out, err = s.call(next.step, nil, nil); err != nil {
		return a, err
	}
	if a.after, err = capture(s.dir); err != nil {
		return a, err
	}
	a.is, err = a.after.decode(s.folder)
	return a, err
}
