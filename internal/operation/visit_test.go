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
	leave, err := v.turn(Append.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.turn(Append.Name); !errors.Is(err, state.ErrLocked) {
		t.Errorf("beside one who has not come back: %v", err)
	}
	store.SetVisited(Append.Name, 7, now)
	if _, err := v.turn(Append.Name); err != nil {
		t.Errorf("one has come back: %v", err)
	}
	if _, err := v.turn(Tail.Name); !errors.Is(err, state.ErrLocked) {
		t.Errorf("it came back from writing, not from reading: %v", err)
	}
	leave()
}
