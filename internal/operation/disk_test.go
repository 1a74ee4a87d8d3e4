package operation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/slurm"
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

// Drop directories that were put aside are removed while there is time, and a little of them when there is none.
func TestClear(t *testing.T) {
	job := slurm.Job{Node: "n1", ID: 7, UID: 65534, GID: 65534}
	for name, tt := range map[string]struct {
		inTime bool
		left   int
	}{"in time": {true, 0}, "late": {false, 1}} {
		run, store := opened(t, job.Node)
		err := store.MakeDrop(job)
		drop := state.DropDir(run, job.Node, slurm.Owner{ID: job.ID})
		for i := 0; i < 2*fewSteps && err == nil; i++ {
			err = os.WriteFile(filepath.Join(drop, fmt.Sprint(i)), nil, 0o600)
		}
		if err == nil {
			err = state.RetireDrop(run, job.Node, slurm.Owner{ID: job.ID})
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		if !tt.inTime {
			cancel()
		}
		d := atDisk{DiskRequest: DiskRequest{Run: run, Node: job.Node, Sweep: true}}
		d.clear(ctx)
		cancel()
		if left, err := os.ReadDir(filepath.Dir(drop)); err != nil || len(left) != tt.left {
			t.Errorf("%s: %v left, %v", name, left, err)
		}
	}
}

// Where the lock of a user's visits is out of use, each hook is on its own.
func TestTurnWithoutALock(t *testing.T) {
	run, store := opened(t, "n1")
	if err := os.RemoveAll(run); err != nil {
		t.Fatal(err)
	}
	v := &Visit{Store: store, UID: 65534, Now: func() time.Duration { return time.Hour }, Left: func() time.Duration { return 0 }}
	leave, err := v.turn(Tail.Name)
	if leave == nil || err != nil {
		t.Fatalf("leave %v, %v", leave != nil, err)
	}
	leave()
}
