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

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/compare"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Judgement is a hook's findings and the verdict on them, in the form that a record keeps.
type Judgement struct {
	Found []record.Finding
	record.Verdict
}

// Judge judges a case. A finding is never withdrawn: later cases of a hook only add to them.
func Judge(c Case) Judgement {
	found := slices.Concat(c.Faults, onGPUs(c))
	found = append(found, c.recorded(found)...)
	return c.decide(slices.Concat(found, c.condition(), c.Later, FoundByTests(c.Seen.Cards, c.Tests)))
}

// onGPUs returns the findings. If processes were ended, the first count unless later samples prove them gone.
func onGPUs(c Case) []record.Finding {
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
func Compared(s compare.Input) []record.Finding {
	return append(compare.Compare(s), untraced(s.Now)...)
}

// Proven returns the processes that a cgroup proves to be the ended job's.
func Proven(c Case) []record.Holder { return compare.Proven(Compared(c.Scene(c.Seen.Side)), c.Job) }

func untraced(side record.Side) []record.Finding {
	if side.Scan == nil || side.Scan.Missed() == "" {
		return nil
	}
	return []record.Finding{record.Unsure(catalog.Untraced, side.Scan.Missed())}
}

// StartOf returns what the start saw. That is void if the driver was reloaded or the node rebooted since, or if an end
// is already recorded and no start time shows that it is this run's.
func StartOf(run record.Run, job slurm.Job, epoch gpu.Epoch) (*record.Side, []record.Finding) {
	switch {
	case run.Closed() && !run.Sure(job), run.Start == nil:
		return nil, nil
	case run.Epoch == (gpu.Epoch{}): // the prolog failed early; its record says why
		return nil, nil
	case run.Epoch.Changed(epoch):
		const observed = "the driver was reloaded, or the node booted, since the job's start"
		return nil, []record.Finding{record.Saw(catalog.NoRecord, observed, "one epoch for a job")}
	case !run.Epoch.Same(epoch):
		const why = "whether the driver stayed loaded since the job's start: it told nothing of itself at one end"
		return nil, []record.Finding{record.Unsure(catalog.NoRecord, why)}
	}
	e := run.Start
	side := &record.Side{
		Snapshot: e.Snapshot, Curves: e.Curves, Processes: make(map[int]record.Process, len(e.Processes)),
		Scan: e.Scan,
	}
	for _, p := range e.Processes {
		side.Processes[p.PID] = p
	}
	return side, nil
}

// Learn returns the baselines that a start shows and that differ from the known ones.
func Learn(c Case) (news []record.Baseline) {
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

func (c Case) EndRecord(j Judgement) record.End {
	side := c.Seen.Side
	e := record.End{At: side.Snapshot.At, Began: c.At, Snapshot: side.Snapshot, Curves: side.Curves, Scan: side.Scan,
		Processes: slices.Collect(maps.Values(side.Processes)), Probes: probesOf(c.Tests), Kernel: c.Seen.Kernel,
		Findings: j.Found, Verdict: j.Verdict}
	if c.Phase == slurm.Epilog {
		e.Recording = c.Past.Recording
		if began := c.Past.Run.Epoch; began != (gpu.Epoch{}) && c.Seen.Epoch != began {
			e.Epoch = c.Seen.Epoch
		}
	}
	if e.Kernel != nil {
		log := *e.Kernel
		log.Before = nil // the node keeps what it needs of these
		if c.Phase == slurm.Prolog {
			log = gpu.KernelLog{Last: log.Last, Unknown: log.Unknown} // earlier entries do not belong to this job
		}
		e.Kernel = &log
	}
	return e
}

// Case is the input of one judgement.
type Case struct {
	Phase   slurm.Context
	Job     slurm.Job
	Config  config.Config
	At      time.Duration // CLOCK_BOOTTIME when the hook began
	InJob   bool          // PrologFlags=RunInJob: the hook runs in the job's own cgroup
	Past    Past
	Seen    Seen
	Node    *Node // Node and Sharing are nil if nothing needs them: on clean GPUs nothing does
	Sharing *slurm.Sharing
	Cleaned *Cleaned // nil if no process was to be ended
	// Expedited reports whether an epilog's exit status may start the job again at once; empty if it was not asked.
	Expedited slurm.Answer
	Output    JobOutput        // an end's: what the job's output says
	Tests     []TestResult     // test allocations
	Faults    []record.Finding // what went wrong until the GPUs were sampled
	Later     []record.Finding // what went wrong with the tests
}

// Past is what records show about the time before a hook.
type Past struct {
	Run       record.Run                 // this run's record, as its start left it; zero at a start, or without one
	Turn      Turn                       // which hook of this end, or start, of the job this is
	Recording *record.Recording          // what was recorded between the run's ends; nil for nothing
	Before    *record.Side               // what the start saw; nil at a start, or if that does not count
	Baselines map[gpu.ID]record.Baseline // what GPUs carry without any job, in this epoch
	Standing  record.Standing            // fatal errors of GPUs, of whichever epoch
}

// Turn is which hook of a job's start or end this one is. Slurm may run one a second time, also at once, and gives the
// GPU to the next job when either has ended.
type Turn int

const (
	First      Turn = iota // it alone may test, end processes, and report
	Concurrent             // another came first and has not ended
	Repeated               // this end is already recorded
	Undecided              // whether another is at work could not be found out
)

// Leads reports whether this hook speaks for its start or end: no other has done so or is at it, as far as is known.
func (t Turn) Leads() bool { return t == First || t == Undecided }

// Seen is what a hook saw of its job's GPUs, or a health check of all GPUs of the node.
type Seen struct {
	Epoch gpu.Epoch
	Cards []record.Assigned
	// Origin is where the GPU numbers came from, Given (in a health check) which GPUs Slurm gives out; nil if unknown.
	Origin record.Origin
	Given  map[gpu.BusID]bool
	Side   record.Side
	Looks  int
	Health []gpu.Health   // the GPUs' condition
	Brief  bool           // only part of the GPUs' condition was asked for
	Kernel *gpu.KernelLog // since the job's start, or its newest entry alone; nil if not read
}

// Node is what the records of all hooks of a node contain.
type Node struct {
	Runs    []record.Run
	Unread  string            // why there may be more of them, empty if there are none
	Damaged []record.Damaged  // the records that were set aside as damaged
	Proofs  []record.Sighting // processes that the recorder saw in a job's cgroup
	Check   *record.Check     // the last health check, nil if none is on record
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

func (n Node) damaged() (all []record.Damaged) {
	for _, node := range append([]Node{n}, n.SameHost...) {
		all = append(all, node.Damaged...)
	}
	return all
}

// open reads the node's records. A run counts as having had a GPU alone only if no Doubt is about that GPU.
func (n Node) open(self record.Run, now attribution.Now) attribution.Book {
	book := attribution.Open(n.Runs, self, now)
	doubted := func(id gpu.ID) bool { return n.Doubt(self.Job.ID, id) != "" }
	book.Self.Alone = book.Self.Alone && !slices.ContainsFunc(book.Self.GPUs, doubted)
	for i, r := range book.Others {
		book.Others[i].Alone = r.Alone && !slices.ContainsFunc(r.GPUs, doubted)
	}
	return book
}

func (n Node) doubts(self slurm.JobID, cards []record.Assigned) map[gpu.ID]string {
	all := map[gpu.ID]string{}
	for _, card := range cards {
		all[card.Device.ID] = n.Doubt(self, card.Device.ID)
	}
	return all
}

// Cleaned is what clean-up did to processes of an ended job, with what was seen before and after it. The case's own
// Seen is the later one that saw anything.
type Cleaned struct {
	First, After record.Side
	Looked       bool // the GPUs were sampled again, because a process may have ended
	Did          []record.Finding
}

// probesOf returns the results of tests, without what affects how much they prove.
func probesOf(tests []TestResult) (all []gpu.Probe) {
	for _, o := range tests {
		all = append(all, o.Probe)
	}
	return all
}

// Untested words why a test that was due was not made, empty if every such test was.
func (c Case) Untested() string { return gpu.Untested(probesOf(c.Tests)) }

func (c Case) limits() record.Limits { return record.NewLimits(c.Config.Thresholds.Bytes()) }

// BaselinesOf returns the baselines of an epoch: others are void.
func BaselinesOf(all map[gpu.ID]record.Baseline, epoch gpu.Epoch) map[gpu.ID]record.Baseline {
	known := maps.Clone(all)
	maps.DeleteFunc(known, func(_ gpu.ID, b record.Baseline) bool { return !b.Epoch.Same(epoch) })
	return known
}

// Order says how to sample GPUs. An end may drain for memory that a start only reports, so an end makes sure.
func (c Case) Order(cards []record.Assigned, settle config.SettleTimes) Order {
	expect, known := compare.Expectations(c.Past.Before, c.Past.Baselines, c.limits())
	return Order{Job: c.Job, Cards: cards, Known: known, Limits: c.limits(), Baselines: c.Past.Baselines,
		Sure: c.Phase != slurm.Prolog,
		Rule: gpu.WatchRule{
			Max: time.Duration(settle.Max), Flat: time.Duration(settle.Flat),
			SlackBytes: c.limits().Report, Expect: expect,
		}}
}

// Asks reports whether attribution needs the node's records: on clean GPUs it does not.
func (c Case) Asks() bool { return c.asks(c.Seen.Side) }

func (c Case) asks(side record.Side) bool { return !side.AtRest(c.Seen.Cards) }

// Doubts about everything in a scene.
const (
	twiceDoubt  = "Slurm does not say which run of the job this end is for, and an earlier one has just ended"
	insideDoubt = "this hook runs inside the job and sees only part of the node"
)

// twice is how long after a run's end a second epilog of it may come if Slurm does not say which run an epilog is for
// (slurm.TellsStart): those observed came at once. Until then a requeued job's end drains nothing.
const twice = 5 * time.Minute

func (c Case) Scene(now record.Side) compare.Input {
	s := compare.Input{Job: c.Job, Cards: c.Seen.Cards, Before: c.Past.Before, Now: now,
		Limits: c.limits(), Baselines: c.Past.Baselines, MPSUIDs: c.Config.NVIDIA.MPSUIDs}
	if c.InJob {
		s.Doubt = insideDoubt
	}
	if c.asks(now) {
		c.addRecords(&s)
	}
	return s
}

// Whole returns the input of the last samples with everything that the records contain.
func (c Case) Whole() compare.Input {
	s := c.Scene(c.Seen.Side)
	c.addRecords(&s)
	return s
}

func (c Case) addRecords(s *compare.Input) {
	node := cmp.Or(c.Node, &Node{})
	self := c.Self()
	s.Book = node.open(self, attribution.Now{
		At: s.Now.Snapshot.At, Epoch: c.Seen.Epoch, Beginning: c.Phase == slurm.Prolog, Idle: c.limits().Report,
		Proofs: node.Proofs,
	})
	s.Clients = compare.Clients(node.Runs, c.Seen.Epoch.Driver)
	if c.Phase == slurm.Epilog && self.Mistakable(node.Runs, c.Job, s.Now.Snapshot.At, twice) {
		s.RunDoubt = twiceDoubt
	}
	s.Unread = node.doubts(c.Job.ID, c.Seen.Cards)
	s.Shared, s.SharedUnknown = c.Sharing.Reasons()
}

// Self returns this run's record as far as it exists: at a start, what the hook has just found out about it.
func (c Case) Self() record.Run {
	run := c.Past.Run
	if c.Phase == slurm.Prolog {
		run = record.Run{Epoch: c.Seen.Epoch, Devices: c.Seen.Cards, Numbering: c.Seen.Origin}
	}
	run.Job = c.Job
	return run
}
