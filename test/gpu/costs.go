package main

import (
	"fmt"
	"slices"

	"bookend/internal/gpu"
	"bookend/test/gpu/record"
)

const (
	costName = "probe-cost"
	// costLimit is what the backend's test of the cards may cost at most, by the bare program's time: the project's
	// own goal.
	costLimit = 1.15
)

// costs runs the backend's test allocation on every card against a bare program that does the same and nothing else, in
// turn, on clean cards; who comes first changes with each round. Both are timed from before their start to after their
// end.
func (l *lane) costs(t *record.Timings) {
	l.awaitIdle()
	ours := timed{Timing: timing("bookend-gpu, op probe", "its request on stdin"),
		argv: []string{l.site.Program("bookend-gpu")}, stdin: l.probeRequest(l.cards, false)}
	ours.once(-1) // warms caches, and says how much the bare program shall take
	bare := timed{Timing: timing("bareprobe", "bare C"), env: func(int) []string { return l.env },
		argv: []string{l.site.Program("bareprobe"), fmt.Sprint(l.tested(ours.said) / mib)}}
	if w := l.site.World(l.node); w != nil {
		bare.argv = append(bare.argv, w.CUDA())
	}
	bare.once(-1)
	order := []*timed{&ours, &bare}
	for round := range rounds {
		for _, each := range order {
			each.Millis = append(each.Millis, millis(each.once(round)))
		}
		l.tested(ours.said)
		slices.Reverse(order)
	}
	p := record.Pair{Name: "test allocation on every GPU", Limit: costLimit, Ours: ours.Timing, Bare: bare.Timing,
		What: "bookend-gpu, op probe, against cuInit, one cuMemCreate of the same size and one cuMemRelease a GPU " +
			"in bare C"}
	t.Pairs = append(t.Pairs, p)
	l.tell("%-34s %8.1f ms, bare %.1f ms: %.3f times, at most %.2f: %v\n", p.Name, p.Ours.Median(), p.Bare.Median(),
		p.Ratio(), p.Limit, p.Held())
}

// tested makes sure that a test of every card went well and returns the smallest of the blocks.
func (l *lane) tested(out []byte) (least uint64) {
	probes := probesIn(out)
	for _, p := range probes {
		if p.Result != gpu.ProbeOK {
			panic(fmt.Errorf("GPU %s: %s: %s", p.Device, p.Result, p.Why))
		}
		if least == 0 || p.Largest.Bytes < least {
			least = p.Largest.Bytes
		}
	}
	if len(probes) != len(l.cards) {
		panic(fmt.Errorf("%d GPUs were tested, want %d: %s", len(probes), len(l.cards), tail(string(out))))
	}
	return least
}
