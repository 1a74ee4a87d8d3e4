package main

import (
	"fmt"
	"strings"
	"time"

	"bookend/test/gpu/record"
)

const (
	hookCostName = "hook-cost"
	// The project's own goals: a hook's time by that of a bare program that asks the driver the same.
	startLimit  = 1.25 // of every GPU
	oneLimit    = 1.35 // of one, next to others
	endLimit    = 1.5  // without a test allocation
	testedLimit = 1.08 // with one, by the bare test's
	nothing     = 1.5  // of a job without GPUs, by a program that does nothing
	pairedJob   = 300000
)

// smiLimit is the goal for a start next to one query of nvidia-smi, which asks one GPU after the other.
func smiLimit(gpus int) float64 {
	if gpus == 1 {
		return 1.2
	}
	return 0.8
}

// visit is one job of the comparison: its hooks, each timed by itself.
type visit struct {
	*lane
	config string
	gpus   int
	job    int // of the last; each visit is a job of its own
}

func (v *visit) once(program string) time.Duration {
	h := v.timedHook(program, "", "", v.job, v.gpus, v.config)
	return h.once(-1)
}

// start times a job's start, end its end; the other is run as well.
func (v *visit) start() time.Duration {
	v.job++
	took := v.once("bookend-prolog")
	if v.gpus > 0 {
		v.once("bookend-epilog")
	}
	return took
}

func (v *visit) end() time.Duration {
	v.job++
	v.once("bookend-prolog")
	return v.once("bookend-epilog")
}

// hookCost measures each hook next to the least that its questions to the driver cost.
func (l *lane) hookCost(t *record.Timings) {
	l.awaitIdle()
	untested, tested := l.with("untested", noProbe), l.with("tested", eachEnd)
	look := l.bare("barelook", "NVML's own figures of every GPU in bare C, with a thread for each")
	test := l.bare("bareprobe", "cuInit, one cuMemCreate of the same size and one cuMemRelease a GPU in bare C")
	idle := l.bare("idle", "a static Go program that does nothing")
	if l.fake == 0 {
		test.argv = append(test.argv, fmt.Sprint(l.free()))
	}
	next := pairedJob
	visits := func(gpus int, config string) *visit {
		next += 1000
		return &visit{lane: l, config: config, gpus: gpus, job: next}
	}
	all, turns := len(l.cards), rounds
	if l.fake > 0 {
		turns = 2
	}
	type pair struct {
		name, program string
		limit         float64
		v             *visit
		hook          func(*visit) time.Duration
		by            timed
	}
	pairs := []pair{
		{"start of a job with every GPU", "bookend-prolog", startLimit, visits(all, untested), (*visit).start, look},
		{"end of a job with every GPU, no test allocation", "bookend-epilog", endLimit, visits(all, untested), (*visit).end, look},
		{"end of a job with every GPU, with the test allocation", "bookend-epilog", testedLimit, visits(all, tested),
			(*visit).end, test},
		{"start of a job without GPUs", "bookend-prolog", nothing, visits(0, untested), (*visit).start, idle},
	}
	if all > 1 {
		pairs = append(pairs, pair{"start of a job with one GPU of several", "bookend-prolog", oneLimit,
			visits(1, untested), (*visit).start, look})
	}
	if l.smi != "" {
		query := l.plain(smiQuery, "one query", l.smi, strings.Fields(smiQuery)[1:]...)
		pairs = append(pairs, pair{"start of a job with every GPU, by nvidia-smi", "bookend-prolog", smiLimit(all),
			visits(all, untested), (*visit).start, query})
	}
	for _, p := range pairs {
		ours := func() time.Duration { return p.hook(p.v) }
		bare := func() time.Duration { return p.by.once(-1) }
		ours()
		bare()
		l.turns(t, turns, record.Pair{Name: p.name, Limit: p.limit, Ours: timing(p.program, p.name),
			Bare: p.by.Timing, What: p.program + ", against " + p.by.What}, ours, bare)
	}
}

// bare is one of build.sh's own programs.
func (l *lane) bare(name, what string) timed {
	t := timed{Timing: timing(name, what), argv: []string{l.site.Program(name)}, env: func(int) []string { return l.env }}
	if w := l.site.World(l.node); w != nil {
		t.argv = append(t.argv, map[string][]string{"barelook": {w.NVML()}, "bareprobe": {"142000", w.CUDA()}}[name]...)
	}
	return t
}

// free is what a test allocation gets of each GPU, in MiB.
func (l *lane) free() uint64 {
	asked := timed{argv: []string{l.site.Program("bookend-gpu")}, stdin: l.probeRequest(l.cards, false)}
	asked.once(-1)
	return l.tested(asked.said) / mib
}
