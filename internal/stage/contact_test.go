package stage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/backend"
	"bookend/internal/clock"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// A hook that came late to the driver, and that nobody keeps from it, asks it all the same.
func TestMeetLate(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	if err := os.Chmod(filepath.Dir(run), 0o755); err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(run, "n1")
	if err != nil {
		t.Fatal(err)
	}
	h := &hook{frame: &frame{env: Env{Clock: clock.System()}}, phase: slurm.Prolog, cfg: config.Default(), store: store}
	h.times = h.cfg.Deadlines.Prolog
	h.deadline = h.env.Clock.Boot() + h.reserve() + worthAsking/2
	if !h.meet() || !h.contact.holds || len(h.found) != 0 {
		t.Errorf("holds %v, found %+v", h.contact.holds, h.found)
	}
	h.leaveContact()
	if met, err := store.Meet(h.env.Clock.Boot, time.Second); err != nil || met == nil {
		t.Errorf("the next hook: %v", err)
	}
}

// What another hook's wait has left of the driver's time proves no hang, where nothing was seen in it.
func TestHangAfterWaiting(t *testing.T) {
	hung := backend.Answer{Troubles: []backend.Trouble{{Code: code.Hang, Detail: "killed after 1s"}}}
	for name, tt := range map[string]struct {
		waited time.Duration
		looks  int
		want   code.Code
	}{
		"asked at once":       {0, 0, code.Hang},
		"waited":              {patience, 0, code.Slow},
		"waited, and it came": {patience, 1, code.Hang},
	} {
		h := &hook{contact: contact{waited: tt.waited}, looks: tt.looks}
		h.troubles(hung)
		if len(h.found) != 1 || h.found[0].Code != tt.want || (h.found[0].Unknown != "") != (tt.want == code.Slow) {
			t.Errorf("%s: %+v", name, h.found)
		}
	}
}

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
	v := &visit{store: store, uid: 7, now: func() time.Duration { return now }, left: func() time.Duration { return 0 }}
	leave, err := v.turn(opAppend)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.turn(opAppend); !errors.Is(err, state.ErrLocked) {
		t.Errorf("beside one who has not come back: %v", err)
	}
	store.SetVisited(opAppend, 7, now)
	if _, err := v.turn(opAppend); err != nil {
		t.Errorf("one has come back: %v", err)
	}
	if _, err := v.turn(opTail); !errors.Is(err, state.ErrLocked) {
		t.Errorf("it came back from writing, not from reading: %v", err)
	}
	leave()
}
