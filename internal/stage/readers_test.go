package stage

import (
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/child"
	"bookend/internal/clock"
	"bookend/internal/config"
	"bookend/internal/state"
)

// Which readers of /proc keep a new one from being started.
func TestHung(t *testing.T) {
	at := []attrib.Instance{{PID: 70, Start: 1}}
	one := state.Reader{Stuck: state.Stuck{Op: opHolders}, At: at}
	many := make([]state.Reader, state.MaxReaders)
	for i := range many {
		many[i] = one
	}
	for name, tt := range map[string]struct {
		readers []state.Reader
		at      int
		blocked bool
	}{
		"none":              {nil, 0, false},
		"one":               {many[:1], 1, false},
		"did not say":       {[]state.Reader{{Stuck: state.Stuck{Op: opHolders}}}, 0, true},
		"another operation": {[]state.Reader{{Stuck: state.Stuck{Op: opProcesses}}}, 0, false},
		"nearly too many":   {many[1:], state.MaxReaders - 1, false},
		"too many":          {many, state.MaxReaders, true},
	} {
		if skip, blocked := hung(opHolders, tt.readers); len(skip) != tt.at || blocked != tt.blocked {
			t.Errorf("%s: %d places, blocked %v", name, len(skip), blocked)
		}
	}
}

// A stuck reader that cannot be put on record is the last that this hook starts.
func TestUnkeptReader(t *testing.T) {
	still := clock.Clock{Wall: func() time.Time { return time.Unix(1, 0) }, Boot: func() time.Duration { return 1 }}
	h := &hook{frame: &frame{env: Env{Clock: still}}, cfg: config.Default()}
	h.cfg.Paths.Run = t.TempDir()
	if _, blocked := h.hung(opProcesses); blocked {
		t.Fatal("blocked by nothing")
	}
	h.abandonedReader(opHolders, &childError{op: opHolders, Result: child.Result{Outcome: child.Hung}}, nil)
	if _, blocked := h.hung(opProcesses); blocked {
		t.Error("blocked by a reader that was ended")
	}
	h.abandonedReader(opHolders, &childError{op: opHolders, Result: child.Result{Outcome: child.Abandoned}}, nil)
	if _, blocked := h.hung(opProcesses); !blocked {
		t.Error("another reader may be started")
	}
}
