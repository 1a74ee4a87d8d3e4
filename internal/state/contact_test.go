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

	first, err := one.Meet(clock, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Meet(clock, 0); err != nil {
		t.Errorf("the driver has just answered: %v", err)
	}
	first(false) // it never had the lock
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

// Whoever waited asks nobody where the first one's answer has come meanwhile.
func TestMeetAfterAnAnswer(t *testing.T) {
	clock := func() time.Duration { return time.Hour }
	run := folder(t)
	one, other := open(t, run), open(t, run)
	met, err := one.Meet(clock, 0)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	go func() {
		_, err := other.Meet(clock, time.Minute)
		waited <- err
	}()
	met(true)
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if _, err := one.Meet(clock, 0); err != nil {
		t.Error(err)
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
