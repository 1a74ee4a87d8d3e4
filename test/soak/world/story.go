package world

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/slurm"
)

// open sets the story up: the node's services, two or three jobs after one another on the first card, and others
// beside them.
func (n *Node) open() {
	n.startServices()
	jobs := 2 + n.pick(70, 30)
	n.After(n.between(0, time.Second), func() { n.chain(jobs, nil) })
	for range n.pick(40, 35, 25) {
		n.After(n.between(0, 60*time.Second), n.neighbour)
	}
	if last := n.Cards[len(n.Cards)-1]; last.Outside {
		n.After(n.between(0, 60*time.Second), func() { n.stranger(last, nil) })
		if n.Site.TwoNodes {
			n.After(n.between(0, 60*time.Second), func() { n.lodge(last) })
		}
	}
	for range n.pick(85, 10, 5) {
		n.After(n.between(0, 200*time.Second), n.setClock)
	}
	n.Errors.draw(n)
	if n.oneIn(25) {
		n.After(n.between(0, 100*time.Second), n.reloadUnderJobs)
	}
	if n.oneIn(6) {
		j := n.newJob()
		j.runs, j.over = n.between(20*time.Second, 400*time.Second), func() {}
		n.After(n.between(0, 10*time.Second), func() { n.allocate(j) })
	}
}

// lodge runs a job of the host's other node, now and then one that runs on this node as well.
func (n *Node) lodge(c *Card) {
	j := n.newJob(c)
	j.Node, j.Live, j.Allocated = otherNode, true, n.Now
	j.SLUID = slurm.SLUID(fmt.Sprintf("sBBBBBBBB%05d", len(n.Lodgers)))
	if live := n.live(); len(live) > 0 && n.oneIn(2) {
		here := live[n.Rand.IntN(len(live))]
		j.ID, j.UID, j.SLUID, j.runs = here.ID, here.UID, here.SLUID, Forever // they end together
	}
	n.Lodgers = append(n.Lodgers, j)
	n.tell("job %d of the other node begins", j.ID)
	n.hold(n.spawn(j, "python"), c, n.size())
	if j.runs != Forever {
		n.After(j.runs, func() { n.leaveLodgings(j) })
	}
}

// leaveLodgings ends a job of the other node.
func (n *Node) leaveLodgings(j *Job) {
	n.tell("job %d of the other node ends", j.ID)
	j.Live, j.Ended = false, n.Now
	n.endAll(func(p *Process) bool { return p.Job == j })
}

func (n *Node) endAll(which func(*Process) bool) {
	for _, p := range slices.Clone(n.processes) {
		if which(p) {
			n.end(p)
		}
	}
}

// live are the jobs that have not ended.
func (n *Node) live() []*Job {
	return slices.DeleteFunc(slices.Clone(n.Jobs), func(j *Job) bool { return !j.Live })
}

// chain runs jobs after one another on the first card; a node that is completing takes none.
func (n *Node) chain(left int, last *Job) {
	if left == 0 {
		return
	}
	hasty := last != nil && last.hasty
	if !hasty && (n.completing > 0 || !slices.Contains(n.free(), n.Cards[0])) {
		n.After(n.between(200*time.Millisecond, 2*time.Second), func() { n.chain(left, last) })
		return
	}
	var j *Job
	if last != nil && !hasty && n.oneIn(8) {
		j = n.requeued(last)
	} else {
		j = n.newJob(n.cards()...)
	}
	j.over = func() {
		wait := n.interlude()
		n.After(wait, func() { n.chain(left-1, j) })
	}
	n.allocate(j)
}

// cards are the first and, now and then, whichever others are free.
func (n *Node) cards() []*Card {
	cards := []*Card{n.Cards[0]}
	for _, c := range n.free() {
		if c != n.Cards[0] && n.oneIn(4) {
			cards = append(cards, c)
		}
	}
	return cards
}

// neighbour is a job on other cards, or on one that it shares.
func (n *Node) neighbour() {
	if n.completing > 0 {
		n.After(n.between(time.Second, 20*time.Second), n.neighbour)
		return
	}
	free := n.free()
	if n.Site.Sharing == Exclusive {
		free = slices.DeleteFunc(free, func(c *Card) bool { return c == n.Cards[0] })
	}
	if len(free) == 0 {
		return
	}
	j := n.newJob(free[n.Rand.IntN(len(free))])
	j.over = func() {}
	n.allocate(j)
}

// interlude is what happens on the node between two jobs; it returns how long it takes.
func (n *Node) interlude() time.Duration {
	wait := n.between(50*time.Millisecond, 20*time.Second)
	idle := !slices.ContainsFunc(n.Jobs, func(j *Job) bool { return j.Live || j.Closed == 0 })
	often := 14
	if slices.ContainsFunc(n.Jobs, func(j *Job) bool { return j.NoEpilog }) {
		often = 3 // what kept the epilog from running may have been the driver, or be mended by a boot
	}
	renewed := idle && n.oneIn(often) && n.Watching == 0
	if renewed {
		n.reload()
	} else if n.oneIn(5) {
		n.cleanUp()
	}
	if renewed && n.oneIn(2) || n.oneIn(14) {
		n.After(n.between(0, wait/2), func() { n.stranger(n.Cards[0], nil) })
	}
	return wait
}

// reload takes the driver away from everybody and loads it again, or boots the node.
func (n *Node) reload() {
	n.unload(func(*Process) bool { return true })
	n.newEpoch()
	n.dead = nil
	if n.booted == n.Now || n.oneIn(2) {
		n.lastPID = 900 + n.Rand.IntN(2000)
	}
	n.tell("the driver is loaded again")
	n.startServices()
}

// unload takes the driver away from processes, and all memory with it.
func (n *Node) unload(from func(*Process) bool) {
	n.endAll(from)
	for _, c := range n.Cards {
		c.chunks, c.Served = nil, false
		c.mend(n.Now)
	}
}

// reloadUnderJobs loads the driver again while jobs run: an administrator ends every process that has it open first.
// The jobs go on.
func (n *Node) reloadUnderJobs() {
	if n.Watching > 0 {
		n.After(time.Second, n.reloadUnderJobs)
		return
	}
	n.unload((*Process).Opened)
	n.Loaded, n.boots = n.Now, n.boots+1
	n.Epoch.Module = fmt.Sprint("load ", n.boots)
	n.tell("the driver is loaded again, while jobs run")
	n.startServices()
}

// cleanUp is an administrator who ends what jobs left behind.
func (n *Node) cleanUp() {
	n.tell("leftovers are cleaned up")
	n.endAll(func(p *Process) bool { return p.Job != nil && !p.Job.Live })
}
