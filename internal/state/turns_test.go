package state

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// Of each turn there is one holder at a time, and the turns of other jobs, phases and users are others.
func TestTurns(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	claim := func(id slurm.JobID, phase slurm.Context) func() (func(), error) {
		return func() (func(), error) { return open(t, run).Claim(job(id), phase, 0) }
	}
	visit := func(uid uint32) func() (func(), error) {
		return func() (func(), error) {
			met, err := open(t, run).Visit("append", uid, func() time.Duration { return time.Hour }, 0)
			return func() { met(false) }, err
		}
	}
	check := func() (func(), error) { return open(t, run).BeOnlyCheck() }
	for name, tt := range map[string]struct {
		turn   func() (func(), error)
		others []func() (func(), error)
	}{
		"an end": {claim(100, slurm.Epilog), []func() (func(), error){
			claim(101, slurm.Epilog), claim(100+jobLocks, slurm.Epilog), claim(100, slurm.Prolog),
			claim(1<<32-1, slurm.Epilog),
		}},
		"a user":         {visit(5), []func() (func(), error){visit(6)}},
		"a health check": {check, nil},
	} {
		release := must.Have(tt.turn())(t)
		must.Fail(t, name+" beside another", must.Err(tt.turn()), ErrLocked)
		for _, other := range tt.others {
			must.Have(other())(t)()
		}
		release()
		must.Have(tt.turn())(t)()
	}
	must.Fail(t, "another node's", must.Err(s.Claim(slurm.Job{ID: 100, Node: "n2"}, slurm.Epilog, 0)), ErrName)
}

// One hook asks, the others wait for what comes of it.
func TestMeet(t *testing.T) {
	now := time.Hour
	clock := func() time.Duration { return now }
	run := folder(t)
	one, other := open(t, run), open(t, run)
	met := must.Have(one.Meet(clock, 0))(t)
	must.Fail(t, "beside another", must.Err(other.Meet(clock, 0)), ErrLocked)
	met(false)
	met(true) // too late
	again := must.Have(other.Meet(clock, 0))(t)
	must.Fail(t, "no one has had an answer, and yet", must.Err(one.Meet(clock, 0)), ErrLocked)
	again(true)

	for range 2 {
		must.Be(t, "the driver has just answered", must.Have(other.Meet(clock, 0))(t), nil)
	}
	for _, later := range []time.Duration{recent, -time.Minute} {
		now = time.Hour + later
		met := must.Have(one.Meet(clock, 0))(t)
		must.Fail(t, "an answer", must.Err(other.Meet(clock, 0)), ErrLocked)
		met(false)
	}
}

// Whoever waited asks nobody where the first one's answer has come meanwhile, and keeps nobody.
func TestMeetAfterAnAnswer(t *testing.T) {
	clock := func() time.Duration { return time.Hour }
	run := folder(t)
	one, other := open(t, run), open(t, run)
	met := must.Have(one.Meet(clock, 0))(t)
	looked := false
	waiting := make(chan bool, 1)
	waited := make(chan error)
	go func() {
		met, err := other.Meet(func() time.Duration {
			if !looked { // before it waits
				looked = true
				waiting <- true
			}
			return time.Hour
		}, time.Minute)
		if met != nil {
			err = errors.New("it was made the one that asks")
		}
		waited <- err
	}()
	<-waiting
	met(true)
	must.Do(t, <-waited)
}

// The child that asks is on record until its own hook takes it off.
func TestAsking(t *testing.T) {
	s := open(t, folder(t))
	must.Not(t, s.Asking() != nil || s.ClearAsking(1) != nil, "somebody asks where no one does")
	child := Asking{Stuck{PID: 7, StartTicks: 9, Since: time.Second, Op: "backend"}, 5}
	must.Do(t, s.SetAsking(child))
	must.Do(t, s.ClearAsking(6, 8))
	got := s.Asking()
	must.Not(t, got == nil || *got != child, "%+v", got)
	must.Do(t, s.ClearAsking(6, 7))
	must.Be(t, "cleared", s.Asking(), nil)
}

// back notes that a child has come back from a user's files after an hour.
func back(s *Store, op string, uid uint32) error {
	met, err := s.Visit(op, uid, func() time.Duration { return time.Hour }, 0)
	if met != nil {
		met(true)
	}
	return err
}

// Whoever has just come back from a user's files vouches for these, and for nobody else's.
func TestVisit(t *testing.T) {
	s := open(t, folder(t))
	must.Do(t, back(s, "append", 7))
	for at, want := range map[time.Duration]bool{time.Hour: true, time.Hour + visitRecent - 1: true,
		time.Hour + visitRecent: false, time.Minute: false} {
		for _, other := range []struct {
			op  string
			uid uint32
			any bool
		}{{"append", 7, want}, {"append", 8, false}, {"tail", 7, false}} {
			met := must.Have(s.Visit(other.op, other.uid, func() time.Duration { return at }, 0))(t)
			must.Not(t, (met == nil) != other.any,
				"%s of user %d at %v: got %v, want %v", other.op, other.uid, at, met == nil, other.any)
			if met != nil {
				met(false)
			}
		}
	}
}

const (
	card0 = gpu.ID("GPU-00000000-1111-2222-3333-444444444444")
	card1 = gpu.ID("GPU-00000000-1111-2222-3333-555555555555")
)

// A probe on one card keeps that one from being judged, and no other; whoever judges keeps probes away, not others
// who judge.
func TestQuiet(t *testing.T) {
	s := open(t, folder(t))
	ended := must.Have(safefile.Lock(s.ProbeLock(card0), 0, true))(t)
	free := func() bool { // a probe could begin on the other card
		unlock, err := safefile.Lock(s.ProbeLock(card1), 0, true)
		if err == nil {
			unlock()
		}
		return err == nil
	}
	busy, release := s.Quiet([]gpu.ID{card0, card1, card0}, 20*time.Millisecond)
	must.Be(t, "busy", busy, map[gpu.ID]string{card0: "a probe of Bookend was still at work on it"})
	must.Be(t, "while it is judged", free(), false)
	again, releaseAgain := s.Quiet([]gpu.ID{card1}, 0)
	must.Be(t, "busy by another reader", len(again), 0)
	releaseAgain()
	must.Be(t, "after another reader's release", free(), false)
	release()
	_, next := s.Quiet([]gpu.ID{card1}, 0)
	release() // again: must not close what has its descriptor's number by now
	must.Be(t, "after a second release", free(), false)
	next()
	must.Be(t, "released", free(), true)
	ended()
	busy, release = s.Quiet([]gpu.ID{card0}, time.Minute)
	must.Be(t, "busy once the probe has ended", len(busy), 0)
	release()
	must.Do(t, errors.Join(os.Remove(s.ProbeLock(card0)), os.Symlink("elsewhere", s.ProbeLock(card0))))
	busy, _ = s.Quiet([]gpu.ID{card0}, 0) // a lock that cannot be taken for another reason is no proof of quiet
	must.Not(t, !strings.Contains(busy[card0], "could not be told"), "busy: %v", busy)
}
