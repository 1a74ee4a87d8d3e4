package main

import (
	"math/rand/v2"
	"syscall"
)

type point int

// Of a drop record's reading, in this order.
const (
	pinFile  point = iota // before it is pinned
	statFile              // after that, before it is checked
	reopen                // between the check and the opening through /proc/self/fd
	take                  // between that and reading
	dropPoints
)

// Of a child that has become the user, in this order.
const (
	open  point = iota // between the look-up of the path and the opening
	check              // after the opening, before fstat
	write              // between fstat and write
	outPoints
)

var (
	dropNames = [...]string{"before the look-up", "after the look-up", "between check and open", "between open and read"}
	outNames  = [...]string{"between look-up and open", "between open and fstat", "between fstat and write"}
)

type swap struct {
	at   point
	kind *kind
	back bool // and is undone at the next point
}

// maxReads is how often an epilog reads the drop, at least as often as it does.
const maxReads = 8

// plan is all that chance decides of a run: the same for the same seed and number.
type plan struct {
	number uint64
	whole  bool // an epilog; otherwise only its child that appends
	known  bool // the output's inode is on record
	signal syscall.Signal
	reads  [maxReads]swap
	tail   swap
	append swap
}

// wholeEvery: one run in so many is a whole epilog, which reads the drop five times and writes at most once.
const wholeEvery = 5

// lane is what runs a number can become; "child" is only those of a child that appends.
type lane string

const (
	mixed     lane = ""
	onlyWhole lane = "whole"
)

func newPlan(seed, number uint64, l lane) plan {
	r := rand.New(rand.NewPCG(seed, number))
	p := plan{number: number, whole: l == onlyWhole || l == mixed && number%wholeEvery == 0}
	p.known = r.IntN(2) == 0
	p.signal = p.drawSignal(r)
	for i := range p.reads {
		p.reads[i] = p.draw(r, dropPoints, dropFile, dropFile)
	}
	p.tail = p.draw(r, outPoints-1, outFile, outAbove) // a tail is not followed beyond fstat
	p.append = p.draw(r, outPoints, outFile, outAbove)
	return p
}

// drawSignal: most children are left alone; one that is stopped costs its epilog a second.
func (p plan) drawSignal(r *rand.Rand) syscall.Signal {
	switch n := r.IntN(400); {
	case n < 4:
		return syscall.SIGKILL
	case n < 8:
		return syscall.SIGTERM
	case n < 12:
		return syscall.SIGCONT
	case n == 12 && p.whole:
		return syscall.SIGSTOP
	}
	return 0
}

// draw picks a point, and a kind for places from first to last. What hangs is rare, for it takes a second, and where a
// child is run alone nobody would end it.
func (p plan) draw(r *rand.Rand, points point, first, last place) swap {
	for {
		s := swap{at: point(r.IntN(int(points))), kind: &kinds[r.IntN(len(kinds))], back: r.IntN(3) == 0}
		k, rare := s.kind, r.IntN(10) > 0
		switch {
		case k.where < first || k.where > last || k.known && !p.known:
		case k.hangs && (!p.whole || rare):
		default:
			return s
		}
	}
}
