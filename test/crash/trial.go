package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/intercept"
	"bookend/test/rig"
)

// planned is a fault at a point.
type planned struct {
	point
	fault
}

func (p planned) String() string { return p.point.String() + ": " + p.fault.name }

// trial is one step with a fault.
type trial struct {
	step int
	planned
}

func (t trial) String() string { return history[t.step].name + ": " + t.planned.String() }

// attempt is what became of a trial.
type attempt struct {
	out    outcome
	met    bool
	killed bool
	after  image
	is     states
}

// try runs a trial's step from where the history has it.
func (s *stand) try(t trial) (a attempt, err error) {
	r := s.steps[t.step]
	if err := r.before.copyTo(s.dir); err != nil {
		return a, err
	}
	s.leaked, r.arrange = r.leaked, nil // that was done before the history's hook
	if err := s.begin(r.step); err != nil {
		return a, err
	}
	tr := newTracer(s.dir)
	// Those calls alone that matter: each one that is asked about costs time.
	a.out, err = s.call(r.step, kinds(t.call), func(hook int, c intercept.Call) intercept.Answer {
		if p, ok := tr.point(c); !ok || a.met || t.point != p {
			return intercept.Pass()
		}
		a.met, a.killed = true, t.kills
		if t.group {
			_ = unix.Kill(-hook, unix.SIGKILL)
			return intercept.Pass()
		}
		return t.answer
	})
	if err == nil {
		a.after, a.is, err = s.look()
	}
	return a, err
}

// follow runs the step after the trial's, without a fault, long after it: an end sweeps what was interrupted.
func (s *stand) follow(t trial, left []string) (a attempt, err error) {
	long := time.Now().Add(-48 * time.Hour)
	for _, name := range left {
		err = errors.Join(err, os.Chtimes(filepath.Join(s.dir, name), long, long))
	}
	if err != nil {
		return a, fmt.Errorf("let time pass: %w", err)
	}
	if a.out, err = s.whole(s.steps[t.step+1].step); err == nil {
		a.after, a.is, err = s.look()
	}
	return a, err
}

// crew are stands side by side.
type crew []*stand

// newCrew plays the history on as many stands as there are workers.
func (b *bench) newCrew(programs string, workers int) (crew, error) {
	folders, err := b.folders("stand", workers)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var c crew
	err = rig.Each(folders, folders, func(_, folder string) error {
		s, err := newStand(folder, programs)
		mu.Lock()
		defer mu.Unlock()
		c = append(c, s)
		return err
	})
	return c, err
}

// enumerate tries every fault.
func (c crew) enumerate(trials []trial, t *tally) error {
	return rig.Each(c, trials, func(s *stand, tr trial) error {
		a, err := s.try(tr)
		if err != nil {
			return err
		}
		v := s.judge(tr, a)
		next, err := s.follow(tr, a.after.temporary())
		if err != nil {
			return err
		}
		v.wrong = append(v.wrong, s.judgeNext(tr, a, next).wrong...)
		t.add(tr, v)
		return nil
	})
}

// faults tries every fault.
func (b *bench) faults(o order, programs string, t *tally) error {
	c, err := b.newCrew(programs, o.workers)
	if err != nil {
		return err
	}
	trials, seen := plan(c[0].steps, o.only)
	t.seen, t.tried = seen, len(trials)
	return c.enumerate(trials, t)
}

// twoEnds runs a whole epilog between another one's look at the job's record and its writing: both ends are on record,
// or the log says which is not.
func (b *bench) twoEnds(programs string, t *tally) error {
	dir, err := b.folder("together")
	if err != nil {
		return err
	}
	n, err := newNode(dir+"/node", programs, "probe: {at: never}\n") // else the second waits for the first
	if err != nil {
		return err
	}
	end := step{name: "two ends at once", hook: epilog, run: first, world: quiet}
	if _, err := n.whole(step{name: end.name, hook: prolog, run: first, world: quiet}); err != nil {
		return err
	}
	tr, met := newTracer(n.dir), false
	var inner error
	_, err = n.call(end, kinds("renameat"), func(_ int, c intercept.Call) intercept.Answer {
		p, ok := tr.point(c)
		if ok && !met && p.role == "hook" && strings.HasPrefix(p.class, "run/state/"+nodeName+"/100/") {
			met = true
			_, inner = n.call(end, nil, nil)
		}
		return intercept.Pass()
	})
	if err != nil || inner != nil {
		return err
	}
	im, is, err := n.look()
	if err != nil {
		return err
	}
	var v verdict
	ends, said := len(is.runs[end.key()].ends), strings.Count(im["log/bookend.log"].data, "BKD-ST-LOCK:")
	if !met || ends+said < 2 || len(is.damage) > 0 {
		v.fault(lost, "two epilogs at once: %d ends on record, %d said to be missing; %q", ends, said, is.damage)
	}
	t.fail(v.wrong, "two ends at once")
	return nil
}
