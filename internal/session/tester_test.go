package session

import (
	"testing"
	"time"

	"bookend/internal/clock"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/slurm"
)

// Tests take no longer than their own limit, what the deadline leaves and, in a prolog, what is left of the driver's
// time. Only as many GPUs are tested as fit into that.
func TestRoomForTests(t *testing.T) {
	type cards = []finding.Card
	whole, instance := finding.Card{}, finding.Card{Device: gpu.Device{Parent: "GPU-9"}}
	const sec, ms = time.Second, time.Millisecond
	for name, tt := range map[string]struct {
		phase  slurm.Context
		now    time.Duration // since the hook began
		cards  []finding.Card
		budget time.Duration
		room   int
	}{
		"an end":                       {slurm.Epilog, 1 * sec, cards{whole, whole}, 2200 * ms, 2},
		"an end, late":                 {slurm.Epilog, 7500 * ms, cards{whole, whole}, 1500 * ms, 2},
		"an end, too late for two":     {slurm.Epilog, 8 * sec, cards{whole, whole}, 1 * sec, 1},
		"an end, too late":             {slurm.Epilog, 8500 * ms, cards{whole}, 500 * ms, 0},
		"instances have their own":     {slurm.Epilog, 1 * sec, cards{instance, instance, instance}, 2200 * ms, 2},
		"a whole one and instances":    {slurm.Epilog, 1 * sec, cards{whole, instance, instance}, 2200 * ms, 2},
		"an instance between":          {slurm.Epilog, 1 * sec, cards{whole, instance, whole}, 2200 * ms, 3},
		"just enough":                  {slurm.Epilog, 8050 * ms, cards{whole}, 950 * ms, 1},
		"a start":                      {slurm.Prolog, 1 * sec, cards{whole, whole}, 2200 * ms, 2},
		"a start, the driver was slow": {slurm.Prolog, 3 * sec, cards{whole, whole}, 1 * sec, 1},
	} {
		at := clock.Clock{Boot: func() time.Duration { return 100*sec + tt.now }}
		h := &Driver{Frame: &Frame{deadline: 110 * sec, Start: 100 * sec, clock: at}, Case: judge.Case{Phase: tt.phase}}
		h.Clock = at
		h.Times.Driver, h.Times.Probe, h.Times.Outputs = config.Duration(4*sec), config.Duration(2200*ms), config.Duration(sec)
		tester := &tester{Driver: h}
		if budget, room := tester.budget(), tester.room(tt.cards); budget != tt.budget || room != tt.room {
			t.Errorf("%s: %v for %d GPUs, want %v for %d", name, budget, room, tt.budget, tt.room)
		}
	}
}
