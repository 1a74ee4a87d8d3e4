package world

import (
	"slices"
	"time"

	"bookend/internal/slurm"
)

// act is what a job does on the node while it runs: its work, what it will leave behind, and who comes by meanwhile.
func (n *Node) act(j *Job) {
	for _, c := range j.Cards {
		for range n.pick(25, 50, 25) {
			n.sometime(j, func() { n.work(j, c) })
		}
		for range n.pick(55, 36, 9) {
			n.sometime(j, func() { n.leave(j, c) })
		}
		if n.oneIn(12) {
			n.sometime(j, func() { n.stranger(c, j) })
		}
	}
	if n.oneIn(10) || !j.HasGPUs() && n.oneIn(2) {
		n.sometime(j, func() { n.trespass(j) })
	}
	if n.oneIn(400) {
		n.sometime(j, func() { n.crowd(j) })
	}
}

// sometime lets something happen while a job runs.
func (n *Node) sometime(j *Job, do func()) {
	at := n.between(5*time.Millisecond, 2*time.Second)
	if n.oneIn(2) {
		at = n.between(5*time.Millisecond, max(10*time.Millisecond, j.runs-10*time.Millisecond))
	}
	n.After(at, func() {
		if j.Live {
			do()
		}
	})
}

// work is an honest process, which its job's end will end.
func (n *Node) work(j *Job, c *Card) {
	p := n.spawn(j, "python")
	bytes := n.size()
	switch n.pick(60, 15, 15, 10) {
	case 0:
		n.hold(p, c, bytes)
	case 1:
		ch := n.hold(p, c, bytes)
		ch.waves(n.between(50*time.Millisecond, 3*time.Second))
	case 2: // workers, which notice that their parent is gone
		ch := n.hold(p, c, bytes)
		for range 1 + n.Rand.IntN(2) {
			w := n.copy(p)
			w.worker, w.survives = true, n.Site.Tracking == Linuxproc
			n.share(ch, w)
		}
	case 3:
		n.export(p, c, bytes, nil)
	}
	if n.Site.Sharing == Gang && n.oneIn(2) {
		p.State = "T" // its job's turn is over
	}
	if n.oneIn(3) {
		n.After(n.between(0, j.runs), func() { n.end(p) })
	}
}

func (n *Node) leave(j *Job, c *Card) {
	p := n.spawn(j, "python")
	n.disguise(p)
	bytes := n.size()
	switch n.pick(30, 20, 15, 8, 8, 6, 4, 4, 5, 4, 6) {
	case 0:
		n.outlive(p)
		n.hold(p, c, bytes)
		n.character(p)
	case 10:
		n.outlive(p)
		n.fidget(n.hold(p, c, bytes))
	case 1:
		n.outlive(n.fork(p, c, bytes))
	case 2:
		n.outlive(n.export(p, c, bytes, nil))
	case 3:
		n.passOn(p, c, bytes)
	case 4:
		n.imported(p, c, bytes)
	case 5: // pinned for a device that never lets go
		n.hold(p, c, 256*MiB)
		n.chunk(p, c, Pinned, bytes)
	case 6:
		n.outlive(p)
		n.hold(p, c, 400*MiB)
		n.chunk(p, c, Managed, bytes)
	case 7:
		n.daemon(j, p, c)
	case 8: // unkillable: still in its job's cgroup when the epilog runs
		p.State, p.survives, p.Exiting = "D", true, n.oneIn(3)
		p.lingers = [...]time.Duration{0, n.between(100*time.Millisecond, longestGoodbye)}[n.pick(50, 50)]
		n.hold(p, c, bytes)
	case 9:
		n.outlive(p)
		n.sway(p, c)
	}
}

// inventedID is a job's that there never was.
const inventedID = 424242

// disguise gives a process marks that anybody can give to his own: a name, a program's path, a job's id in its
// environment.
func (n *Node) disguise(p *Process) {
	if n.oneIn(12) {
		p.Name = MPSProgram
		if n.oneIn(2) {
			p.Exe = "/home/user/nvidia-cuda-mps-server"
		}
	}
	if n.oneIn(12) && !n.Site.Disorder && p.Job.HasGPUs() {
		p.Env = inventedID
	}
}

// mostFidget is the most by which memory moves that only pretends to be given back.
const mostFidget = 128 * MiB

// fidget lets memory move a little for ever: it falls by 3 MiB at each look, down to slack less, or goes up and down.
func (n *Node) fidget(ch *Chunk) {
	ch.slack = min(ch.Bytes/4, mostFidget)
	if n.oneIn(2) {
		ch.falls = 3 * MiB
		return
	}
	ch.slack = min(ch.slack, 4*MiB)
	ch.wave = n.between(100*time.Millisecond, time.Second)
}

// sway makes a process take and give back 64 MiB every 0.7 s: the GPU never settles.
func (n *Node) sway(p *Process, c *Card) {
	ch := n.hold(p, c, 128*MiB)
	ch.waves(700 * time.Millisecond)
}

// crowd is hundreds of processes with the driver open, some of them with memory: more than lists have room for.
func (n *Node) crowd(j *Job) {
	c := n.Cards[n.Rand.IntN(len(n.Cards))]
	own, stays, listed := n.oneIn(2) && j.Has(c), n.oneIn(2), n.oneIn(2)
	for range 300 + n.Rand.IntN(300) {
		var p *Process
		if own {
			p = n.spawn(j, "worker")
		} else {
			p = n.newProcess("notebook", 1009)
			n.endAt(p, n.Now+n.between(10*time.Second, 300*time.Second))
		}
		if own && stays {
			n.outlive(p)
		}
		if p.Control = true; listed {
			n.hold(p, c, 2*MiB)
		}
	}
}

// outlive takes a process out of its job's reach, and draws how long it goes on.
func (n *Node) outlive(p *Process) {
	switch n.pick(60, 20, 20) {
	case 1:
		p.lingers = n.between(50*time.Millisecond, longestGoodbye)
	case 2:
		p.lingers = n.between(longestGoodbye, 15*time.Second)
	}
	n.survive(p)
}

// character makes one of the stranger processes of an orphan.
func (n *Node) character(p *Process) {
	switch n.pick(52, 15, 8, 9, 8, 8) {
	case 5: // it waits for a child of vfork, or for a server of files that is dead
		p.State = "D"
	case 1:
		p.State = "T"
	case 2:
		p.State = "Z" // its first thread has ended, others have not
	case 3:
		p.Container, p.OtherPIDs, p.Cgroup = "docker-2", true, slurm.Owner{}
	case 4:
		p.Name = "a) R (b"
	}
}

// passOn hands memory to a process of another live job of the user's, where there is one. Of a job of the host's other
// node no hook reads a record.
func (n *Node) passOn(p *Process, c *Card, bytes uint64) {
	i := slices.IndexFunc(n.processes, func(q *Process) bool {
		return q.Job != nil && q.Job != p.Job && q.Job.Live && q.Job.Node == p.Job.Node && q.UID == p.UID
	})
	if i < 0 {
		n.outlive(n.export(p, c, bytes, nil))
		return
	}
	n.export(p, c, bytes, n.processes[i])
}

// imported shares memory with a process that outlives its maker, and is listed for all of it.
func (n *Node) imported(p *Process, c *Card, bytes uint64) {
	n.hold(p, c, 400*MiB)
	ch := n.chunk(p, c, Imported, bytes)
	q := n.spawn(p.Job, "importer")
	n.outlive(q)
	n.hold(q, c, 400*MiB)
	n.share(ch, q)
	if n.oneIn(2) {
		n.After(n.between(0, 3*time.Second), func() { n.end(p) })
	}
}

// daemon is a user's own MPS, which nobody stops: its server keeps some memory, its daemon the card open.
func (n *Node) daemon(j *Job, p *Process, c *Card) {
	p.Name, p.Exe = MPSProgram, "/usr/bin/nvidia-cuda-mps-server"
	n.outlive(p)
	n.hold(p, c, 58*MiB)
	d := n.copy(p)
	d.Exe, d.lingers = "/usr/bin/nvidia-cuda-mps-control", p.lingers
	d.opens(c)
	n.hold(n.spawn(j, nameMPSClient), c, 512*MiB)
}

// trespass puts a process on a card that its job was not given.
func (n *Node) trespass(j *Job) {
	for _, i := range n.Rand.Perm(len(n.Cards)) {
		c := n.Cards[i]
		if j.Has(c) {
			continue
		}
		p := n.spawn(j, "lost")
		if n.oneIn(3) {
			n.contain(p)
		}
		if n.oneIn(4) {
			n.outlive(p)
		}
		switch n.pick(70, 15, 15) {
		case 0:
			n.hold(p, c, n.size())
		case 1:
			n.sway(p, c)
		case 2:
			n.export(p, c, n.size(), nil)
		}
		return
	}
}
