package operation

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/state"
)

// Many ends of one user wait for one another only until a child has come back from his files.
func TestTurn(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	if err := os.Chmod(filepath.Dir(run), 0o755); err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(run, "n1")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Hour
	v := &Visit{Store: store, UID: 7, Now: func() time.Duration { return now }, Left: func() time.Duration { return 0 }}
	met, err := v.enter(Append.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.enter(Append.Name); !errors.Is(err, errInVisit) {
		t.Errorf("beside one who has not come back: got %v, want %v", err, errInVisit)
	}
	met(true)
	if _, err := v.enter(Append.Name); err != nil {
		t.Errorf("one has come back: got %v", err)
	}
	if met, err = v.enter(Tail.Name); err != nil {
		t.Fatal(err)
	}
	defer met(false)
	if _, err := v.enter(Append.Name); err != nil {
		t.Errorf("one has come back from writing, and another reads: got %v", err)
	}
	if _, err := v.enter(Tail.Name); !errors.Is(err, errInVisit) {
		t.Errorf("it came back from writing, not from reading: got %v, want %v", err, errInVisit)
	}
}
