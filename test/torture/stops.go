package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/test/faultinject"
)

// decide is asked while a thread of the watched program stands still before a system call. It swaps what is planned for
// this point, and lets the call go on.
func (t *trial) decide(c faultinject.Call) faultinject.Answer {
	switch c.Number {
	case unix.SYS_OPENAT:
		t.opens(c, c.Text(1))
	case unix.SYS_UNLINKAT:
		if c.Text(1) == filepath.Join(t.jobs, jobDrop) { // no reading comes after that
			t.undoDrop()
			t.removing = true
		}
	case unix.SYS_FSTAT:
		if t.asksAbout() {
			t.stats(c, c.File(0))
		}
	case unix.SYS_NEWFSTATAT:
		if t.asksAbout() {
			t.stats(c, c.Text(1))
		}
	case unix.SYS_READ:
		if t.reading > 0 && !t.removing && !t.dropped && t.planned().at == take && within(c.File(0), t.drop) {
			t.dropAt(take)
		}
	case unix.SYS_WRITE:
		if t.child != 0 && t.stage == write && strings.HasPrefix(c.File(0), "/") && c.PID() == t.child {
			t.childAt(write)
		}
	}
	return faultinject.Answer{}
}

func (t *trial) opens(c faultinject.Call, path string) {
	switch {
	case path == t.jobs: // begins a reading
		t.undoDrop()
		t.reading, t.dropped = t.reading+1, false
	case path == jobDrop && !t.removing:
		t.dropAt(pinFile)
	case strings.HasPrefix(path, "/proc/self/fd/") && t.reading > 0 && !t.removing:
		t.dropAt(reopen)
	case within(path, t.home):
		t.opensUsers(c, path)
	}
}

func within(path, folder string) bool { return strings.HasPrefix(path, folder+"/") }

// asksAbout says whether an fstat can be one of the points: most are of other files, and finding out which costs time.
func (t *trial) asksAbout() bool {
	inDrop := t.reading > 0 && !t.removing && (!t.dropped || t.dropUndo != nil)
	return inDrop || t.child != 0 && t.stage == check
}

// stats is before an fstat of a file, or a stat of a path.
func (t *trial) stats(c faultinject.Call, path string) {
	switch {
	case t.child != 0 && t.stage == check && strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "/proc/") &&
		c.PID() == t.child:
		t.childAt(check)
	case t.reading > 0 && !t.removing && within(path, t.drop):
		t.dropAt(statFile)
	}
}

// planned is what happens in the reading under way.
func (t *trial) planned() swap { return t.reads[(t.reading-1)%maxReads] }

func (t *trial) dropAt(at point) {
	if t.reading == 0 {
		return
	}
	s := t.planned()
	if t.dropped && s.back && at > s.at {
		t.undoDrop()
	}
	if t.dropped || at != s.at {
		return
	}
	t.dropped = true
	if t.dropUndo = t.do(s.kind); t.dropUndo != nil {
		t.hung = t.hung || s.kind.hangs
		t.o.count("reads: "+dropNames[at], 1)
		t.o.read++
	}
}

// do swaps, and returns what brings it back; nil where nothing was swapped.
func (t *trial) do(k *kind) (undo func() error) {
	s := t.places[k.where]
	var err error
	if k.swap != nil {
		undo, err = k.swap(t.world, s.path())
	} else {
		other := filepath.Join(s.pool, k.name)
		undo, err = func() error { return exchange(s.path(), other) }, exchange(s.path(), other)
	}
	if err != nil {
		t.o.count("swaps that failed", 1)
		t.o.why = err
		return nil
	}
	t.o.count("kind "+k.name, 1)
	t.o.swaps++
	return undo
}

func (t *trial) undoDrop() { t.reverse(&t.dropUndo) }

func (t *trial) undoChild() { t.reverse(&t.childUndo) }

func (t *trial) reverse(undo *func() error) {
	if *undo == nil {
		return
	}
	switch err := (*undo)(); {
	case errors.Is(err, errMade):
		t.o.breach(breach{"made", true, err.Error()})
	case err != nil && t.trouble == nil:
		t.trouble = err
	}
	*undo = nil
	t.o.swaps++
}

// opensUsers is before anybody opens a path of the user's: that must be a child that has become the user.
func (t *trial) opensUsers(c faultinject.Call, path string) {
	pid := c.PID()
	if pid != t.child {
		t.undoChild()
		command := c.Command()
		t.child, t.stage = pid, open
		t.appends = slices.Contains(command, "append")
		t.attack(pid)
	}
	if path == t.out {
		t.stage = open
		t.childAt(open)
	}
}

// childAt is called at each point of a child's way to the job's output.
func (t *trial) childAt(at point) {
	t.stage = at + 1
	s, names := t.tail, "tails: "
	if t.appends {
		s, names = t.append, "writes: "
	}
	if s.back && at > s.at {
		t.undoChild()
	}
	if at != s.at {
		return
	}
	t.undoChild() // it may open the path again
	if t.childUndo = t.do(s.kind); t.childUndo == nil {
		return
	}
	t.o.count(names+outNames[at], 1)
	if t.appends {
		t.o.wrote++
	}
}

// attack lets a process of the user's try to trace the child that stands still, and signal it.
func (t *trial) attack(pid int) {
	signal := t.signal
	if t.whole && !t.appends && t.number%2 == 0 {
		signal = 0 // the other child is meant
	}
	tried, got, err := t.foe.attack(pid, signal)
	if err != nil && t.trouble == nil {
		t.trouble = err
	}
	t.o.count("attempts to trace or to look into a child", tried)
	if got != "" {
		t.o.breach(breach{"traced", true, got})
	}
	if signal != 0 {
		t.signalled = true
		t.o.count("signals sent to a child by its user", 1)
	}
}
