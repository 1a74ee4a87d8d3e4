package session

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/backend"
	"bookend/internal/clock"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/operation"
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
	d := New(operation.Env{Clock: clock.System()}, slurm.Prolog)
	d.Config, d.Store = config.Default(), store
	d.Times = d.Config.Deadlines.Prolog
	d.deadline = d.Clock.Boot() + d.Reserve() + worthAsking/2
	if !d.meet() || !d.contact.holds || len(d.list) != 0 {
		t.Errorf("holds %v, found %+v", d.contact.holds, d.list)
	}
	d.Leave()
	if met, err := store.Meet(d.Clock.Boot, time.Second); err != nil || met == nil {
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
		d := &Driver{contact: contact{waited: tt.waited}, looks: tt.looks}
		found := d.troubles(hung)
		if len(found) != 1 || found[0].Code != tt.want || (found[0].Unknown != "") != (tt.want == code.Slow) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
