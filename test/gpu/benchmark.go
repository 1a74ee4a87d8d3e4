package main

import (
	"slices"
	"time"

	"bookend/test/gpu/runrecord"
)

// rounds is how often the contenders of a benchmark run, unless it says otherwise. What a rehearsal measures is not
// published.
func (l *lane) rounds() int {
	if l.fake > 0 {
		return 5
	}
	return 21
}

// contender is what a benchmark times: a program or something larger.
type contender struct {
	timing runrecord.Timing
	once   func() time.Duration
}

// benchmark is a row of the table: contenders that take turns on clean GPUs, so that all see the same machine. With a
// limit the first is ours and the second its rival, and the median of the rounds' ratios may not exceed the limit.
type benchmark struct {
	name, what string
	limit      float64
	rounds     int
	contenders []contender
}

// benchmarkGroup is the rows of a name that --only knows, and the groups of scenarios that they are run with. What the
// rows need is there until done.
type benchmarkGroup struct {
	name string
	with []string
	rows func(*lane) (rows []benchmark, done func())
}

var benchmarks = []benchmarkGroup{
	{"timings", []string{groupBase, groupProbe, groupCheck}, (*lane).wholePrograms},
	{"hook-cost", []string{groupProbe}, (*lane).hookCost},
	{"row-cost", []string{groupProbe}, (*lane).rowCost},
	{"record-cost", []string{groupRecorded}, (*lane).recordCost},
}

// measure times the contenders round by round, the first of a round changing. The first round warms caches and is not
// counted.
func (b *benchmark) measure() {
	for round := range b.rounds + 1 {
		for i := range b.contenders {
			c := &b.contenders[i]
			if round%2 == 1 {
				c = &b.contenders[len(b.contenders)-1-i]
			}
			took := float64(c.once().Microseconds()) / 1000
			if round > 0 {
				c.timing.Millis = append(c.timing.Millis, took)
			}
		}
	}
}

// report adds what was measured to the record, and says it.
func (l *lane) report(b benchmark) {
	if b.limit > 0 {
		p := runrecord.Pair{Name: b.name, What: b.what, Limit: b.limit}
		p.Ours, p.Bare = b.contenders[0].timing, b.contenders[1].timing
		l.perf.Pairs = append(l.perf.Pairs, p)
		l.tell("%-34s %8.1f ms, bare %.1f ms: %.3f times, at most %.2f: %v\n", p.Name, p.Ours.Median(), p.Bare.Median(),
			p.Ratio(), p.Limit, p.Held())
		return
	}
	for _, c := range b.contenders {
		l.perf.Programs = append(l.perf.Programs, c.timing)
		l.tell("%-34s %8.1f ms\n", c.timing.Name, c.timing.Median())
	}
}

// benchmark measures a group's rows, unless nobody asked for them or the time is over, and writes all timings so far to
// disk.
func (l *lane) benchmark(g benchmarkGroup) {
	switch {
	case !l.timed(g):
		return
	case !l.inTime():
		l.tell("%s: left out, the time is over\n", g.name)
		return
	case l.perf == nil:
		l.perf = &runrecord.Timings{GPUs: len(l.cards), Rounds: l.rounds(), Idle: true}
	}
	err := attempt(func() {
		l.awaitIdle()
		rows, done := g.rows(l)
		defer done()
		for _, b := range rows {
			b.measure()
			l.report(b)
		}
	})
	if err != nil {
		l.tell("%s: broken: %v\n", g.name, err)
		return
	}
	l.perf.Idle = l.perf.Idle && attempt(l.idle) == nil
	l.came = append(l.came, g.name)
	f := l.file()
	f.Timings = l.perf
	if err := f.Write(l.path("performance")); err != nil {
		l.tell("gpu-lane: write record: %v\n", err)
	}
}

// timed reports whether a group was asked for, by name or with a group of scenarios.
func (l *lane) timed(g benchmarkGroup) bool {
	return slices.ContainsFunc(g.with, func(with string) bool { return l.named(chain{group: with}, g.name) })
}

// measured reports whether the benchmarks that had to come about did, and held their limits. What was not asked for by
// name may be left out for want of time.
func (l *lane) measured() bool {
	for _, g := range benchmarks {
		must := slices.Contains(l.only, g.name) || l.fake > 0
		if must && l.timed(g) && !slices.Contains(l.came, g.name) {
			return false
		}
	}
	return l.perf == nil || l.fake > 0 || !slices.ContainsFunc(l.perf.Pairs,
		func(p runrecord.Pair) bool { return !p.Held() })
}
