package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/test/soak/world"
)

type kind string

// The kinds of failures.
const (
	falseDrain  kind = "false drain"  // the card is usable, or who is on it has a right to it, or goes by himself
	breach      kind = "breach"       // the card is not, but this hook could not know: the design forbids the drain
	missedLeak  kind = "missed leak"  // nothing was said of it
	missedDrain kind = "missed drain" // all of the design's conditions were met
	wrongBlame  kind = "wrong blame"  // by a cgroup or a sighting, which are worded as certain
	badGuesses  kind = "bad guesses"  // by exclusive use, worded "probably": wrong too often
	panicked    kind = "panic"
)

type failure struct {
	seed, n uint64
	kind    kind
	what    string
}

func (f failure) String() string {
	return fmt.Sprintf("%s: %s (--replay %d:%d)", f.kind, f.what, f.seed, f.n)
}

// tally counts what was met, so that a run that met nothing cannot pass for a good one.
type tally struct {
	pairs, hooks, checks, settled, damaged, leaks, drains, due, misguessed, named, recorded, faults uint64

	blamed, guessed      uint64 // owners that were named, and those of them by exclusive use alone
	tracked, unwitnessed uint64 // the same where Slurm tracks by cgroup
	unproven             uint64 // by exclusive use alone, though samples saw the process in a job's cgroup

	leftovers, certain uint64 // ends with remains in shared memory, and those of them that say which job left them

	misguessedAt uint64 // the first pair with one
}

func (t *tally) counts() []*uint64 {
	return []*uint64{&t.pairs, &t.hooks, &t.checks, &t.settled, &t.damaged, &t.leaks, &t.drains, &t.due, &t.blamed,
		&t.misguessed, &t.named, &t.guessed, &t.tracked, &t.unwitnessed, &t.unproven, &t.recorded, &t.faults,
		&t.leftovers, &t.certain}
}

func (t *tally) add(o tally) {
	if o.misguessed > 0 && (t.misguessed == 0 || o.misguessedAt < t.misguessedAt) {
		t.misguessedAt = o.misguessedAt
	}
	for i, more := range o.counts() {
		*t.counts()[i] += *more
	}
}

// guessesBadly reports that in too many pairs one who was named by exclusive use was not the owner. It is a guess, worded
// as one: of a process or memory without a mark that appeared while one job had the GPU alone, a stranger's cannot be
// told from the job's. Two in a hundred thousand owners were counted, in worlds that are made to fool it.
func (t tally) guessesBadly() bool { return t.misguessed > 5+t.blamed/20_000 }

// pair is one story: a node on which at least two jobs follow each other on a card.
type pair struct {
	cfg      config.Config
	limits   record.Limits
	node     *world.Node
	book     records
	rand     *rand.Rand // of what the driver of the story decides; the world draws its own
	damaged  bool
	tally    tally
	failures []failure
	seed, n  uint64
	starts   map[*world.Job]*start    // what an end is compared with, unless its record says otherwise
	prologs  map[time.Duration]*start // every prolog, by its last look (CLOCK_BOOTTIME), which its record has
	missed   time.Duration            // when a record was lost last, or not made; 0 for never
	recorder recorder
	// lastCheck is the record of the last health check, nil if there was none.
	lastCheck *record.Check
	// standing is what the node keeps of its GPUs' fatal errors.
	standing record.Standing
	checking bool // a health check is at work: no other begins
	tell     func(at time.Duration, text string)
}

// ordered reports that nothing was lost or left out since the node booted. A record without an end counts until then,
// whatever became of the driver; what is from an earlier boot is no excuse.
func (p *pair) ordered() bool {
	return p.missed < p.node.Began && !slices.ContainsFunc(p.node.Jobs, func(j *world.Job) bool {
		return (j.NoEpilog || j.NoProlog) && j.Allocated >= p.node.Began
	})
}

// start is what truly lay on a job's cards when a prolog was done.
type start struct {
	job    *world.Job
	cards  map[*world.Card]startOn
	whole  bool // its look was undamaged
	on     bool // its record was written
	again  bool // another prolog of the job came before
	reruns int  // epilogs that were judged
}

type startOn struct {
	stock     world.Stock
	asService uint64 // of what was stuck there, what may have passed for a service's
	said      bool   // the prolog found something
}

// dirty is the most that lay there of what no start may be called clean with, less what no hook can tell: of what
// nobody is listed for the sum, of what is listed each by itself.
func (s startOn) dirty() uint64 {
	unlisted := s.stock.Unlisted(world.Stuck, world.Alive)
	most := unlisted - min(unlisted, s.asService+tolerance(s.stock))
	for _, i := range s.stock {
		if !i.Unlisted && (i.Fate == world.Stuck || i.Fate == world.Alive) {
			most = max(most, i.Bytes)
		}
	}
	return most
}

// shipped is the configuration as shipped, made to drain, with a sample every so often.
func shipped(every time.Duration) config.Config {
	c := config.Default()
	c.Record.Every = config.Duration(every)
	c.Mode = config.Enforce
	c.Slurm.SharedPartitions = []string{"shared"}
	return c
}

func play(cfg config.Config, seed, n uint64, tell func(time.Duration, string)) (p *pair) {
	p = &pair{
		cfg: cfg, seed: seed, n: n, tell: tell, starts: map[*world.Job]*start{},
		prologs: map[time.Duration]*start{}, limits: record.NewLimits(cfg.Thresholds.Bytes()),
		rand: rand.New(rand.NewPCG(^seed, n)), book: records{baselines: map[gpu.ID]record.Baseline{}},
	}
	defer func() {
		if v := recover(); v != nil {
			p.fail(panicked, "%v", v)
		}
	}()
	p.damaged = p.rand.IntN(10) < 3
	if p.rand.IntN(20) == 0 {
		p.book.bare = p.rand.IntN(2) == 0
	}
	p.recorder = p.newRecorder()
	p.node = world.New(seed, n, p.start)
	p.node.Tell = tell
	p.checks()
	p.node.Play()
	p.playMemory()
	p.tally.pairs = 1
	return p
}

func (p *pair) fail(k kind, format string, args ...any) {
	f := failure{p.seed, p.n, k, fmt.Sprintf(format, args...)}
	p.failures = append(p.failures, f)
	p.report("%s", f)
}

func (p *pair) report(format string, args ...any) {
	if p.tell != nil {
		p.tell(p.node.Boottime(p.node.Now), "*** "+fmt.Sprintf(format, args...))
	}
}
