package world

import (
	"slices"
	"time"
)

// Names that decide how the driver lists a process.
const (
	nameX         = "Xorg"
	nameMPSClient = "mps-client"
	// MPSProgram is what the kernel keeps of the names of MPS's daemon and server.
	MPSProgram = "nvidia-cuda-mps"
)

// startServices starts what runs on the node whoever has its cards.
func (n *Node) startServices() {
	if n.oneIn(3) {
		n.service("nvidia-persistenced", func(p *Process) {
			for _, c := range n.Cards {
				p.opens(c)
			}
		})
	}
	if n.oneIn(5) {
		n.monitor()
	}
	if n.oneIn(8) {
		n.service(nameX, func(p *Process) { n.hold(p, n.Cards[0], uint64(2+2*n.Rand.IntN(28))*MiB) })
	}
	if n.oneIn(12) { // memory that no figure shows
		n.service("fabric", func(p *Process) {
			p.opens(n.Cards[0])
			n.chunk(p, n.Cards[0], Managed, uint64(4+2*n.Rand.IntN(22))*MiB)
		})
	}
	if n.oneIn(40) {
		n.service("inference", func(p *Process) { n.hold(p, n.Cards[0], n.size()) })
	}
	if n.oneIn(40) {
		n.service("recorder", func(p *Process) { n.sway(p, n.Cards[0]) })
	}
}

func (n *Node) monitor() {
	n.service("dcgm", func(p *Process) {
		for _, c := range n.Cards {
			n.hold(p, c, uint64(2+2*n.Rand.IntN(26))*MiB)
		}
	})
}

// service starts one of the node's own. It may be restarted at any time.
func (n *Node) service(name string, set func(*Process)) {
	p := n.newProcess(name, [...]uint32{0, 997}[n.pick(80, 20)])
	p.OfNode = true
	if p.UID != 0 || !n.oneIn(8) { // root may have started it by hand
		p.Service = name + ".service"
	}
	set(p)
	for _, c := range n.Cards {
		c.Served = c.Served || n.Shows(c)
	}
	if n.oneIn(6) {
		n.After(n.between(0, 300*time.Second), func() {
			if !p.Dead {
				n.end(p)
				n.After(n.between(100*time.Millisecond, 5*time.Second), func() { n.service(name, set) })
			}
		})
	}
}

// stranger is somebody from outside Slurm on a card: a login, a container, a job of cron's, or the administrator.
func (n *Node) stranger(c *Card, j *Job) {
	uid := uint32(1009)
	switch {
	case j != nil && n.percent(40):
		uid = j.UID
	case n.percent(30):
		uid = 0
	}
	p := n.newProcess([...]string{"python", "a) R (b", "sh"}[n.Rand.IntN(3)], uid)
	p.OfNode = uid == 0
	if n.oneIn(4) {
		p.Container, p.OtherPIDs = "docker-1", true
	}
	if n.oneIn(8) && len(n.Jobs) > 0 { // anybody may claim to be a job's
		p.Env = n.Jobs[n.Rand.IntN(len(n.Jobs))].ID
	}
	bytes := n.size()
	switch n.pick(60, 15, 15, 10, 8) {
	case 0:
		n.hold(p, c, bytes)
	case 1:
		n.fork(p, c, bytes)
		return
	case 2:
		n.export(p, c, bytes, nil)
		return
	case 3:
		ch := n.hold(p, c, bytes)
		ch.waves(n.between(50*time.Millisecond, 3*time.Second))
	case 4:
		n.sway(p, c)
	}
	if n.oneIn(2) {
		n.endAt(p, n.Now+n.between(100*time.Millisecond, 60*time.Second))
	}
}

// fork leaves memory with a child while its maker dies: the driver lists the dead PID.
func (n *Node) fork(p *Process, c *Card, bytes uint64) *Process {
	ch := n.hold(p, c, bytes)
	child := n.copy(p)
	n.share(ch, child)
	n.After(n.between(10*time.Millisecond, 3*time.Second), func() {
		n.end(p)
		if n.Site.ReusesPIDs && n.oneIn(3) {
			n.After(n.between(0, 20*time.Second), func() { n.reuse(p.PID) })
		}
	})
	return child
}

// reuse starts a process that has no GPU open, under a PID of which the driver still lists memory.
func (n *Node) reuse(pid int) {
	if n.Process(pid) != nil {
		return
	}
	p := &Process{PID: pid, Start: n.Now, End: Forever, UID: 1009, Name: "sleep", State: "S"}
	n.processes = append(n.processes, p)
	n.dead = slices.DeleteFunc(n.dead, func(free int) bool { return free == pid })
	n.tell("process %d (sleep, uid 1009) begins", pid)
	n.endAt(p, n.Now+n.between(time.Second, 300*time.Second))
}

// export leaves memory with whoever got its handle: the driver lists nobody.
func (n *Node) export(p *Process, c *Card, bytes uint64, to *Process) *Process {
	n.hold(p, c, uint64(2+2*n.Rand.IntN(200))*MiB)
	ch := n.chunk(p, c, Exported, bytes)
	if to == nil {
		to = n.copy(p)
	}
	n.share(ch, to)
	n.After(n.between(10*time.Millisecond, 3*time.Second), func() { n.end(p) })
	return to
}

// copy is a process's child, before it opens anything of its own.
func (n *Node) copy(p *Process) *Process {
	q := n.newProcess(p.Name, p.UID)
	q.Cgroup, q.Env, q.Container, q.OtherPIDs = p.Cgroup, p.Env, p.Container, p.OtherPIDs
	q.Job, q.OfNode, q.parent, q.survives = p.Job, p.OfNode, p, p.survives
	return q
}

// size draws an amount of memory, often one around which judgement turns.
func (n *Node) size() uint64 {
	around := [...]uint64{2, 24, 30, 32, 34, 40, 48, 56, 62, 64, 66, 80, 128, 256, 500, 510, 512, 514, 530, 600}
	switch n.pick(45, 30, 22, 3) {
	case 0:
		return around[n.Rand.IntN(len(around))] * MiB
	case 1:
		return uint64(64+2*n.Rand.IntN(1000)) * MiB
	case 2:
		return uint64(2048+2*n.Rand.IntN(20000)) * MiB
	}
	return total
}
