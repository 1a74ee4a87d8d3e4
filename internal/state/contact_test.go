package state

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// One hook asks, the others wait for what comes of it.
func TestMeet(t *testing.T) {
	now := time.Hour
	clock := func() time.Duration { return now }
	run := folder(t)
	one, other := open(t, run), open(t, run)
	met, err := one.Meet(clock, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Meet(clock, 0); !errors.Is(err, ErrLocked) {
		t.Errorf("beside another: %v, want %v", err, ErrLocked)
	}
	met(false)
	met(true) // too late
	again, err := other.Meet(clock, 0)
	if err != nil {
		t.Fatalf("after one without an answer: %v", err)
	}
	if _, err := one.Meet(clock, 0); !errors.Is(err, ErrLocked) {
		t.Errorf("nobody has had an answer, and yet: %v", err)
	}
	again(true)

	for range 2 {
		if met, err := other.Meet(clock, 0); err != nil || met != nil {
			t.Errorf("the driver has just answered: %v", err)
		}
	}
	for _, later := range []time.Duration{recent, -time.Minute} {
		now = time.Hour + later
		met, err := one.Meet(clock, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Meet(clock, 0); !errors.Is(err, ErrLocked) {
			t.Errorf("an answer %v ago vouches for the next: %v", later, err)
		}
		met(false)
	}
}

// Whoever waited asks nobody where the first one's answer has come meanwhile, and keeps nobody.
func TestMeetAfterAnAnswer(t *testing.T) {
	clock := func() time.Duration { return time.Hour }
	run := folder(t)
	one, other := open(t, run), open(t, run)
	met, err := one.Meet(clock, 0)
	if err != nil {
		t.Fatal(err)
	}
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
		t.Error("somebody asks where nobody does")
	}
	child := Asking{Stuck{PID: 7, StartTicks: 9, Since: time.Second, Op: "backend"}, 5}
	must(t, s.SetAsking(child))
	must(t, s.ClearAsking(6, 8))
	if got := s.Asking(); got == nil || *got != child {
		t.Errorf("%+v", got)
	}
	must(t, s.ClearAsking(6, 7))
	if got := s.Asking(); got != nil {
		t.Errorf("%+v", got)
	}
	must(t, os.WriteFile(filepath.Join(s.dir, askingFile), []byte(`{"pid":-1}`), 0o600))
	if got := s.Asking(); got != nil {
		t.Errorf("%+v", got)
	}
}

// What is no record of an answer is none, whatever it says.
func TestMeetDamaged(t *testing.T) {
	clock := func() time.Duration { return time.Hour }
	for _, text := range []string{"", "null", "[]", `{"at_ns":"x"}`, `{"at_ns":-1}`, `{"at_ns":9e18}`} {
		s := open(t, folder(t))
		must(t, os.WriteFile(filepath.Join(s.dir, answeredFile), []byte(text), 0o600))
		met, err := s.Meet(clock, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Meet(clock, 0); !errors.Is(err, ErrLocked) {
			t.Errorf("%q vouches for the driver: %v", text, err)
		}
		met(false)
	}
}

// Whoever has just come back from a user's files vouches for these, and for nobody else's.
func TestVisitedLately(t *testing.T) {
	s := open(t, folder(t))
	if s.VisitedLately("append", 7, time.Hour) {
		t.Error("nobody has been there")
	}
	s.SetVisited("append", 7, time.Hour)
	for now, want := range map[time.Duration]bool{time.Hour: true, time.Hour + visitRecent - 1: true, time.Hour + visitRecent: false, time.Minute: false} {
		if got := s.VisitedLately("append", 7, now); got != want || s.VisitedLately("append", 8, now) || s.VisitedLately("tail", 7, now) {
			t.Errorf("at %v: %v, want %v", now, got, want)
		}
	}
}
