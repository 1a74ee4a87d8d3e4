package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/protocol"
	"bookend/internal/slurm"
	"bookend/test/cluster"
	"bookend/test/gpu/runrecord"
)

// The project's own goals: a hook's time by that of a bare program that asks the driver the same.
const (
	startLimit  = 1.25 // of every GPU
	oneLimit    = 1.2  // of one, next to others
	endLimit    = 1.3  // without a test allocation
	testedLimit = 1.08 // with one, by the bare test's
	noGPULimit  = 1.5  // of a job without GPUs, by a program that does nothing
	filesLimit  = 1.05 // if the user has 1,000 files in shared memory, by the same hook without: 1 ms of 20
	// of ten jobs in a row, by their time with hooks that do nothing: on one GPU, on a node with more
	oneRowLimit   = 1.2
	rowLimit      = 1.3
	askedRowLimit = 1.15 // and by hooks that only ask NVML
)

// smiLimit is the goal for a start next to one query of nvidia-smi, which asks one GPU after the other.
func smiLimit(gpus int) float64 {
	if gpus == 1 {
		return 1.2
	}
	return 0.8
}

const (
	noProbe  = "probe: {at: never}"
	eachEnd  = "probe: {every: 0s}" // as shipped an end tests where that can tell something
	smiQuery = "nvidia-smi --query-gpu=index,uuid,memory.used --format=csv,noheader,nounits"
)

//go:embed usual-epilog.sh
var usualEpilog string

// wholePrograms are what a job pays for Bookend, and what sites run instead.
func (l *lane) wholePrograms() (rows []benchmark, done func()) {
	untested, tested, shipped := l.with("untested", noProbe), l.with("tested", eachEnd), l.site.ConfigFile(l.node)
	every := [][]int{l.every()}
	all := []contender{
		l.program("/bin/true", "the cost of starting anything", "/bin/true"),
		l.visit("bookend-prolog, job without GPUs", "what every other job pays", slurm.Prolog, shipped, [][]int{nil}),
		l.visit("bookend-prolog", "start of a job with every GPU, all clean", slurm.Prolog, shipped, every),
		l.visit("bookend-epilog", "its end, all clean: with health and a test allocation on every GPU", slurm.Epilog, tested,
			every),
		l.visit("bookend-prolog, "+noProbe, "the same start", slurm.Prolog, untested, every),
		l.visit("bookend-epilog, "+noProbe, "its end without the test allocation", slurm.Epilog, untested, every),
		l.look(), l.healthCheck(),
	}
	if l.smi != "" {
		usual := filepath.Join(l.site.Dir, "usual-epilog.sh")
		try(os.WriteFile(usual, []byte(usualEpilog), 0o755))
		all = append(all,
			l.program(smiQuery, "one query, whole process", l.smi, strings.Fields(smiQuery)[1:]...),
			l.program("nvidia-smi --query-compute-apps=pid", "the other", l.smi, "--query-compute-apps=pid", plainCSV),
			l.program("nvidia-smi", "what an admin types", l.smi),
			l.program("usual shell epilog", "both queries, and a ps for each process", usual))
	}
	return []benchmark{{rounds: l.rounds(), contenders: all}}, nothing
}

// program is one that the lane can run as it is.
func (l *lane) program(name, what, path string, args ...string) contender {
	argv := append([]string{path}, args...)
	return contender{
		timing: runrecord.Timing{Name: name, What: what, Command: strings.Join(argv, " ")},
		once: func() time.Duration {
			_, took := start(argv, l.bare(), nil).end()
			return took
		},
	}
}

// look asks the backend as a hook would.
func (l *lane) look() contender {
	c := l.program("bookend-gpu", "the backend alone: one look at every GPU", l.site.Program("bookend-gpu"))
	request := must(l.requestOf(protocol.Snapshot, l.cards).Line())
	c.once = func() time.Duration {
		_, took := l.askBackend(request).end()
		return took
	}
	return c
}

// healthCheck is one check, which must read every GPU and find nothing.
func (l *lane) healthCheck() contender {
	c := l.program("bookend-healthcheck", "one check of every GPU, all clean: with their condition and the kernel's log",
		l.site.Program("bookend-healthcheck"))
	c.once = func() time.Duration {
		var before time.Duration
		if last := l.lastCheck(); last != nil {
			before = last.At
		}
		_, took := start([]string{c.timing.Command}, l.checkEnv(), nil).end()
		now := l.lastCheck()
		if now == nil || now.Stopped || now.At == before {
			panic(errors.New("the health check left no record"))
		}
		if len(now.Snapshot.Readings) != len(l.cards) || len(now.Health) != len(l.cards) || len(now.Findings) > 0 {
			panic(fmt.Errorf("the health check read %d GPUs, the condition of %d, and found %v", len(now.Snapshot.Readings),
				len(now.Health), now.Findings))
		}
		return took
	}
	return c
}

// visit is a job on some GPUs, or several at once, each time others, of which the start or the end is timed. Every hook
// must look at its GPUs once and find them clean.
func (l *lane) visit(name, what string, timed slurm.Context, config string, on [][]int) contender {
	hook := "bookend-" + strings.TrimSuffix(string(timed), "_slurmd")
	return contender{
		timing: runrecord.Timing{Name: name, What: what, Command: l.site.Program(hook)},
		once: func() time.Duration {
			first, took := l.ownJobs(len(on)), map[slurm.Context]time.Duration{}
			for _, context := range []slurm.Context{slurm.Prolog, slurm.Epilog} {
				took[context] = atOnce(len(on), func(i int) { l.startHook(context, first+i, on[i], config).end() })
			}
			l.foundClean(first, on)
			return took[timed]
		},
	}
}

// foundClean makes sure that both hooks of each job did their work. Of a job without GPUs they write nothing.
func (l *lane) foundClean(first int, on [][]int) {
	hooks := map[int]int{}
	for _, h := range l.lines(func(h line) bool { return h.Job >= first && h.Job < first+len(on) }) {
		if hooks[h.Job]++; h.Message != "clean" || h.Looks != 1 {
			panic(fmt.Errorf("job %d: %s said %q after %d looks", h.Job, h.Program, h.Message, h.Looks))
		}
	}
	for i, gpus := range on {
		if n := hooks[first+i]; n != 2*min(1, len(gpus)) {
			panic(fmt.Errorf("job %d on %d GPUs: %d hooks wrote to the log", first+i, len(gpus), n))
		}
	}
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

// hookCost is each hook next to the least that its questions to the driver cost.
func (l *lane) hookCost() (rows []benchmark, done func()) {
	l.examined()
	looks, tests := []string{"look"}, []string{"probe"}
	if w := l.site.World(l.node); w != nil {
		looks, tests = append(looks, w.NVML()), append(tests, "142000", w.CUDA())
	} else {
		tests = append(tests, fmt.Sprint(l.free()))
	}
	look := l.program("barelook", "NVML's own figures of every GPU in bare C, with a thread for each",
		l.site.Program("bare"), looks...)
	test := l.program("bareprobe", "cuInit, one cuMemCreate of the same size and one cuMemRelease a GPU in bare C",
		l.site.Program("bare"), tests...)
	idle := l.program("idle", "a static Go program that does nothing", l.site.Program("idle"))
	every, each := [][]int{l.every()}, slices.Collect(slices.Chunk(l.every(), 1))
	untested, tested := l.with("untested", noProbe), l.with("tested", eachEnd)
	row := func(name string, limit float64, timed slurm.Context, config string, on [][]int, rival contender) {
		ours := l.visit("", name, timed, config, on)
		ours.timing.Name = filepath.Base(ours.timing.Command)
		rows = append(rows, benchmark{name, ours.timing.Name + ", against " + rival.timing.What, limit, l.rounds(),
			[]contender{ours, rival}})
	}
	row("start of a job with every GPU", startLimit, slurm.Prolog, untested, every, look)
	row("end of a job with every GPU, no test allocation", endLimit, slurm.Epilog, untested, every, look)
	row("end of a job with every GPU, with the test allocation", testedLimit, slurm.Epilog, tested, every, test)
	row("start of a job without GPUs", noGPULimit, slurm.Prolog, untested, [][]int{nil}, idle)
	for _, context := range []slurm.Context{slurm.Prolog, slurm.Epilog} {
		name := map[slurm.Context]string{slurm.Prolog: "start", slurm.Epilog: "end"}[context] + " of a job whose user has 1,000 files in /dev/shm"
		row(name, filesLimit, context, untested, every, l.visit("", "the same hook without them", context, untested, every))
		withFiles := &rows[len(rows)-1].contenders[0]
		withFiles.once = l.filled(withFiles.once)
	}
	if len(l.cards) > 1 {
		row("start of a job with one GPU of several", oneLimit, slurm.Prolog, untested, each[:1], look)
		row("end of a job on each GPU at once, no test allocation", endLimit, slurm.Epilog, untested, each, look)
	}
	if l.smi != "" {
		query := l.program(smiQuery, "one query of nvidia-smi", l.smi, strings.Fields(smiQuery)[1:]...)
		row("start of a job with every GPU, by nvidia-smi", smiLimit(len(l.cards)), slurm.Prolog, untested, every, query)
	}
	return rows, l.slowly()
}

// filled is a visit of a user who keeps files in shared memory.
func (l *lane) filled(visit func() time.Duration) func() time.Duration {
	files := 1000
	if l.fake > 0 {
		files = 10 // other tests look there too
	}
	return func() time.Duration {
		uid, gid := ids(l.site.Users[0])
		for i := range files {
			path := fmt.Sprintf("/dev/shm/bookend-lane-%d", i)
			try(os.WriteFile(path, nil, 0o600))
			defer os.Remove(path)
			try(os.Chown(path, int(uid), int(gid)))
		}
		return visit()
	}
}

// slowly makes the fake GPUs of a rehearsal take what calls take on nodes of so many H200s with persistence mode, in
// milliseconds, as measured on one and four.
func (l *lane) slowly() (done func()) {
	const attach = 6
	w, gpus, undo := l.site.World(l.node), len(l.cards), []func(){}
	for call, ms := range map[string]int{"nvmlInit_v2": 3 + 4*gpus, "nvmlDeviceGetHandleByIndex_v2": attach,
		"nvmlDeviceGetHandleByUUID": attach, "nvmlDeviceGetHandleByPciBusId_v2": attach, "cuInit": 160 * gpus,
		"cuMemRelease": 45} {
		if w != nil {
			try(w.Set("on."+call, fmt.Sprintf("sleep %d", ms)))
			undo = append(undo, func() { try(w.Set("on."+call, "")) })
		}
	}
	return func() {
		for _, u := range undo {
			u()
		}
	}
}

// free is what a test allocation gets of each GPU, in MiB: the smallest of the blocks.
func (l *lane) free() uint64 {
	out, _ := l.askBackend(l.probeRequest(l.cards, false)).end()
	var sizes []uint64
	for _, p := range probesIn(out) {
		if p.Result != gpu.ProbeOK {
			panic(fmt.Errorf("GPU %s: %s: %s", p.Device, p.Result, p.Why))
		}
		sizes = append(sizes, p.Largest.Bytes)
	}
	if len(sizes) != len(l.cards) {
		panic(fmt.Errorf("%d GPUs were tested, want %d: %s", len(sizes), len(l.cards), tail(string(out))))
	}
	return slices.Min(sizes) / mib
}

// examined has a health check behind it, as a site's node has every few minutes: an end then asks the driver less.
func (l *lane) examined() {
	start([]string{l.site.Program("bookend-healthcheck")}, l.checkEnv(), nil).end()
}

// rowCost is jobs that do nothing, each as soon as the node is free for it: with Bookend's hooks, with hooks that do
// nothing, with the least that a hook which asks the driver costs, and without hooks.
func (l *lane) rowCost() (rows []benchmark, done func()) {
	l.configure("observe", nil)
	l.examined()
	ask := l.site.Program("bare") + " look"
	if w := l.site.World(l.node); w != nil {
		ask += " " + w.NVML()
	}
	for _, gpus := range slices.Compact([]int{1, len(l.cards)}) {
		name, limit := fmt.Sprintf("ten jobs in a row, GPUs each: %d", gpus), rowLimit
		if len(l.cards) == 1 {
			limit = oneRowLimit
		}
		side := func(name, what string, change func() (back func())) contender {
			command := fmt.Sprintf("srun --gres=gpu:%d true", gpus)
			return contender{runrecord.Timing{Name: name, What: what, Command: command}, func() time.Duration {
				defer change()()
				return l.row(gpus)
			}}
		}
		const what = "srun true, ten times, each waiting for the end of the one before it"
		ours := side("with Bookend", "all hooks, as shipped", func() func() { return nothing })
		rows = append(rows, benchmark{name, what, limit, 5, []contender{
			ours, side("without", "hooks that do nothing", func() func() { return l.otherHooks("exit 0") })}},
			benchmark{name + ", next to hooks that only ask NVML", what, askedRowLimit, 5, []contender{
				ours, side("asked", "Prolog and Epilog: NVML's own figures in bare C", func() func() { return l.otherHooks(ask) })}},
			benchmark{name: name, what: what, rounds: 5, contenders: []contender{
				side(name+", without hooks", "no Prolog, no Epilog in slurm.conf", l.unhooked)}})
	}
	return rows, nothing
}

// row is how long ten jobs take, one after the other, until the node is free again.
func (l *lane) row(gpus int) time.Duration {
	began := time.Now()
	for range 10 {
		must(l.site.Srun(l.site.Users[0], fmt.Sprintf("--gres=gpu:%d", gpus), "--nodelist="+l.node, "true"))
	}
	must(l.site.WaitNode(l.node, patience, func(n cluster.NodeState) bool {
		return n.Has("IDLE") && !n.Has("COMPLETING")
	}))
	return time.Since(began)
}

// otherHooks puts other hooks in the place of Slurm's, until back: those of root do something, the others nothing.
func (l *lane) otherHooks(do string) (back func()) {
	hooks, aside := cluster.HookFile(l.site.Cluster.Dir(), ""), filepath.Join(l.site.Dir, "hooks-aside")
	try(os.Rename(hooks, aside))
	try(os.Mkdir(hooks, 0o755))
	for name, does := range map[string]string{
		"prolog": do, "epilog": do, "task-prolog": "exit 0", "task-epilog": "exit 0", "healthcheck": "exit 0",
	} {
		try(os.WriteFile(filepath.Join(hooks, name), []byte("#!/bin/sh\nexec >/dev/null\n"+does+"\n"), 0o755))
	}
	return func() {
		try(os.RemoveAll(hooks))
		try(os.Rename(aside, hooks))
	}
}

// unhooked takes all hooks out of slurm.conf, until back.
func (l *lane) unhooked() (back func()) {
	file := l.site.Cluster.ConfFile()
	all := string(must(os.ReadFile(file)))
	isHook := func(line string) bool {
		key, _, _ := strings.Cut(strings.ToLower(line), "=")
		return strings.HasPrefix(key, "prolog") || slices.Contains([]string{"epilog", "taskprolog", "taskepilog"}, key)
	}
	use := func(lines []string) {
		try(os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644))
		try(l.site.Cluster.Scontrol("reconfigure"))
		for range 20 { // slurmd does not answer for a moment
			if _, err := l.site.Srun(l.site.Users[0], "--nodelist="+l.node, "true"); err == nil {
				return
			}
		}
	}
	lines := strings.Split(all, "\n")
	use(slices.DeleteFunc(slices.Clone(lines), isHook))
	return func() { use(lines) }
}
