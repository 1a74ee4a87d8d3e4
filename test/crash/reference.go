package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/test/intercept"
)

// reference is a step as it goes without a fault.
type reference struct {
	step
	before, after image
	was, is       states
	out           outcome
	points        []point
	leaked        time.Duration // the node's
}

// stand is a node on which trials are made, one after another, with the history as it goes there without a fault.
type stand struct {
	*node
	steps []reference
}

// newStand plays the history once and refuses one that does not go as it should.
func newStand(dir, programs string) (*stand, error) {
	n, err := newNode(filepath.Join(dir, "node"), programs, "")
	if err != nil {
		return nil, err
	}
	s := &stand{node: n}
	if _, err := s.play(prelude); err != nil {
		return nil, err
	}
	for _, st := range history {
		r, err := s.play(st)
		if err != nil {
			return nil, err
		}
		s.steps = append(s.steps, r)
	}
	return s, nil
}

// play runs a step without a fault and notes all its calls.
func (s *stand) play(st step) (r reference, err error) {
	r.step = st
	if err := s.begin(st); err != nil {
		return r, err
	}
	r.leaked = s.leaked
	if r.before, r.was, err = s.look(); err != nil {
		return r, err
	}
	t := newTracer(s.dir)
	r.out, err = s.call(st, kinds(""), func(_ int, c intercept.Call) intercept.Answer {
		if p, ok := t.point(c); ok {
			r.points = append(r.points, p)
		}
		return intercept.Pass()
	})
	if err != nil {
		return r, err
	}
	if r.after, r.is, err = s.look(); err != nil {
		return r, err
	}
	return r, r.asMeant()
}

// wrongHistory is a history that does not go, without any fault, as its table says.
type wrongHistory struct{ why string }

func (w wrongHistory) Error() string { return w.why }

// asMeant compares what the hook made of its step with what the table says.
func (r reference) asMeant() error {
	own := r.is.runs[r.key()]
	found := own.last(r.hook).found()
	problems := slices.Concat(r.is.damage, r.after.temporary(), disorder(r.points))
	switch {
	case r.out.exit != r.exit || r.out.output != "":
		return wrongHistory{fmt.Sprintf("%s: exit %d, not %d: %q", r.name, r.out.exit, r.exit, r.out.output)}
	case found != r.finds:
		return wrongHistory{fmt.Sprintf("%s: found %q, not %q", r.name, found, r.finds)}
	case len(problems) > 0:
		return wrongHistory{fmt.Sprintf("%s: %s", r.name, strings.Join(problems, "; "))}
	case r.damaged && !r.after.aside(r.before[r.file()]):
		return wrongHistory{fmt.Sprintf("%s: the damaged record is not set aside", r.name)}
	}
	return nil
}

// key names the run of a step, file its record below the node's folder.
func (s step) key() string { return fmt.Sprintf("%d/t%d", s.run.id, s.run.start) }

func (s step) file() string { return "run/state/" + nodeName + "/" + s.key() + ".json" }

// aside reports whether a file lies among those set aside.
func (im image) aside(e entry) bool {
	for name, a := range im {
		if strings.Contains(name, "/damaged/") && a.data == e.data {
			return true
		}
	}
	return false
}

// disorder says where a record on disk was named before it was there to stay: synced, renamed, folder synced.
func disorder(points []point) (problems []string) {
	state := ""
	for _, p := range points {
		if !strings.HasPrefix(p.class, "var/history/"+nodeName) || p.role != "disk" {
			continue
		}
		switch {
		case p.call == "openat" && p.write:
			state = "open"
		case p.call == "fsync" && state == "open":
			state = "synced"
		case p.call == "renameat":
			if state != "synced" {
				problems = append(problems, "a record on disk got its name before it was synced")
			}
			state = "named"
		case p.call == "fsync" && state == "named":
			state = ""
		}
	}
	if state == "named" {
		problems = append(problems, "a directory on disk was not synced after a record in it got its name")
	}
	return problems
}
