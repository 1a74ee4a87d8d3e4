// Package judge makes one judgement of everything that a hook knows: what its records tell of the time before (Past),
// what it saw (Seen), and what the node's other records say (Node). It takes values and returns values; the hooks, the
// health check and the soak all judge by it.
package judge

import (
	"cmp"
	"time"

	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// Case is everything that one judgement is made of.
type Case struct {
	Phase  slurm.Context
	Job    slurm.Job
	Config config.Config
	InJob  bool // PrologFlags=RunInJob: the hook sits in the job's own cgroup
	Past   Past
	Seen   Seen
	// Node and Sharing are nil where nothing asks for them: on clean GPUs nothing does.
	Node    *Node
	Sharing *slurmconf.Answer
	Cleaned *Cleaned          // nil where no process was to be ended
	Tests   []health.Outcome  // test allocations
	Faults  []finding.Finding // what went wrong until the GPUs had been looked at
	Later   []finding.Finding // what went wrong with the tests
}

// Past is what records tell of the time before a hook.
type Past struct {
	Run       ledger.Run                  // this run's record, as its start left it; zero at a start, and without one
	Again     bool                        // this end is on record already
	Second    bool                        // another hook is at work on this end, or start, of the job
	Before    *finding.Side               // what the start saw; nil at a start, and where that does not count
	Baselines map[gpu.ID]finding.Baseline // what GPUs carry without any job, of this epoch
}

// Seen is what a hook saw of its job's GPUs, of a health check of all of the node's.
type Seen struct {
	Epoch gpu.Epoch
	Cards []finding.Card
	// Origin is where Slurm's numbers of them came from, Given the GPUs that Slurm gives out, for a health check; nil
	// where that is not known.
	Origin slurmconf.Origin
	Given  map[gpu.BusID]bool
	Side   finding.Side
	Looks  int
	Health []gpu.Health   // the GPUs' condition
	Kernel *gpu.KernelLog // since the job's start, or its newest entry alone; nil where it was not read
}

// Node is what the records of all of a node's hooks say.
type Node struct {
	Runs    []ledger.Run
	Unread  string // why there may be more of them, empty where there are none
	Sighted ledger.Sighted
}

// shared is why others may use the GPUs legally, or why that is not known; both empty where the job has them alone.
func (c Case) shared() (why, unknown string) {
	switch {
	case c.Sharing == nil:
	case c.Sharing.Shared == slurmconf.Yes:
		why = c.Sharing.Why
	case c.Sharing.Shared == slurmconf.Unknown:
		unknown = c.Sharing.Why
	}
	return why, unknown
}

// Cleaned is what clean-up did to processes of an ended job, what was seen before, and what after. The case's own look
// is the later one that saw anything.
type Cleaned struct {
	First, After finding.Side
	Looked       bool // again, because a process may have ended
	Did          []finding.Finding
}

// Probes are the results of tests without what bears on their certainty.
func (c Case) Probes() (all []gpu.Probe) {
	for _, o := range c.Tests {
		all = append(all, o.Probe)
	}
	return all
}

func (c Case) limits() finding.Limits { return finding.LimitsOf(c.Config.Thresholds) }

// BaselinesOf leaves those of an epoch: others are void.
func BaselinesOf(all map[gpu.ID]finding.Baseline, epoch gpu.Epoch) map[gpu.ID]finding.Baseline {
	known := map[gpu.ID]finding.Baseline{}
	for id, b := range all {
		if b.Epoch.Same(epoch) {
			known[id] = b
		}
	}
	return known
}

// Order says how GPUs are to be looked at. An end may drain for memory that a start only reports, and so makes sure.
func (c Case) Order(cards []finding.Card, settle config.SettleTimes) Order {
	expect, known := finding.Expectations(c.Past.Before, c.Past.Baselines, c.limits())
	return Order{
		Cards: cards, Known: known, Limits: c.limits(), Baselines: c.Past.Baselines, Sure: c.Phase != slurm.Prolog,
		Rule: gpu.WatchRule{
			Max: time.Duration(settle.Max), Flat: time.Duration(settle.Flat),
			SlackBytes: c.limits().Report, Expect: expect,
		},
	}
}

// Asks reports whether whose something is has to be asked of the node's records: on clean GPUs nobody asks.
func (c Case) Asks() bool { return c.asks(c.Seen.Side) }

func (c Case) asks(side finding.Side) bool { return !side.AtRest(c.Seen.Cards) }

// Doubts of whole scenes.
const (
	twiceDoubt  = "Slurm does not say which run of the job this end is for, and an earlier one has just ended"
	insideDoubt = "this hook runs inside the job and sees only part of the node"
)

// twice is how long after a run's end a second epilog of it is to be reckoned with, where Slurm does not say which run
// one is for: those seen came at once. A requeued job that ends within that time is drained for only once Slurm says
// more (slurm.TellsStart).
const twice = 5 * time.Minute

// Scene is what a comparison of a look is made of.
func (c Case) Scene(now finding.Side) finding.Scene {
	s := finding.Scene{
		Job: c.Job, Cards: c.Seen.Cards, Before: c.Past.Before, Now: now,
		Limits: c.limits(), Baselines: c.Past.Baselines,
	}
	if c.InJob {
		s.Doubt = insideDoubt
	}
	if c.asks(now) {
		c.addRecords(&s)
	}
	return s
}

// Whole is the scene of the last look with all that the records say.
func (c Case) Whole() finding.Scene {
	s := c.Scene(c.Seen.Side)
	c.addRecords(&s)
	return s
}

// addRecords adds who may use the GPUs, and who did.
func (c Case) addRecords(s *finding.Scene) {
	var node Node
	if c.Node != nil {
		node = *c.Node
	}
	self := c.Self()
	book := ledger.Open(node.Runs, self, ledger.Now{
		At: s.Now.Snapshot.At, Epoch: c.Seen.Epoch, Beginning: c.Phase == slurm.Prolog, Idle: c.limits().Report,
		Sighted: node.Sighted,
	})
	s.Self, s.Others, s.Left = book.Self, book.Others, book.Left
	if c.Phase == slurm.Epilog && self.Mistakable(node.Runs, c.Job, s.Now.Snapshot.At, twice) {
		s.RunDoubt = twiceDoubt
	}
	s.RunDoubt = cmp.Or(s.RunDoubt, node.Unread)
	s.Shared, s.SharedUnknown = c.shared()
}

// Self is this run's record as far as it is made: at a start what has just been found out of it.
func (c Case) Self() ledger.Run {
	run := c.Past.Run
	if c.Phase == slurm.Prolog {
		run = ledger.Run{Epoch: c.Seen.Epoch, Devices: c.Seen.Cards, Numbering: c.Seen.Origin}
	}
	run.Job = c.Job
	return run
}
