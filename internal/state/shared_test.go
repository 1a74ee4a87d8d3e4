package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"bookend/internal/safefile"
)

func TestStuck(t *testing.T) {
	s := open(t, folder(t))
	if got, err := s.Stuck(); got != nil || err != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := s.ClearStuck(); err != nil {
		t.Errorf("nothing to clear: %v", err)
	}
	first := Stuck{PID: 7, StartTicks: 123456, Since: time.Minute, Op: "watch"}
	for _, stuck := range []Stuck{first, {PID: 8, Since: time.Hour}} {
		if err := s.SetStuck(stuck); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Stuck(); err != nil || !reflect.DeepEqual(got, &first) {
		t.Errorf("%+v, %v; want the one that has been stuck for longer", got, err)
	}
	if err := s.ClearStuck(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Stuck(); got != nil || err != nil {
		t.Errorf("after clearing: %+v, %v", got, err)
	}
}

func TestStuckDamaged(t *testing.T) {
	s := open(t, folder(t))
	put := func() {
		if err := os.WriteFile(filepath.Join(s.dir, stuckFile), []byte(`{"pid":`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put()
	var d Damage
	if got, err := s.Stuck(); got != nil || !errors.As(err, &d) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := s.Stuck(); got != nil || err != nil {
		t.Errorf("reported again: %+v, %v", got, err)
	}
	put()
	if err := s.SetStuck(Stuck{PID: 9}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Stuck(); err != nil || got == nil || got.PID != 9 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRepeat(t *testing.T) {
	s := open(t, folder(t))
	for i, tc := range []struct {
		code       string
		now        time.Duration
		say        bool
		suppressed int
	}{
		{"A", time.Minute, true, 0},
		{"A", 2 * time.Minute, false, 0},
		{"B", 2 * time.Minute, true, 0},
		{"A", time.Minute + sayAgain - 1, false, 0},
		{"A", time.Minute + sayAgain, true, 2},
		{"A", time.Minute + 2*sayAgain, true, 0},
		{"A", time.Second, true, 0}, // the node has booted
		{"A", 2 * time.Second, false, 0},
	} {
		if say, suppressed := s.Repeat(tc.code, tc.now); say != tc.say || suppressed != tc.suppressed {
			t.Errorf("%d: %s at %v: %v, %d; want %v, %d", i, tc.code, tc.now, say, suppressed, tc.say, tc.suppressed)
		}
	}
}

func TestRepeatIsNeverSilent(t *testing.T) {
	s := open(t, folder(t))
	s.Repeat("A", 0)
	if err := os.WriteFile(filepath.Join(s.dir, faultsFile), []byte(`{"A":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if say, _ := s.Repeat("A", 1); !say {
		t.Error("damaged")
	}
	if say, _ := s.Repeat("A", 2); say {
		t.Error("not repaired")
	}
	release, err := safefile.Lock(filepath.Join(s.dir, lockOther), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	if say, _ := s.Repeat("A", 3); !say {
		t.Error("locked")
	}
	release()
	for i := range 2 * maxFaults {
		if say, _ := s.Repeat(fmt.Sprint("code", i), 4); !say {
			t.Errorf("code %d was never said", i)
		}
	}
	faults := map[string]fault{}
	if err := s.readShared(faultsFile, &faults); err != nil || len(faults) > maxFaults {
		t.Errorf("%d faults, %v", len(faults), err)
	}
}
