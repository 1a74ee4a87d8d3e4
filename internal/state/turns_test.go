package state

import (
	"errors"
	"testing"
	"time"

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
		for i, other := range tt.others {
			if release, err := other(); err != nil {
				t.Errorf("%s: %d is kept out: %v", name, i, err)
			} else {
				release()
			}
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
	again, err := other.Meet(clock, 0)
	if err != nil {
		t.Fatalf("after one without an answer: %v", err)
	}
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
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// The child that asks is on record until its own hook takes it off.
func TestAsking(t *testing.T) {
	s := open(t, folder(t))
	if s.Asking() != nil || s.ClearAsking(1) != nil {
		t.Error("somebody asks where no one does")
	}
	child := Asking{Stuck{PID: 7, StartTicks: 9, Since: time.Second, Op: "backend"}, 5}
	must.Do(t, s.SetAsking(child))
	must.Do(t, s.ClearAsking(6, 8))
	if got := s.Asking(); got == nil || *got != child {
		t.Errorf("%+v", got)
	}
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
			if (met == nil) != other.any {
				t.Errorf("%s of user %d at %v: got %v, want %v", other.op, other.uid, at, met == nil, other.any)
			}
			if met != nil {
				met(false)
			}
		}
	}
}
