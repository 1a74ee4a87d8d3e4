package gpu_test

import (
	"slices"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/test/must"
)

// A test is slow if it took more than twice the median of five earlier ones of a comparable size. What was slow is no measure.
func TestSpeeds(t *testing.T) {
	test := func(gib uint64, ms int) *gpu.Pattern {
		return &gpu.Pattern{Bytes: gib << 30, Read: time.Duration(ms) * time.Millisecond}
	}
	of := func(all ...*gpu.Pattern) (s gpu.Speeds) {
		for _, p := range all {
			s = s.Plus(p)
		}
		return s
	}
	four := []*gpu.Pattern{test(100, 50), test(100, 52), test(120, 62), test(80, 40)}
	for name, tt := range map[string]struct {
		before []*gpu.Pattern
		now    *gpu.Pattern
		want   string
	}{
		"as before":         {append(four, test(100, 51)), test(100, 99), ""},
		"slow":              {append(four, test(100, 51)), test(100, 103), "100.0 GiB read in 103 ms, which took 51 ms in the median of 5 earlier tests"},
		"of half the bytes": {append(four, test(100, 51)), test(50, 520), ""}, // 120 is not comparable
		"few earlier ones":  {four, test(100, 500), ""},
		"of another size":   {append(four, test(10, 5)), test(100, 500), ""},
		"not finished ones": {append(four, &gpu.Pattern{Why: "no time left"}, nil), test(100, 500), ""},
		"slow ones":         {append(four, &gpu.Pattern{Bytes: 100 << 30, Read: time.Second, Slow: "x"}), test(100, 500), ""},
		"nothing":           {append(four, test(100, 51)), &gpu.Pattern{}, ""},
		"most of many":      {append(slices.Repeat([]*gpu.Pattern{test(100, 1000)}, 20), slices.Repeat([]*gpu.Pattern{test(100, 50)}, 9)...), test(100, 101), "100.0 GiB read in 101 ms, which took 50 ms in the median of 9 earlier tests"},
	} {
		must.Be(t, name, of(tt.before...).Slower(*tt.now), tt.want)
	}
}
