package metrics

import (
	"fmt"
	"strconv"
	"strings"
)

// The bounds of histograms, in seconds. A hook without leftovers takes 0.05 to 0.5 s; the deadlines as shipped are 5
// and 15 s. Memory that is given back at all is so within 0.4 s, workers that notice late within 3 s (measured).
var (
	hookBounds   = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15}
	settleBounds = []float64{0.1, 0.2, 0.4, 0.8, 1.6, 3, 6, 12}
)

// observe adds a value to a histogram. Its sample holds the sum as its value, and in Counts how many values fell into
// each bucket alone, the last of which has no bound.
func (b *book) observe(name string, value float64, labels ...string) {
	f, _ := familyOf(name)
	value = max(0, value)
	*b.at(name, labels...) += value
	s := &b.Samples[b.index(name, labels)]
	if len(s.Counts) == 0 {
		s.Counts = make([]uint64, len(f.bounds)+1)
	}
	bucket := 0
	for bucket < len(f.bounds) && value > f.bounds[bucket] {
		bucket++
	}
	s.Counts[bucket]++
}

// histogram writes a sample's lines, in the order that Prometheus wants: buckets that add up, sum, count.
func (f family) histogram(s sample) string {
	var b strings.Builder
	counts := s.Counts
	if len(counts) == 0 {
		counts = make([]uint64, len(f.bounds)+1)
	}
	pairs, total := strings.Join(f.pairs(s), ","), uint64(0)
	for i, n := range counts {
		total += n
		bound := "+Inf"
		if i < len(f.bounds) {
			bound = strconv.FormatFloat(f.bounds[i], 'f', -1, 64)
		}
		fmt.Fprintf(&b, "%s_bucket{%s,le=%s} %d\n", f.name, pairs, quoted(bound), total)
	}
	fmt.Fprintf(&b, "%s_sum{%s} %s\n%s_count{%s} %d\n", f.name, pairs, number(s.Value), f.name, pairs, total)
	return b.String()
}
