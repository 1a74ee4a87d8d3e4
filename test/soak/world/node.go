// Package world is a model of a GPU node under Slurm: cards whose memory outlives and precedes its processes in the
// ways that were measured on real ones, jobs, and everybody else who may be on a card. It knows what is true; what
// Bookend's code makes of the readings is judged against that. So that the judge and the judged share no mistake, it
// imports none of the packages that judge.
package world

import (
	"fmt"
	"math/rand/v2"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Forever is the end of a process that nobody ends.
const Forever = time.Duration(1 << 62)

// MiB is 2^20 bytes.
const MiB = uint64(1 << 20)

// Hooks run a job's prolog or epilog, and say when it is done.
type Hooks func(j *Job, end slurm.Context, done func())

// Node is one node with everything on it. Its time never goes back; CLOCK_BOOTTIME, which begins anew at a boot, is
// Boottime.
type Node struct {
	Rand  *rand.Rand
	Now   time.Duration
	Site  Site
	Cards []*Card
	Jobs  []*Job
	// Lodgers are the jobs of the host's other node.
	Lodgers []*Job
	Epoch   gpu.Epoch
	// Loaded is when the epoch began.
	Loaded time.Duration
	// Watching counts the hooks that have the driver open: so long nobody can unload it.
	Watching int
	// Began is when the node booted last.
	Began time.Duration
	// Departed is when somebody ended last who had the driver open.
	Departed time.Duration
	// Errors are what the driver logs, and the kernel's log.
	Errors Errors
	// Tell is told the story as it happens, nil where nobody listens.
	Tell func(at time.Duration, text string)

	skew       time.Duration // by which the wall clock is wrong
	agenda     agenda
	hooks      Hooks
	booted     time.Duration
	boots      int
	processes  []*Process // those that live
	lastPID    int
	dead       []int // PIDs to be used again
	completing int   // epilogs under way, or awaited: no job is allocated meanwhile
	nextID     int
}

// Card is one GPU.
type Card struct {
	Device gpu.Device
	Total  uint64
	Lost   time.Duration // when it fell off the bus, Forever when it does not
	// Changed is when what lies on it, or who is listed for that, changed last.
	Changed time.Duration
	// Outside is true where Slurm does not have it: no job is given it, and anybody may use it.
	Outside bool
	// Served is true once a service has had it open in this epoch.
	Served bool
	// Faults are the times in which it is not fit for use.
	Faults []Fault
	chunks []*Chunk
}

// total is what an H200 has.
const total = 143771 * MiB

// New builds pair n of a seed: the same numbers give the same story.
func New(seed, n uint64, hooks Hooks) *Node {
	node := &Node{Rand: rand.New(rand.NewPCG(seed, n)), hooks: hooks, nextID: 100}
	node.Errors = newErrors(seed, n)
	node.lastPID = 1000 + node.Rand.IntN(30000)
	node.Now = time.Duration(1000+node.Rand.IntN(100000)) * 10 * time.Millisecond
	node.newEpoch()
	node.Site = drawSite(node.Rand)
	for i := range 1 + node.pick(45, 30, 15, 10) {
		node.Cards = append(node.Cards, node.card(i))
	}
	if last := len(node.Cards) - 1; last > 0 {
		node.Cards[last].Outside = node.oneIn(12)
	}
	return node
}

var (
	ids    = [...]gpu.ID{"GPU-0", "GPU-1", "GPU-2", "GPU-3"}
	buses  = [...]gpu.BusID{"0000:10:00.0", "0000:20:00.0", "0000:30:00.0", "0000:40:00.0"}
	minors = [...]int{0, 1, 2, 3}

	renders = [...]int{128, 129, 130, 131} // of AMD's
)

func (n *Node) card(i int) *Card {
	c := &Card{Total: total, Lost: Forever, Device: gpu.Device{ID: ids[i], BusID: buses[i], Minor: &minors[i], Vendor: "nvidia"}}
	if n.Site.AMD {
		c.Device.Minor, c.Device.Vendor = &renders[i], "amd"
	}
	if n.Site.MIG {
		c.Device.ID, c.Device.Parent = "MIG-"+ids[i], ids[i]
	}
	if n.oneIn(400) {
		c.Lost = n.Now + n.between(0, 200*time.Second)
	}
	return c
}

// Play lets the story happen, to its end.
func (n *Node) Play() {
	n.tell("%s", n.Site)
	n.open()
	for len(n.agenda) > 0 {
		e := n.agenda.pop()
		n.Now = max(n.Now, e.at)
		e.do()
	}
}

// After lets something happen after a while.
func (n *Node) After(d time.Duration, do func()) { n.agenda.push(n.Now+max(0, d), do) }

// Wall is what the node's clock shows now. An administrator or a time server may set it, forwards and backwards.
func (n *Node) Wall() time.Time { return time.Unix(1_700_000_000, 0).Add(n.Now + n.skew) }

// setClock moves the wall clock; CLOCK_BOOTTIME does not follow.
func (n *Node) setClock() {
	steps := [...]time.Duration{30 * time.Second, -30 * time.Second, 2 * time.Hour, -2 * time.Hour, 91 * 24 * time.Hour}
	n.skew += steps[n.Rand.IntN(len(steps))]
	n.tell("the wall clock is set: %v", n.skew)
}

// Boottime is a moment as CLOCK_BOOTTIME.
func (n *Node) Boottime(at time.Duration) time.Duration { return at - n.booted }

func (n *Node) newEpoch() {
	n.boots, n.Loaded = n.boots+1, n.Now
	if n.boots == 1 || n.oneIn(2) {
		n.Began, n.booted = n.Now, n.Now-n.between(10*time.Second, 1000*time.Second)
		n.Errors.seq, n.Errors.lines = 0, nil
	}
	n.Epoch = gpu.Epoch{Boot: fmt.Sprint("boot ", n.booted), Driver: "580.159.04", Module: fmt.Sprint("load ", n.boots)}
}

func (n *Node) tell(format string, args ...any) {
	if n.Tell != nil {
		n.Tell(n.Boottime(n.Now), fmt.Sprintf(format, args...))
	}
}

func (n *Node) oneIn(many int) bool { return n.Rand.IntN(many) == 0 }

// percent is true in so many draws of a hundred.
func (n *Node) percent(p int) bool { return n.Rand.IntN(100) < p }

func (n *Node) pick(weights ...int) int { return pick(n.Rand, weights...) }

func pick(r *rand.Rand, weights ...int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	at := r.IntN(sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return 0
}

func (n *Node) between(a, b time.Duration) time.Duration {
	return a + time.Duration(n.Rand.Int64N(int64((b-a)/time.Microsecond)+1))*time.Microsecond
}
