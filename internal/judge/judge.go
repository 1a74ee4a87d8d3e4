// Package judge reaches one judgement from everything that a hook has: its records of the time before (Past), its
// observations (Seen), and the node's other records (Node). It takes values and returns values; the hooks, the health
// check and the soak test all use it.
package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// Judgement is a hook's findings and the verdict on them, in the form that a record keeps.
type Judgement struct {
	Found []finding.Finding
	finding.Verdict
}

// Judge judges a case. A finding is never withdrawn: later cases of a hook only add to them.
func Judge(c Case) Judgement {
	found := slices.Concat(c.Faults, c.onCards())
	if c.Phase == slurm.Epilog {
		found = append(found, c.recorded(found)...)
		found = append(found, c.condition()...)
	}
	found = slices.Concat(found, c.Later, health.FoundByTests(c.Seen.Cards, c.Tests))
	return c.decide(found)
}

// With returns the judgement with more findings added at the end, and decides again.
func (j Judgement) With(c Case, more ...finding.Finding) Judgement {
	return c.decide(slices.Concat(j.Found, more))
}

// Late returns the judgement with findings made after the verdict: they are reported but do not change it.
func (j Judgement) Late(more ...finding.Finding) Judgement {
	j.Found, j.Judged = slices.Concat(j.Found, more), slices.Clone(j.Judged)
	for _, f := range more {
		action := config.Warn
		if entry, _ := code.Lookup(f.Code); entry.Severity == code.Note {
			action = config.Note
		}
		j.Judged = append(j.Judged, finding.Judged{Action: action})
	}
	return j
}

func (c Case) decide(found []finding.Finding) Judgement {
	found = c.repeated(c.untried(found))
	return Judgement{found, finding.Decide(c.Config, c.Phase, c.Job, found)}
}

// untried adds the doubt about drivers never measured to the findings on their GPUs and on the driver as a whole.
func (c Case) untried(found []finding.Finding) []finding.Finding {
	found = slices.Clone(found)
	for _, card := range c.Seen.Cards {
		why := gpu.VendorOf(card.Device).Untried
		for i, f := range found {
			concerns := f.GPU == "" || f.GPU == card.Device.ID
			if why != "" && concerns && f.Unknown == "" && !slices.Contains(f.Doubts, why) {
				found[i].Doubts = append(slices.Clone(f.Doubts), why)
			}
		}
	}
	return found
}

func (c Case) repeated(found []finding.Finding) []finding.Finding {
	if c.Node == nil {
		return found
	}
	self := c.Self()
	if self.Epoch = c.Seen.Epoch; c.Phase == slurm.Prolog {
		self.Start = &ledger.End{At: c.At}
	}
	for i, f := range found {
		unread := f.GPU != "" && c.Node.Doubt(c.Job.ID, f.GPU) != "" // another job may have run in between
		found[i].Repeated = c.asksRepeat(f) && !unread && ledger.MetLast(c.Node.Runs, self, f)
	}
	return found
}

// AsksRepeat reports whether policy depends on the last other job's findings, which the node's records have.
func (c Case) AsksRepeat(j Judgement) bool { return slices.ContainsFunc(j.Found, c.asksRepeat) }

func (c Case) asksRepeat(f finding.Finding) bool {
	return f.Unknown == "" && c.Config.Action(c.Phase, c.Job.Partition, f.Code) == config.Repeat
}

// Doubt says why the first finding that was to drain did not, empty if none was held back.
func (j Judgement) Doubt() string {
	for i, f := range j.Found {
		if why := j.Of(i).Why; why != "" {
			return fmt.Sprintf("%s: %s", f.Code, why)
		}
	}
	return ""
}

// onCards returns the findings of the comparison. If processes were ended, the first findings count unless the samples
// after that prove them gone.
func (c Case) onCards() []finding.Finding {
	if c.Cleaned == nil {
		return Compared(c.Scene(c.Seen.Side))
	}
	first := Compared(c.Scene(c.Cleaned.First))
	if !c.Cleaned.Looked {
		return append(first, c.Cleaned.Did...)
	}
	scene := c.Scene(c.Cleaned.After)
	return append(slices.Clone(c.Cleaned.Did), scene.Again(first, Compared(scene))...)
}

// Compared returns the findings on the job's own GPUs; the health check judges other GPUs.
func Compared(s finding.Scene) []finding.Finding {
	return append(finding.Compare(s), untraced(s.Now)...)
}

func untraced(side finding.Side) []finding.Finding {
	if side.Scan == nil || side.Scan.Missed() == "" {
		return nil
	}
	return []finding.Finding{finding.Unsure(code.Untraced, side.Scan.Missed())}
}

// StartOf returns what the start saw. That is void if the driver was reloaded or the node rebooted since, or if an end
// is already recorded and no start time shows that it is this run's.
func StartOf(run ledger.Run, job slurm.Job, epoch gpu.Epoch) (*finding.Side, []finding.Finding) {
	switch {
	case run.Closed() && !run.Sure(job), run.Start == nil:
		return nil, nil
	case run.Epoch == (gpu.Epoch{}): // the prolog failed early; its record says why
		return nil, nil
	case run.Epoch.Changed(epoch):
		const observed = "the driver was reloaded, or the node booted, since the job's start"
		return nil, []finding.Finding{finding.Saw(code.NoRecord, observed, "one epoch for a job")}
	case !run.Epoch.Same(epoch):
		const why = "whether the driver stayed loaded since the job's start: it told nothing of itself at one end"
		return nil, []finding.Finding{finding.Unsure(code.NoRecord, why)}
	}
	e := run.Start
	side := &finding.Side{
		Snapshot: e.Snapshot, Curves: e.Curves, Processes: make(map[int]finding.Process, len(e.Processes)),
		Scan: e.Scan,
	}
	for _, p := range e.Processes {
		side.Processes[p.PID] = p
	}
	return side, nil
}

// Learn returns the baselines that a start shows and that differ from the known ones.
func Learn(c Case) (news []finding.Baseline) {
	s := c.Scene(c.Seen.Side)
	if s.Shared != "" || s.Doubt != "" || !c.Seen.Epoch.Same(c.Seen.Epoch) { // a partly known epoch is never trusted
		return nil
	}
	for _, card := range s.Cards {
		if b, is := s.Learn(card, c.Seen.Epoch); is {
			news = append(news, b)
		}
	}
	return news
}

// End returns the record of one end of a job, made of the case and its judgement.
func (c Case) End(j Judgement) ledger.End {
	side := c.Seen.Side
	e := ledger.End{
		At: side.Snapshot.At, Began: c.At, Snapshot: side.Snapshot, Curves: side.Curves, Scan: side.Scan,
		Processes: slices.Collect(maps.Values(side.Processes)), Probes: c.Probes(), Kernel: c.Seen.Kernel,
		Findings: j.Found, Verdict: j.Verdict,
	}
	if c.Phase == slurm.Epilog {
		e.Recording = c.Past.Recording
		if began := c.Past.Run.Epoch; began != (gpu.Epoch{}) && c.Seen.Epoch != began {
			e.Epoch = c.Seen.Epoch
		}
	}
	if c.Phase == slurm.Prolog && e.Kernel != nil { // only the mark: earlier entries do not belong to this job
		e.Kernel = &gpu.KernelLog{Last: e.Kernel.Last, Unknown: e.Kernel.Unknown}
	}
	return e
}

// Case is the input of one judgement.
type Case struct {
	Phase  slurm.Context
	Job    slurm.Job
	Config config.Config
	At     time.Duration // CLOCK_BOOTTIME when the hook began
	InJob  bool          // PrologFlags=RunInJob: the hook runs in the job's own cgroup
	Past   Past
	Seen   Seen
	// Node and Sharing are nil if nothing needs them: on clean GPUs nothing does.
	Node    *Node
	Sharing *slurmconf.Answer
	Cleaned *Cleaned          // nil if no process was to be ended
	Tests   []health.Outcome  // test allocations
	Faults  []finding.Finding // what went wrong until the GPUs were sampled
	Later   []finding.Finding // what went wrong with the tests
}

// Past is what records show about the time before a hook.
type Past struct {
	Run       ledger.Run                  // this run's record, as its start left it; zero at a start, or without one
	Again     bool                        // this end is already recorded
	Second    bool                        // another hook handles this end, or start, of the job now
	Recording *ledger.Recording           // what was recorded between the run's ends; nil for nothing
	Before    *finding.Side               // what the start saw; nil at a start, or if that does not count
	Baselines map[gpu.ID]finding.Baseline // what GPUs carry without any job, in this epoch
}

// Seen is what a hook saw of its job's GPUs, or a health check of all GPUs of the node.
type Seen struct {
	Epoch gpu.Epoch
	Cards []finding.Card
	// Origin is where the GPU numbers came from, Given (in a health check) which GPUs Slurm gives out; nil if unknown.
	Origin slurmconf.Origin
	Given  map[gpu.BusID]bool
	Side   finding.Side
	Looks  int
	Health []gpu.Health   // the GPUs' condition
	Kernel *gpu.KernelLog // since the job's start, or its newest entry alone; nil if not read
}

// Node is what the records of all hooks of a node contain.
type Node struct {
	Runs   []ledger.Run
	Unread string // why there may be more of them, empty if there are none
	// Damaged are the records that were set aside as damaged.
	Damaged []ledger.Damaged
	Proofs  []finding.Sighting // processes that the recorder saw in a job's cgroup
	// SameHost are the host's other nodes, for a health check: with several slurmd, their jobs may have a GPU.
	SameHost []Node
}

// Doubt says why a GPU may belong to another job although no record says so, empty if nothing suggests that.
func (n Node) Doubt(self slurm.JobID, id gpu.ID) string {
	if n.Unread != "" {
		return n.Unread
	}
	for _, d := range n.damaged() {
		if d.Job != self && d.MayHold(id) {
			return fmt.Sprintf("the record of job %d is damaged: the job may still run on this GPU", d.Job)
		}
	}
	return ""
}

// damaged returns the damaged records of all nodes on the host.
func (n Node) damaged() (all []ledger.Damaged) {
	for _, node := range append([]Node{n}, n.SameHost...) {
		all = append(all, node.Damaged...)
	}
	return all
}

// open opens the node's ledger. A run counts as having had a GPU alone only if no Doubt is about that GPU.
func (n Node) open(self ledger.Run, now ledger.Now) ledger.Book {
	book := ledger.Open(n.Runs, self, now)
	doubted := func(id gpu.ID) bool { return n.Doubt(self.Job.ID, id) != "" }
	book.Self.Alone = book.Self.Alone && !slices.ContainsFunc(book.Self.GPUs, doubted)
	for i, r := range book.Others {
		book.Others[i].Alone = r.Alone && !slices.ContainsFunc(r.GPUs, doubted)
	}
	return book
}

// doubts returns the Doubt about each of these GPUs.
func (n Node) doubts(self slurm.JobID, cards []finding.Card) map[gpu.ID]string {
	all := map[gpu.ID]string{}
	for _, card := range cards {
		all[card.Device.ID] = n.Doubt(self, card.Device.ID)
	}
	return all
}

// shared says why others may use the GPUs legally, or why that is unknown; both are empty if the job has them alone.
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

// Cleaned is what clean-up did to processes of an ended job, with what was seen before and after it. The case's own
// Seen is the later one that saw anything.
type Cleaned struct {
	First, After finding.Side
	Looked       bool // the GPUs were sampled again, because a process may have ended
	Did          []finding.Finding
}

// Probes returns the results of the tests, without what affects how much they prove.
func (c Case) Probes() (all []gpu.Probe) {
	for _, o := range c.Tests {
		all = append(all, o.Probe)
	}
	return all
}

func (c Case) limits() finding.Limits { return finding.LimitsOf(c.Config.Thresholds) }

// BaselinesOf returns the baselines of an epoch: others are void.
func BaselinesOf(all map[gpu.ID]finding.Baseline, epoch gpu.Epoch) map[gpu.ID]finding.Baseline {
	known := maps.Clone(all)
	maps.DeleteFunc(known, func(_ gpu.ID, b finding.Baseline) bool { return !b.Epoch.Same(epoch) })
	return known
}

// Order says how to sample GPUs. An end may drain for memory that a start only reports, so an end makes sure.
func (c Case) Order(cards []finding.Card, settle config.SettleTimes) Order {
	expect, known := finding.Expectations(c.Past.Before, c.Past.Baselines, c.limits())
	return Order{
		Job: c.Job, Cards: cards, Known: known, Limits: c.limits(), Baselines: c.Past.Baselines,
		Sure: c.Phase != slurm.Prolog,
		Rule: gpu.WatchRule{
			Max: time.Duration(settle.Max), Flat: time.Duration(settle.Flat),
			SlackBytes: c.limits().Report, Expect: expect,
		},
	}
}

// Asks reports whether attribution needs the node's records: on clean GPUs it does not.
func (c Case) Asks() bool { return c.asks(c.Seen.Side) }

func (c Case) asks(side finding.Side) bool { return !side.AtRest(c.Seen.Cards) }

// Doubts about everything in a scene.
const (
	twiceDoubt  = "Slurm does not say which run of the job this end is for, and an earlier one has just ended"
	insideDoubt = "this hook runs inside the job and sees only part of the node"
)

// twice is how long after a run's end a second epilog of it may come if Slurm does not say which run an epilog is for
// (slurm.TellsStart): those observed came at once. Until then a requeued job's end drains nothing.
const twice = 5 * time.Minute

// Scene returns the input of a comparison of what was seen now.
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

// Whole returns the scene of the last samples with everything that the records contain.
func (c Case) Whole() finding.Scene {
	s := c.Scene(c.Seen.Side)
	c.addRecords(&s)
	return s
}

func (c Case) addRecords(s *finding.Scene) {
	node := cmp.Or(c.Node, &Node{})
	self := c.Self()
	book := node.open(self, ledger.Now{
		At: s.Now.Snapshot.At, Epoch: c.Seen.Epoch, Beginning: c.Phase == slurm.Prolog, Idle: c.limits().Report,
		Proofs: node.Proofs,
	})
	s.Self, s.Others, s.Left, s.Ending = book.Self, book.Others, book.Left, book.Ending
	s.Clients = ledger.Clients(node.Runs, c.Seen.Epoch.Driver)
	if c.Phase == slurm.Epilog && self.Mistakable(node.Runs, c.Job, s.Now.Snapshot.At, twice) {
		s.RunDoubt = twiceDoubt
	}
	s.Unread = node.doubts(c.Job.ID, c.Seen.Cards)
	s.Shared, s.SharedUnknown = c.shared()
}

// Self returns this run's record as far as it exists: at a start, what the hook has just found out about it.
func (c Case) Self() ledger.Run {
	run := c.Past.Run
	if c.Phase == slurm.Prolog {
		run = ledger.Run{Epoch: c.Seen.Epoch, Devices: c.Seen.Cards, Numbering: c.Seen.Origin}
	}
	run.Job = c.Job
	return run
}
