package settle

import (
	"slices"
	"testing"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
)

// Whatever begins early enough in a watch of the default length is seen often enough to be called flat.
func TestScheduleFitsTheDefaults(t *testing.T) {
	for hook, times := range map[string]config.SettleTimes{
		"prolog": config.Default().Settle.Prolog, "epilog": config.Default().Settle.Epilog,
	} {
		rule := rule(time.Duration(times.Max), time.Duration(times.Flat))
		looks := constant(rule.Max, func(ms int) gpu.Snapshot { return at(ms, gib) })
		looks = append(looks, at(int(rule.Max.Milliseconds()), gib)) // the last look falls on Max
		flat := 0
		for from := range looks {
			run := looks[from:]
			if span(run) < rule.Flat {
				break
			}
			if got := judge(rule, card, run); got.State != Flat || len(run) < fewestLooks+1 {
				t.Errorf("%s: from look %d on got %+v", hook, from, got)
			}
			flat++
		}
		if flat < 4 {
			t.Errorf("%s: flat only from %d looks on", hook, flat)
		}
	}
}

func TestPause(t *testing.T) {
	var when []time.Duration
	for n, sum := 1, time.Duration(0); n <= 8; n++ {
		sum += Pause(n)
		when = append(when, sum/time.Millisecond)
	}
	if want := []time.Duration{100, 200, 400, 800, 1600, 2600, 3600, 4600}; !slices.Equal(when, want) {
		t.Errorf("looks at %v ms, want %v", when, want)
	}
}
