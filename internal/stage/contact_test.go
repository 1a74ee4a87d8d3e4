package stage

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/clock"
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
