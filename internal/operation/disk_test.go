package operation

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/state"
)

// opened is the state of a node in a directory that only root can write in, whatever the umask.
func opened(t *testing.T, node string) (run string, store *state.Store) {
	t.Helper()
	run = filepath.Join(t.TempDir(), "run")
	if err := os.Chmod(filepath.Dir(run), 0o755); err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(run, node)
	if err != nil {
		t.Fatal(err)
	}
	return run, store
}

// Where the lock of a user's visits is out of use, each hook is on its own.
func TestTurnWithoutALock(t *testing.T) {
	run, store := opened(t, "n1")
	if err := os.RemoveAll(run); err != nil {
		t.Fatal(err)
	}
	v := &Visit{Store: store, UID: 65534, Now: func() time.Duration { return time.Hour }, Left: func() time.Duration { return 0 }}
	met, err := v.enter(Tail.Name)
	if met == nil || err != nil {
		t.Fatalf("got %v, %v, want a visit", met != nil, err)
	}
	met(true)
}
