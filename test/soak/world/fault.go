package world

import (
	"math/rand/v2"
	"time"

	"bookend/internal/gpu"
)

// Fault is a time in which a GPU is not fit for use: the driver asks for its reset, or it is lost.
type Fault struct {
	Code        int // the Xid that told of it
	From, Until time.Duration
	Started     bool // a job did, while it was so
	Drained     bool // a hook made the node be drained since
}

// Errors draws and keeps what the driver logs. Its chance is its own: stories are the same with and without it.
type Errors struct {
	// Mute is a driver that knows no recovery action, as those before 570.
	Mute   bool
	chance *rand.Rand
	seq    uint64
	lines  []gpu.Xid
}

func newErrors(seed, n uint64) Errors {
	chance := rand.New(rand.NewPCG(seed^0xfa017, n))
	return Errors{Mute: chance.IntN(4) == 0, chance: chance}
}

// draw lets errors come at any time of the story.
func (e *Errors) draw(n *Node) {
	if n.Site.AMD {
		return
	}
	for range pick(e.chance, 55, 30, 10, 5) {
		c := n.Cards[e.chance.IntN(len(n.Cards))]
		n.After(time.Duration(e.chance.Int64N(int64(300*time.Second))), func() { e.strike(n, c) })
	}
}

// Numbers of Xids by what they do to a GPU.
var (
	programErrors = [...]int{13, 31, 43, 45}
	milder        = [...]int{63, 94, 8, 32}
	fatal         = [...]int{48, 62, 95, 119}
	doubtful      = [...]int{74, 109}
)

func (e *Errors) one(of [4]int) int { return of[e.chance.IntN(len(of))] }

// strike is one error of a GPU.
func (e *Errors) strike(n *Node, c *Card) {
	switch pick(e.chance, 30, 20, 25, 8, 9, 8) {
	case 0:
		e.log(n, c, e.one(programErrors), "")
	case 1:
		e.log(n, c, e.one(milder), "")
	case 2:
		e.breaks(n, c, e.one(fatal))
		n.After(time.Duration(e.chance.Int64N(int64(240*time.Second))), func() { e.reset(n, c) })
	case 3: // nothing but a boot brings it back, and this story's boots do not
		c.Lost = min(c.Lost, n.Now)
		e.breaks(n, c, 79)
	case 4: // the driver mends it by itself, and says so
		if !e.Mute {
			e.log(n, c, 119, "")
		}
	case 5:
		e.log(n, c, doubtful[e.chance.IntN(len(doubtful))], "")
	}
}

func (e *Errors) breaks(n *Node, c *Card, code int) {
	e.log(n, c, code, "")
	c.Faults = append(c.Faults, Fault{Code: code, From: n.Now, Until: Forever})
	if !e.Mute && e.chance.IntN(2) == 0 {
		e.log(n, c, 154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
	}
}

// reset is an administrator's, who takes no GPU from a job. The driver stays loaded.
func (e *Errors) reset(n *Node, c *Card) {
	for _, j := range n.Jobs {
		if j.Has(c) && (j.Live || j.Closed == 0) {
			n.After(10*time.Second, func() { e.reset(n, c) })
			return
		}
	}
	if !c.Faulty(n.Now) || c.Lost <= n.Now {
		return
	}
	n.tell("%s is reset", c.Device.ID)
	c.mend(n.Now)
	if !e.Mute && e.chance.IntN(2) == 0 {
		e.log(n, c, 154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
	}
}

func (e *Errors) log(n *Node, c *Card, code int, text string) {
	n.tell("Xid %d of %s", code, c.Device.ID)
	e.seq++
	mark := gpu.KernelMark{Seq: e.seq, At: n.Boottime(n.Now)}
	e.lines = append(e.lines, gpu.Xid{KernelMark: mark, BusID: c.Device.BusID, Code: code, Text: text})
}

// Log is the kernel's log after a mark, as it reads with and without one, and what came after an earlier one.
func (n *Node) Log(since, before *gpu.KernelMark) gpu.KernelLog {
	log := gpu.KernelLog{Last: gpu.KernelMark{Seq: n.Errors.seq + 1, At: n.Boottime(n.Now)}, Epoch: n.Epoch}
	n.Errors.seq++ // others write to it too
	for _, x := range n.Errors.lines {
		switch {
		case since != nil && x.Seq > since.Seq:
			log.Xids = append(log.Xids, x)
		case before != nil && x.Seq > before.Seq:
			log.Before = append(log.Before, x)
		}
	}
	return log
}

// Fault returns what makes a GPU unfit for use at a time, nil if nothing does.
func (c *Card) Fault(at time.Duration) *Fault {
	for i, f := range c.Faults {
		if f.From <= at && at < f.Until {
			return &c.Faults[i]
		}
	}
	return nil
}

// Faulty reports whether a GPU is not fit for use.
func (c *Card) Faulty(at time.Duration) bool { return c.Fault(at) != nil }

// mend ends a GPU's faults.
func (c *Card) mend(at time.Duration) {
	for i := range c.Faults {
		c.Faults[i].Until = min(c.Faults[i].Until, at)
	}
}

// RecoveryAction is what the driver asks for, false where it does not say.
func (n *Node) RecoveryAction(c *Card) (action string, known bool) {
	switch {
	case n.Errors.Mute, n.Now >= c.Lost:
		return "", false
	case c.Faulty(n.Now):
		return "reset", true
	}
	return "none", true
}
