package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// visit is a job of the comparison, or one on each GPU at once: each time another.
type visit struct {
	*lane
	config string
	on     [][]int // the GPUs of each of its jobs
	job    int     // of the last
}

// start times a job's start, end its end; the other is run as well.
func (v *visit) start() time.Duration {
	took := v.begin()
	if len(v.on[0]) > 0 {
		v.all("bookend-epilog")
	}
	return took
}

func (v *visit) end() time.Duration {
	v.begin()
	return v.all("bookend-epilog")
}

func (v *visit) begin() time.Duration {
	v.job += len(v.on)
	return v.all("bookend-prolog")
}

// all runs a hook of each of the jobs, all at once.
func (v *visit) all(program string) time.Duration {
	return atOnce(len(v.on), func(i int) { hook := v.timedHook(program, "", "", v.job+i, v.on[i], v.config); hook.once(-1) })
}

func atOnce(n int, do func(int)) time.Duration {
	var done sync.WaitGroup
	failed := make([]error, n)
	began := time.Now()
	for i := range n {
		done.Go(func() { failed[i] = attempt(func() { do(i) }) })
	}
	done.Wait()
	took := time.Since(began)
	try(errors.Join(failed...))
	return took
}

// hookCost measures each hook next to the least that its questions to the driver cost.
func (l *lane) hookCost(t *record.Timings) {
	l.awaitIdle()
	check := timed{argv: []string{l.site.Program("bookend-healthcheck")}, env: func(int) []string { return l.checkEnv() }}
	check.once(-1) // as a site's has run lately
	turns := rounds
	if w := l.site.World(l.node); w != nil {
		turns = 5
		for call, ms := range latencies(len(l.cards)) {
			try(w.Set("on."+call, fmt.Sprintf("sleep %d", ms)))
			defer func() { try(w.Set("on."+call, "")) }()
		}
	}
	for i, c := range l.comparisons() {
		v := &visit{lane: l, config: c.config, on: c.on, job: pairedJob + 10000*i}
		ours := func() time.Duration { return c.hook(v) }
		bare := func() time.Duration { return atOnce(len(c.on), func(int) { by := c.by; by.once(-1) }) }
		ours()
		bare()
		l.turns(t, turns, record.Pair{Name: c.name, Limit: c.limit, Ours: timing(c.program, c.name),
			Bare: c.by.Timing, What: c.program + ", against " + c.by.What}, ours, bare)
	}
}

// latencies are what calls take on nodes of so many H200s with persistence mode, in milliseconds, as measured on one and
// four.
func latencies(gpus int) map[string]int {
	const attach = 6
	return map[string]int{"nvmlInit_v2": 3 + 4*gpus, "nvmlDeviceGetHandleByIndex_v2": attach,
		"nvmlDeviceGetHandleByUUID": attach, "nvmlDeviceGetHandleByPciBusId_v2": attach, "cuInit": 160 * gpus,
		"cuMemRelease": 45}
}

// comparison is a hook, and what it is measured against.
type comparison struct {
	name, program, config string
	limit                 float64
	on                    [][]int
	hook                  func(*visit) time.Duration
	by                    timed
}

func (l *lane) comparisons() []comparison {
	untested, tested := l.with("untested", noProbe), l.with("tested", eachEnd)
	look := l.bare("barelook", "NVML's own figures of every GPU in bare C, with a thread for each")
	test := l.bare("bareprobe", "cuInit, one cuMemCreate of the same size and one cuMemRelease a GPU in bare C")
	if l.fake == 0 {
		test.argv = append(test.argv, fmt.Sprint(l.free()))
	}
	all, start, end := [][]int{l.every()}, (*visit).start, (*visit).end
	compared := []comparison{
		{"start of a job with every GPU", "bookend-prolog", untested, startLimit, all, start, look},
		{"end of a job with every GPU, no test allocation", "bookend-epilog", untested, endLimit, all, end, look},
		{"end of a job with every GPU, with the test allocation", "bookend-epilog", tested, testedLimit, all, end, test},
		{"start of a job without GPUs", "bookend-prolog", untested, nothing, [][]int{nil}, start,
			l.bare("idle", "a static Go program that does nothing")},
	}
	if len(l.cards) > 1 {
		each := slices.Collect(slices.Chunk(l.every(), 1))
		compared = append(compared,
			comparison{"start of a job with one GPU of several", "bookend-prolog", untested, oneLimit, [][]int{{0}}, start, look},
			comparison{"end of a job on each GPU at once, no test allocation", "bookend-epilog", untested, endLimit, each, end, look})
	}
	if l.smi != "" {
		query := l.plain(smiQuery, "one query of nvidia-smi", l.smi, strings.Fields(smiQuery)[1:]...)
		compared = append(compared, comparison{"start of a job with every GPU, by nvidia-smi", "bookend-prolog", untested,
			smiLimit(len(l.cards)), all, start, query})
	}
	return compared
}

func (l *lane) bare(name, what string) timed {
	t := timed{Timing: timing(name, what), argv: []string{l.site.Program(name)},
		env: func(int) []string { return append(slices.Clone(l.env), "GOMAXPROCS="+cores()) }}
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
