package main

import (
	"fmt"

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
// turn, on clean cards. Both are timed from before their start to after their end.
func (l *lane) costs() {
	p := l.costRounds()
	t := l.timesheet()
	t.Idle = t.Idle && attempt(l.idle) == nil
	t.Pairs = append(t.Pairs, p)
	l.tell("%-34s %8.1f ms, bare %.1f ms: %.3f times, at most %.2f: %v\n", p.Name, p.Ours.Median(), p.Bare.Median(),
		p.Ratio(), p.Limit, p.Held())
	l.publish(costName)
}

func (l *lane) costRounds() record.Pair {
	p := record.Pair{Name: "test allocation on every GPU", Limit: costLimit,
		What: "bookend-gpu, op probe, against cuInit, one cuMemCreate of the same size and one cuMemRelease a GPU " +
			"in bare C"}
	l.awaitIdle()
	line := l.probeRequest(l.cards, false)
	ours := timed{Timing: timing("bookend-gpu, op probe", "its request on stdin"),
		argv: []string{l.site.Program("bookend-gpu")},
		env:  func(int) []string { return nil }, stdin: line}
	ours.once(-1) // warms caches, and says how much the bare program shall take
	bytes := l.tested(ours.said)
	bare := l.bareProbe(bytes)
	bare.once(-1)
	l.inTurn(&ours, &bare)
	p.Ours, p.Bare = ours.Timing, bare.Timing
	return p
}

// bareProbe is the bare program, taking so many bytes of each card.
func (l *lane) bareProbe(bytes uint64) timed {
	argv := []string{l.site.Program("bareprobe"), fmt.Sprint(bytes / mib)}
	if w := l.site.World(l.node); w != nil {
		argv = append(argv, w.CUDA())
	}
	return timed{Timing: timing("bareprobe", "bare C"), argv: argv, env: func(int) []string { return l.env }}
}

// inTurn runs both once a round; who comes first changes with each.
func (l *lane) inTurn(ours, bare *timed) {
	for round := range rounds {
		order := []*timed{ours, bare}
		if round%2 == 1 {
			order = []*timed{bare, ours}
		}
		for _, t := range order {
			t.Millis = append(t.Millis, millis(t.once(round)))
		}
		l.tested(ours.said)
	}
}

// tested makes sure that a test of every card went well and returns the smallest of the blocks.
func (l *lane) tested(out []byte) (least uint64) {
	probes := probesIn(out)
	for _, p := range probes {
		if p.Result != gpu.ProbeOK {
			panic(brokenf("GPU %s: %s: %s", p.Device, p.Result, p.Why))
		}
		if least == 0 || p.Largest.Bytes < least {
			least = p.Largest.Bytes
		}
	}
	if len(probes) != len(l.cards) {
		panic(brokenf("%d GPUs were tested, want %d: %s", len(probes), len(l.cards), tail(string(out))))
	}
	return least
}
