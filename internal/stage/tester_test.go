package stage

import (
	"testing"
	"time"

	"bookend/internal/clock"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// A test fits its own time, what the deadline leaves and, at a start, what is left of the driver's time; then as many GPUs
// as there is time for are tested.
func TestRoomForTests(t *testing.T) {
	whole, instance := finding.Card{}, finding.Card{Device: gpu.Device{Parent: "GPU-9"}}
	const sec = time.Second
	for name, tt := range map[string]struct {
		phase  slurm.Context
		now    time.Duration // since the hook began
		cards  []finding.Card
		budget time.Duration
		room   int
	}{
		"an end":                       {slurm.Epilog, 1 * sec, []finding.Card{whole, whole}, 2200 * time.Millisecond, 2},
		"an end, late":                 {slurm.Epilog, 7500 * time.Millisecond, []finding.Card{whole, whole}, 1500 * time.Millisecond, 2},
		"an end, too late for two":     {slurm.Epilog, 8 * sec, []finding.Card{whole, whole}, 1 * sec, 1},
		"an end, too late":             {slurm.Epilog, 8500 * time.Millisecond, []finding.Card{whole}, 500 * time.Millisecond, 0},
		"instances have their own":     {slurm.Epilog, 1 * sec, []finding.Card{instance, instance, instance}, 2200 * time.Millisecond, 2},
		"a whole one and instances":    {slurm.Epilog, 1 * sec, []finding.Card{whole, instance, instance}, 2200 * time.Millisecond, 2},
		"an instance between":          {slurm.Epilog, 1 * sec, []finding.Card{whole, instance, whole}, 2200 * time.Millisecond, 3},
		"just enough":                  {slurm.Epilog, 8050 * time.Millisecond, []finding.Card{whole}, 950 * time.Millisecond, 1},
		"a start":                      {slurm.Prolog, 1 * sec, []finding.Card{whole, whole}, 2200 * time.Millisecond, 2},
		"a start, the driver was slow": {slurm.Prolog, 3 * sec, []finding.Card{whole, whole}, 1 * sec, 1},
	} {
		h := &hook{frame: &frame{deadline: 110 * sec, start: 100 * sec}, phase: tt.phase}
		h.env.Clock = clock.Clock{Boot: func() time.Duration { return h.start + tt.now }}
		h.times = config.HookDeadline{Driver: config.Duration(4 * sec), Probe: config.Duration(2200 * time.Millisecond), Outputs: config.Duration(sec)}
		tester := &tester{hook: h}
		if budget, room := tester.budget(), tester.room(tt.cards); budget != tt.budget || room != tt.room {
			t.Errorf("%s: %v for %d GPUs, want %v for %d", name, budget, room, tt.budget, tt.room)
		}
	}
}
