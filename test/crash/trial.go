package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/faultinject"
	"bookend/test/rig"
)

// reference is a step as it goes without a fault.
type reference struct {
	step
	was, is look
	points  []point
	leaked  time.Duration // the node's
}

// stand is a node on which trials are made, one after another, with the history as it goes there without a fault.
type stand struct {
	*node
	steps []reference
}

// newStand plays the history once and refuses one that does not go as it should.
func newStand(dir, programs string) *stand {
	s := &stand{node: newNode(filepath.Join(dir, "node"), programs, "")}
	for _, st := range append([]step{prelude}, history...) {
		s.steps = append(s.steps, s.play(st))
	}
	s.steps = s.steps[1:]
	return s
}

// play runs a step without a fault and notes all its calls.
func (s *stand) play(st step) reference {
	s.begin(st)
	r, t := reference{step: st, leaked: s.leaked, was: s.look()}, newTracer(s.dir)
	out := s.call(st, kinds(""), func(_ int, c faultinject.Call) faultinject.Answer {
		if p, ok := t.point(c); ok {
			r.points = append(r.points, p)
		}
		return faultinject.Answer{}
	})
	r.is = s.look()
	found := r.is.runs[st.key()].last(st.hook).found
	problems := slices.Concat(r.is.damage, r.is.temporary(), disorder(r.points))
	if r.damaged && !r.is.aside(r.was.files[st.file()]) {
		problems = append(problems, "the damaged record is not set aside")
	}
	if out.exit != st.exit || out.output != "" || found != st.finds || len(problems) > 0 {
		panic(wrongHistory(fmt.Sprintf("%s: exit %d %q, found %q, not %d, %q; %s",
			st.name, out.exit, out.output, found, st.exit, st.finds, strings.Join(problems, "; "))))
	}
	return r
}

// wrongHistory is a history that does not go, without any fault, as its table says.
type wrongHistory string

func (w wrongHistory) Error() string { return string(w) }

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

type trial struct {
	step int
	point
	fault
}

func (t trial) String() string {
	return history[t.step].name + ": " + t.point.String() + ": " + t.fault.name
}

type attempt struct {
	out    outcome
	met    bool
	killed bool
	is     look
}

// try runs a trial's step from where the history has it.
func (s *stand) try(t trial) (a attempt) {
	r := s.steps[t.step]
	r.was.files.copyTo(s.dir)
	s.leaked, r.arrange = r.leaked, nil // that was done before the history's hook
	s.begin(r.step)
	tr := newTracer(s.dir)
	// Those calls alone that matter: each one that is asked about costs time.
	a.out = s.call(r.step, kinds(t.call), func(hook int, c faultinject.Call) faultinject.Answer {
		if p, ok := tr.point(c); !ok || a.met || t.point != p {
			return faultinject.Answer{}
		}
		a.met, a.killed = true, t.kills
		if t.group {
			_ = unix.Kill(-hook, unix.SIGKILL)
			return faultinject.Answer{}
		}
		return t.answer
	})
	a.is = s.look()
	return a
}

// follow runs the step after the trial's, without a fault, long after it: an end sweeps what was interrupted.
func (s *stand) follow(t trial, left []string) attempt {
	long := time.Now().Add(-48 * time.Hour)
	for _, name := range left {
		rig.Try(os.Chtimes(filepath.Join(s.dir, name), long, long))
	}
	return attempt{out: s.whole(s.steps[t.step+1].step), is: s.look()}
}

// faults tries every fault, on stands side by side.
func (b bench) faults(only string, workers int, programs string, t *tally) {
	stands, made := make([]*stand, workers), -1
	count := func() (int, bool) {
		made++
		return made, made < len(stands)
	}
	rig.Try(rig.Each(stands, count, func(_ *stand, i int) error {
		return rig.Attempt(func() { stands[i] = newStand(rig.Have(b.Folder("stand")), programs) })
	}))
	trials, seen := plan(stands[0].steps, only)
	t.seen, t.tried = seen, len(trials)
	next := func() (tr trial, more bool) {
		if more = len(trials) > 0; more {
			tr, trials = trials[0], trials[1:]
		}
		return tr, more
	}
	rig.Try(rig.Each(stands, next, func(s *stand, tr trial) error {
		return rig.Attempt(func() {
			a := s.try(tr)
			v := s.judge(tr, a)
			s.judgeNext(&v, tr, a, s.follow(tr, a.is.temporary()))
			t.add(tr, v)
		})
	}))
}

// twoEnds runs a whole epilog between another one's look at the job's record and its writing: both ends are on record,
// or the log says which is not.
func (b bench) twoEnds(programs string, t *tally) {
	dir := rig.Have(b.Folder("together"))
	n := newNode(dir+"/node", programs, "probe: {at: never}\n") // else the second waits for the first
	end := step{name: together, hook: epilog, run: first, world: quiet}
	n.whole(step{name: end.name, hook: prolog, run: first, world: quiet})
	tr, met := newTracer(n.dir), false
	var inner error
	n.call(end, kinds("renameat"), func(_ int, c faultinject.Call) faultinject.Answer {
		p, ok := tr.point(c)
		if ok && !met && p.role == "hook" && strings.HasPrefix(p.class, "run/state/"+nodeName+"/100/") {
			met = true
			inner = rig.Attempt(func() { n.call(end, nil, nil) })
		}
		return faultinject.Answer{}
	})
	rig.Try(inner)
	is := n.look()
	var v verdict
	ends, said := len(is.runs[end.key()].ends), strings.Count(is.files[logFile].data, "BKD-ST-LOCK:")
	if !met || ends+said < 2 || len(is.damage) > 0 {
		v.fault(lost, "two epilogs at once: %d ends on record, %d said to be missing; %q", ends, said, is.damage)
	}
	t.fail(v.wrong, end.name)
}
