package world

import (
	"slices"
	"time"

	"bookend/internal/slurm"
)

// Process is one process of the node. What /proc says of it stands beside what is true.
type Process struct {
	PID   int
	Start time.Duration
	End   time.Duration // when it ends or ended, Forever while nothing ends it
	Dead  bool

	UID       uint32
	Name      string
	State     string
	Cgroup    slurm.Owner
	Env       slurm.JobID
	Service   string
	Container string
	Exe       string
	OtherPIDs bool
	Minors    []int // of /dev/nvidiaN
	Control   bool  // /dev/nvidiactl
	UVM       bool
	// Exiting is the kernel's PF_EXITING: the process ends, or hangs while it does. No state says that.
	Exiting bool

	Job *Job // whose it truly is, nil for nobody's
	// OfNode is true for what belongs to the node: services, and what its administrator runs as root.
	OfNode bool
	// Leaves is true where it goes away by itself within the 3.4 s after its job that were measured of workers.
	Leaves bool

	survives bool          // its job's end does not reach it
	lingers  time.Duration // after its job's end, 0 for ever
	parent   *Process
	worker   bool // ends some 3 s after its parent
}

// longestGoodbye is how long after their parent workers were measured to go, with some reserve.
const longestGoodbye = 3400 * time.Millisecond

// AliveAt reports whether a process lived at a moment of the past or present.
func (p *Process) AliveAt(at time.Duration) bool { return p.Start <= at && (!p.Dead || at < p.End) }

// Opened reports a process that has had something of the driver's open.
func (p *Process) Opened() bool { return p.Control || p.UVM || len(p.Minors) > 0 }

// Stays reports a process that nothing will end.
func (p *Process) Stays() bool { return p.End == Forever }

// Started is its start time as /proc has it: CLOCK_BOOTTIME, to a tick of 10 ms.
func (n *Node) Started(p *Process) time.Duration {
	const tick = 10 * time.Millisecond
	return n.Boottime(p.Start) / tick * tick
}

// Process finds a living process.
func (n *Node) Process(pid int) *Process {
	for _, p := range n.processes {
		if p.PID == pid {
			return p
		}
	}
	return nil
}

// Processes are those that live.
func (n *Node) Processes() []*Process { return n.processes }

func (n *Node) newProcess(name string, uid uint32) *Process {
	p := &Process{PID: n.newPID(), Start: n.Now, End: Forever, UID: uid, Name: name, State: "S"}
	n.processes = append(n.processes, p)
	return p
}

// newPID counts up. Where PIDs are few, one that is free may come again, but none that the driver still lists: the
// counter would have to go round in the seconds of a teardown, or while a dead process's memory is held.
func (n *Node) newPID() int {
	if n.Site.ReusesPIDs && len(n.dead) > 0 && n.percent(75) {
		i := n.Rand.IntN(len(n.dead))
		if pid := n.dead[i]; !n.listed(pid) {
			n.dead = slices.Delete(n.dead, i, i+1)
			return pid
		}
	}
	n.lastPID += 1 + n.Rand.IntN(20)
	return n.lastPID
}

func (n *Node) spawn(j *Job, name string) *Process {
	p := n.newProcess(name, j.UID)
	p.Job = j
	switch n.Site.Tracking {
	case CgroupID:
		p.Cgroup = slurm.Owner{ID: j.ID, Step: "0"}
	case CgroupSLUID:
		p.Cgroup = slurm.Owner{SLUID: j.SLUID, Step: "0"}
	}
	if n.Site.TwoNodes && p.Cgroup.Found() {
		p.Cgroup.Node = j.Node
	}
	if n.Site.Disorder || !j.HasGPUs() || n.percent(75) {
		p.Env = j.mark()
	}
	if n.oneIn(16) {
		n.contain(p)
	}
	return p
}

// contain puts a job's process into a container, where users and PIDs are others than outside. Most runtimes take it
// out of its job's cgroup as well, and pass no environment.
func (n *Node) contain(p *Process) {
	p.OtherPIDs = !n.oneIn(3)
	if !p.OtherPIDs || n.oneIn(2) {
		p.Container = "docker-3"
	}
	p.UID = [...]uint32{p.UID, 0, 231072, 1001 + uint32(n.Rand.IntN(3))}[n.Rand.IntN(4)]
	if n.percent(80) {
		p.Cgroup = slurm.Owner{}
	}
	if !n.Site.Disorder && p.Job.HasGPUs() && n.percent(75) {
		p.Env = 0
	}
}

// survive takes a process out of its job's reach. Without cgroups it leaves the process tree. With them Slurm kills
// whatever is in the job's (all four ways of leaving the tree were tried), so that it was either never there, or moved
// out, or stuck in the kernel. How often is which nobody has counted. In users' reports children of frameworks come far
// before containers outside tracking, and those before processes in state D: the shares follow that order, but "far" is
// taken for less than twice, for the more were moved out, the more could a recorder have seen.
func (n *Node) survive(p *Process) {
	p.survives = true
	if !p.Cgroup.Found() {
		return
	}
	out := func() { p.Cgroup = slurm.Owner{} }
	switch n.pick(30, 55, 15) {
	case 0: // a daemon outside started it: dockerd, sshd without pam_slurm_adopt, systemd --user, cron
		out()
	case 1: // its job started it; root, a runtime or systemd moved it to a cgroup of its own, some time before the end
		n.After(n.between(0, max(0, p.Job.due-n.Now-1)), out)
	case 2: // there still, killed in vain
	}
}

// endAt sets the moment at which a process ends.
func (n *Node) endAt(p *Process, at time.Duration) {
	if p.Dead || at >= p.End {
		return
	}
	p.End = at
	n.agenda.push(at, func() {
		if p.End == at {
			n.end(p)
		}
	})
}

func (n *Node) end(p *Process) {
	if p.Dead {
		return
	}
	p.Dead, p.End = true, n.Now
	if p.Control {
		n.Departed = n.Now
	}
	n.tell("process %d (%s) ends", p.PID, p.Name)
	if i := slices.Index(n.processes, p); i >= 0 {
		n.processes = slices.Delete(n.processes, i, i+1)
	}
	if n.Site.ReusesPIDs {
		n.dead = append(n.dead, p.PID)
	}
	for _, q := range n.processes {
		if q.worker && q.parent == p {
			n.endAt(q, n.Now+n.between(2600*time.Millisecond, 3200*time.Millisecond))
		}
	}
	for _, c := range n.Cards {
		c.released(n, p)
	}
}

// opens gives a process the card and what comes with it.
func (p *Process) opens(c *Card) {
	if !slices.Contains(p.Minors, *c.Device.Minor) {
		p.Minors = append(p.Minors, *c.Device.Minor)
		slices.Sort(p.Minors)
	}
	p.Control, p.UVM = true, true
}
