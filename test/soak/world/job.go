package world

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/slurm"
)

// Job is one run of a job on the node.
type Job struct {
	ID         slurm.JobID
	Het        slurm.JobID // the leader of its heterogeneous job, 0 for any other
	SLUID      slurm.SLUID
	UID        uint32
	Node       string // the node it runs on: this one, or the host's other
	Partition  string
	MPSPercent string
	Restarts   int
	Wall       time.Time // SLURM_JOB_START_TIME
	Cards      []*Card

	Live      bool // from its allocation until its processes are killed
	Allocated time.Duration
	Ended     time.Duration // when its processes were killed, 0 before
	Closed    time.Duration // when its last epilog was done, 0 before

	// NoProlog and NoEpilog are true where slurmd never runs the hook.
	NoProlog, NoEpilog bool
	twice              map[slurm.Context]bool
	hasty              bool // its cards are given away while its epilog runs: the node was set DOWN and resumed
	runs               time.Duration
	due                time.Duration // when it is to end, once it has begun
	over               func()        // what comes when it is over
}

// The nodes of a host on which two slurmd run.
const (
	ThisNode  = "n1"
	otherNode = "n2"
)

// HasGPUs reports whether Slurm gave the job any.
func (j *Job) HasGPUs() bool { return len(j.Cards) > 0 }

// Has reports whether Slurm gave the job a card.
func (j *Job) Has(c *Card) bool { return slices.Contains(j.Cards, c) }

// Told is what Slurm tells a hook of the job.
func (j *Job) Told(s Site, end slurm.Context) slurm.Job {
	job := slurm.Job{
		Context: end, ID: j.ID, HetJobID: j.Het, Node: j.Node, Partition: j.Partition, UID: j.UID, GID: j.UID, User: "user",
		Restarts: j.Restarts, MPSPercent: j.MPSPercent,
	}
	if end == slurm.Epilog {
		job.Restarts++
	}
	if s.SLUIDs {
		job.SLUID = j.SLUID
	}
	if s.StartTimes {
		job.Start = j.Wall
	}
	for _, c := range j.Cards {
		job.GPUIndexes = append(job.GPUIndexes, *c.Device.Minor)
	}
	return job
}

// mark is the id that tasks have in their environment: of each component of a heterogeneous job it is the leader's.
func (j *Job) mark() slurm.JobID {
	if j.Het != 0 {
		return j.Het
	}
	return j.ID
}

func (n *Node) newJob(cards ...*Card) *Job {
	n.nextID++
	j := &Job{ID: slurm.JobID(n.nextID), UID: 1001 + uint32(n.Rand.IntN(3)), Cards: cards, Node: ThisNode, Partition: "main"}
	switch n.Site.Sharing {
	case SharedByName:
		j.Partition = "shared"
	case SharedByMPS:
		j.MPSPercent = "50"
	}
	j.runs = n.between(time.Second, 20*time.Second)
	if n.oneIn(3) {
		j.runs = n.between(20*time.Second, 300*time.Second)
	}
	if n.Site.Disorder && len(cards) > 0 {
		j.NoProlog, j.NoEpilog = n.oneIn(10), n.oneIn(12)
		j.twice = map[slurm.Context]bool{slurm.Prolog: n.oneIn(12), slurm.Epilog: n.oneIn(10)}
		j.hasty = n.oneIn(20)
	}
	if n.oneIn(15) {
		j.Het = j.ID
		if n.nextID++; n.oneIn(2) {
			j.ID++ // the leader is on another node
		}
	}
	return j
}

// component is another component of a heterogeneous job, on the same node. It has the same mark: where records are
// missing no mark would tell whose a process is, so there each component has a node of its own.
func (n *Node) component(j *Job) {
	if n.Site.Disorder {
		return
	}
	cards := slices.DeleteFunc(n.free(), func(c *Card) bool { return j.Has(c) || c == n.Cards[0] })
	if len(cards) == 0 {
		return
	}
	o := n.newJob(cards[n.Rand.IntN(len(cards))])
	n.nextID = max(n.nextID, int(j.ID)+1)
	o.ID, o.Het, o.UID, o.over = j.ID+1, j.Het, j.UID, func() {}
	if n.oneIn(2) { // they end together, more or less
		o.runs = max(time.Second, j.runs+n.between(0, 4*time.Second)-2*time.Second)
	}
	n.allocate(o)
}

func (n *Node) requeued(old *Job) *Job {
	free := n.free()
	j := n.newJob(slices.DeleteFunc(slices.Clone(old.Cards), func(c *Card) bool { return !slices.Contains(free, c) })...)
	j.ID, j.Het, j.UID, j.Restarts = old.ID, old.Het, old.UID, old.Restarts+1
	return j
}

// allocate gives a job its cards, and takes it through its life.
func (n *Node) allocate(j *Job) {
	j.Live, j.Allocated = true, n.Now
	j.SLUID = slurm.SLUID(fmt.Sprintf("sAAAAAAAA%05d", len(n.Jobs)))
	j.Wall = time.Unix(1_700_000_000+int64(n.Now/time.Second), 0)
	n.Jobs = append(n.Jobs, j)
	n.tell("job %d (of %d, uid %d) is allocated %d GPUs", j.ID, j.mark(), j.UID, len(j.Cards))
	if j.Het == j.ID && j.HasGPUs() && j.Restarts == 0 && n.oneIn(2) {
		n.After(n.between(0, 50*time.Millisecond), func() { n.component(j) })
	}
	if !j.HasGPUs() || j.NoProlog {
		n.After(n.between(20*time.Millisecond, 200*time.Millisecond), func() { n.begin(j) })
		return
	}
	n.hook(j, slurm.Prolog, 0, 2*time.Second, func() {
		n.After(n.between(10*time.Millisecond, 500*time.Millisecond), func() { n.begin(j) })
	})
}

// hook runs a job's hook, or hooks that run twice with a pause in between, and then lets the story go on.
func (n *Node) hook(j *Job, end slurm.Context, least, most time.Duration, then func()) {
	n.hooks(j, end, func() {
		if !j.twice[end] {
			then()
			return
		}
		n.After(n.between(least, most), func() { n.hooks(j, end, then) })
	})
}

func (n *Node) begin(j *Job) {
	n.tell("job %d begins", j.ID)
	j.due = n.Now + j.runs
	n.After(j.runs, func() { n.finish(j) })
	n.act(j)
}

// finish ends a job: its processes are killed, then its epilog runs.
func (n *Node) finish(j *Job) {
	n.tell("job %d ends", j.ID)
	j.Live, j.Ended = false, n.Now
	for _, there := range n.Lodgers {
		if there.Live && there.SLUID == j.SLUID {
			n.leaveLodgings(there)
		}
	}
	for _, p := range slices.Clone(n.processes) {
		if p.Job == j {
			n.kill(p)
		}
	}
	if !j.HasGPUs() || j.NoEpilog {
		j.Closed = n.Now
		n.After(n.between(100*time.Millisecond, 5*time.Second), j.over)
		return
	}
	n.completing++
	done := func() {
		n.completing--
		j.Closed = n.Now
		if !j.hasty {
			j.over()
		}
	}
	if j.hasty {
		n.After(n.between(100*time.Millisecond, 6*time.Second), j.over)
	}
	n.After(n.between(20*time.Millisecond, time.Second), func() {
		// if it runs twice, the message that it was done got lost: the node is completing until it comes again
		n.hook(j, slurm.Epilog, 120*time.Second, 200*time.Second, done)
	})
}

// kill is what Slurm does to a job's process at the job's end, where it can.
func (n *Node) kill(p *Process) {
	switch {
	case p.worker && p.survives:
		p.Leaves = p.parent.Dead || !p.parent.survives
	case p.survives && p.lingers > 0:
		p.Leaves = p.lingers <= longestGoodbye
		p.Exiting = p.State == "D"
		n.endAt(p, n.Now+p.lingers)
	case !p.survives:
		p.Leaves = true
		n.endAt(p, n.Now+n.between(0, 20*time.Millisecond))
	}
}

// free are the cards that no job has, or that jobs share by right.
func (n *Node) free() []*Card {
	var free []*Card
	for _, c := range n.Cards {
		taken := slices.ContainsFunc(n.Jobs, func(j *Job) bool { return j.Has(c) && (j.Live || j.Closed == 0) })
		if !c.Outside && (n.Site.Sharing != Exclusive || !taken) {
			free = append(free, c)
		}
	}
	return free
}
