package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"bookend/deploy"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/internal/wire"
	"bookend/test/gpu/record"
	"bookend/test/rig"
)

const (
	timingsName = "timings"
	rounds      = 21
	timedJob    = 100000 // the job ids that the timed hooks are told lie above it, and above any of Slurm's here
	untestedJob = 200000 // and these where they test no card
	oneRun      = patience
)

//go:embed usual-epilog.sh
var usualEpilog string

type timed struct {
	record.Timing
	argv  []string
	env   func(round int) []string // nil: none
	stdin []byte                   // a request; the pipe stays open until the program ends
	said  []byte                   // by the last run
	sane  func()                   // nil, or what must hold after each run
}

// timings runs each program once a round, in turn, on clean cards, so that all see the same machine.
func (l *lane) timings(t *record.Timings) {
	programs := l.timedPrograms()
	l.awaitIdle()
	for round := -1; round < rounds; round++ { // round -1 warms caches and is not counted
		for i := range programs {
			took := programs[i].once(round)
			if programs[i].sane != nil {
				programs[i].sane()
			}
			if round >= 0 {
				programs[i].Millis = append(programs[i].Millis, millis(took))
			}
		}
	}
	l.hooksSawClean()
	for _, p := range programs {
		t.Programs = append(t.Programs, p.Timing)
		fmt.Fprintf(l.say, "%-34s %8.1f ms\n", p.Name, p.Median())
	}
}

func (l *lane) timedPrograms() []timed {
	request := must(l.requestOf(wire.Snapshot, l.cards).Line()) // as a hook would
	untested, tested, shipped := l.with("untested", noProbe), l.with("tested", eachEnd), l.site.ConfigFile(l.node)
	all := []timed{
		l.plain("/bin/true", "the cost of starting anything", "/bin/true"),
		l.timedHook("bookend-prolog", ", job without GPUs", "what every other job pays", 0, nil, shipped),
		l.timedHook("bookend-prolog", "", "start of a job with every GPU, all clean", timedJob, l.every(), shipped),
		l.timedHook("bookend-epilog", "", "its end, all clean: with health and a test allocation on every GPU",
			timedJob, l.every(), tested),
		l.timedHook("bookend-prolog", ", "+noProbe, "the same start", untestedJob, l.every(), untested),
		l.timedHook("bookend-epilog", ", "+noProbe, "its end without the test allocation", untestedJob, l.every(), untested),
		{Timing: timing("bookend-gpu", "the backend alone: one look at every GPU"),
			argv: []string{l.site.Program("bookend-gpu")}, stdin: request},
		{Timing: timing("bookend-healthcheck",
			"one check of every GPU, all clean: with their condition and the kernel's log"),
			argv: []string{l.site.Program("bookend-healthcheck")}, env: func(int) []string { return l.checkEnv() },
			sane: l.checkSawClean()},
	}
	if l.smi == "" {
		return all
	}
	usual := filepath.Join(l.site.Dir, "usual-epilog.sh")
	try(os.WriteFile(usual, []byte(usualEpilog), 0o755))
	return append(all,
		l.plain(smiQuery, "one query, whole process", l.smi, strings.Fields(smiQuery)[1:]...),
		l.plain("nvidia-smi --query-compute-apps=pid", "the other", l.smi, "--query-compute-apps=pid",
			"--format=csv,noheader,nounits"),
		l.plain("nvidia-smi", "what an admin types", l.smi),
		l.plain(usualName, "both queries, and a ps for each process", usual),
	)
}

const (
	noProbe = "probe: {at: never}"
	eachEnd = "probe: {every: 0s}" // as shipped an end tests where that can tell something
)

// with makes a configuration of that name with one more section.
func (l *lane) with(name, section string) string {
	text := must(os.ReadFile(l.site.ConfigFile(l.node)))
	path := l.site.ConfigFile(l.node + "-" + name)
	try(os.WriteFile(path, append(text, section+"\n"...), 0o644))
	return path
}

// timedHook is a hook in the environment that slurmd gives it. Each round is a job of its own.
func (l *lane) timedHook(program, how, what string, job int, on []int, config string) timed {
	context := slurm.Context(strings.TrimPrefix(program, "bookend-") + "_slurmd")
	return timed{
		Timing: timing(program+how, what), argv: []string{l.site.Program(program)},
		env: func(round int) []string { return l.hookEnv(context, job+1+round, on, config) },
	}
}

const (
	smiQuery  = "nvidia-smi --query-gpu=index,uuid,memory.used --format=csv,noheader,nounits"
	usualName = "usual shell epilog"
)

func timing(name, what string) record.Timing { return record.Timing{Name: name, What: what} }

func (l *lane) plain(name, what, program string, args ...string) timed {
	path := "PATH=" + os.Getenv("PATH")
	if l.smi != "" {
		path += ":" + filepath.Dir(l.smi)
	}
	return timed{Timing: timing(name, what), argv: append([]string{program}, args...),
		env: func(int) []string { return []string{path} }}
}

func (l *lane) every() (all []int) {
	for i := range l.cards {
		all = append(all, i)
	}
	return all
}

// cores is GOMAXPROCS as the scripts in slurm.conf give it to a hook.
var cores = sync.OnceValue(func() string {
	script := must(deploy.Hooks.ReadFile("slurm/hooks/prolog"))
	return regexp.MustCompile(`(?m)^export GOMAXPROCS=(\d+)$`).FindStringSubmatch(string(script))[1]
})

// hookEnv is the environment slurmd gives a hook (22.05): built from scratch.
func (l *lane) hookEnv(context slurm.Context, job int, on []int, config string) []string {
	uid, gid := ids(l.site.Users[0])
	var indexes []string
	for _, i := range on {
		indexes = append(indexes, fmt.Sprint(i))
	}
	return rig.NewJob(l.node, job, int(uid), 0).On(strings.Join(indexes, ",")).With("SLURM_JOB_GID", fmt.Sprint(gid),
		"SLURM_JOB_USER", l.site.Users[0], "SLURM_CONF", l.site.ConfFile(), "GOMAXPROCS", cores()).Environ(config, context)
}

// once runs the program and returns its wall time, from before its start to after its end.
func (t *timed) once(round int) time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), oneRun)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.argv[0], t.argv[1:]...)
	if cmd.Env = []string{}; t.env != nil {
		cmd.Env = append(cmd.Env, t.env(round)...)
	}
	t.Command = strings.Join(t.argv, " ")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var pipe io.WriteCloser
	if t.stdin != nil {
		pipe = must(cmd.StdinPipe())
	}
	began := time.Now()
	try(cmd.Start())
	if pipe != nil {
		must(pipe.Write(t.stdin))
	}
	err := cmd.Wait()
	took := time.Since(began)
	t.said = out.Bytes()
	if err != nil {
		panic(fmt.Errorf("%s: %w: %s", t.Name, err, tail(out.String())))
	}
	return took
}

// checkSawClean makes sure, after each health check, that it read every card and found nothing.
func (l *lane) checkSawClean() func() {
	var before time.Duration
	return func() {
		c := l.lastCheck()
		if c == nil || c.Stopped || c.At == before {
			panic(fmt.Errorf("the health check left no record"))
		}
		if before = c.At; len(c.Snapshot.Readings) != len(l.cards) || len(c.Health) != len(l.cards) ||
			len(c.Findings) > 0 {
			panic(fmt.Errorf("the health check read %d GPUs, the condition of %d, and found %v",
				len(c.Snapshot.Readings), len(c.Health), c.Findings))
		}
	}
}

// hooksSawClean makes sure that the timed hooks did their work: every one looked at every card, once, and found
// them clean.
func (l *lane) hooksSawClean() {
	for round := range 2 * rounds {
		job := []int{timedJob, untestedJob}[round%2] + 1 + round/2
		hooks := l.hooks(job)
		for _, h := range hooks {
			if h.Message != "clean" || h.Looks != 1 {
				panic(fmt.Errorf("job %d: %s said %q after %d looks", job, h.Program, h.Message, h.Looks))
			}
		}
		if len(hooks) != 2 {
			panic(fmt.Errorf("job %d: %d hooks wrote to the log, want 2", job, len(hooks)))
		}
	}
}

// turns measures a pair in turn; who comes first changes with each round.
func (l *lane) turns(t *record.Timings, rounds int, p record.Pair, ours, bare func() time.Duration) {
	type side struct {
		once func() time.Duration
		of   *record.Timing
	}
	order := []side{{ours, &p.Ours}, {bare, &p.Bare}}
	for range rounds {
		for _, s := range order {
			s.of.Millis = append(s.of.Millis, millis(s.once()))
		}
		slices.Reverse(order)
	}
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

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
