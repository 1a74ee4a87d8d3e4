package world

import (
	"slices"
	"time"

	"bookend/internal/gpu"
)

// Way is how a piece of memory came to be, which decides who is listed for it and who keeps it.
type Way int

// The ways.
const (
	Plain    Way = iota // listed under its creator, dead or alive, as long as anybody keeps the creator's files open
	Exported            // in its creator's figure; after the creator's end in none, while its handle is open
	Imported            // in its creator's figure and in that of each importer; after the creator's end in theirs
	Managed             // in no process's figure (UVM)
	Pinned              // in its creator's figure; after the creator's end in none, and nobody holds it
)

// Chunk is memory on a card that is freed as a whole.
type Chunk struct {
	Card     *Card
	Way      Way
	Bytes    uint64
	Overhead uint64 // the driver's for a client, beyond its listed figure: 8-9 MiB measured
	Creator  *Process
	Holders  []*Process // whoever keeps it, the creator included
	Since    time.Duration

	gone     time.Duration // when its last holder ended, Forever before
	teardown time.Duration // how long its memory shows after that: 100-400 ms measured
	pieces   bool          // many small blocks: readings jump meanwhile
	last     *Process      // its last holder
	wave     time.Duration // period in which its owner takes and frees slack of it, 0 for never
	falls    uint64        // its owner frees so much a second, down to slack less than all of it
	slack    uint64        // the most by which it may be smaller than Bytes
}

// hold gives a process memory of its own, with all a client of the driver has.
func (n *Node) hold(p *Process, c *Card, bytes uint64) *Chunk {
	p.opens(c)
	ch := n.chunk(p, c, Plain, bytes)
	ch.Overhead = 8*MiB + n.Rand.Uint64N(1025)<<10
	return ch
}

func (n *Node) chunk(p *Process, c *Card, way Way, bytes uint64) *Chunk {
	ch := &Chunk{
		Card: c, Way: way, Bytes: min(bytes, c.room(n.Now)), Creator: p, Holders: []*Process{p}, Since: n.Now,
		gone: Forever, teardown: n.between(100*time.Millisecond, 400*time.Millisecond), pieces: n.percent(40),
	}
	if way == Pinned {
		ch.teardown = 0
	}
	c.chunks, c.Changed = append(c.chunks, ch), n.Now
	n.tell("process %d (%s, uid %d) takes %d MiB of %s, way %d", p.PID, p.Name, p.UID, ch.Bytes/MiB, c.Device.ID, way)
	return ch
}

func (n *Node) share(ch *Chunk, q *Process) {
	if ch.gone != Forever {
		return
	}
	ch.Holders = append(ch.Holders, q)
	switch ch.Way {
	case Plain, Managed, Imported:
		q.opens(ch.Card)
	default:
		q.Control = true // all that the receiver of an exported handle was measured to have open
	}
	n.tell("process %d (%s, uid %d) keeps memory of process %d on %s", q.PID, q.Name, q.UID, ch.Creator.PID, ch.Card.Device.ID)
}

func (c *Card) room(now time.Duration) uint64 {
	used := 64 * MiB
	for _, ch := range c.chunks {
		if !ch.freed(now) {
			used += ch.Bytes + ch.Overhead
		}
	}
	if used+2*MiB > c.Total {
		return 2 * MiB
	}
	return (c.Total - used) / (2 * MiB) * (2 * MiB)
}

// released notes that a process holds nothing any more.
func (c *Card) released(n *Node, p *Process) {
	for _, ch := range c.chunks {
		if ch.gone != Forever || !slices.Contains(ch.Holders, p) {
			continue
		}
		if c.Changed = max(c.Changed, n.Now); ch.Way == Pinned {
			continue
		}
		if !slices.ContainsFunc(ch.Holders, func(h *Process) bool { return !h.Dead }) {
			ch.gone, ch.last = n.Now, p
			c.Changed = n.Now + ch.teardown
		}
	}
}

// shown is how much of a chunk the driver shows at a moment: while it is torn down readings jump.
func (ch *Chunk) shown(at time.Duration) uint64 {
	switch {
	case ch.gone == Forever && ch.wave > 0 && (at/ch.wave)%2 == 1:
		return ch.Bytes - ch.slack
	case ch.gone == Forever && ch.falls > 0 && at > ch.Since:
		return ch.Bytes - min(ch.slack, uint64((at-ch.Since)/(time.Second/4))*ch.falls/4)
	case at < ch.gone:
		return ch.Bytes
	case at >= ch.gone+ch.teardown:
		return 0
	case !ch.pieces:
		return ch.Bytes
	}
	switch 8 * (at - ch.gone) / ch.teardown {
	case 3, 4:
		return ch.Bytes / 256
	case 7:
		return ch.Bytes / 64
	}
	return ch.Bytes
}

// Moves reports memory that its owner takes and frees all the time.
func (ch *Chunk) Moves() bool { return ch.wave > 0 || ch.falls > 0 }

// Tides reports memory of which its owner takes and frees a large part.
func (ch *Chunk) Tides() bool { return ch.slack > mostFidget }

// Least is what it shows at the least while it is held, in bytes.
func (ch *Chunk) Least() uint64 { return ch.Bytes - ch.slack }

// waves lets a process take and give back half of its memory, again and again.
func (ch *Chunk) waves(period time.Duration) {
	ch.wave, ch.slack = period, ch.Bytes-ch.Bytes/2/(2*MiB)*(2*MiB)
}

func (ch *Chunk) freed(at time.Duration) bool { return at >= ch.gone && at-ch.gone >= ch.teardown }

// remembered is how long a card keeps what was freed: a hook is judged at its end as of its last look, which lies
// back by less than a hook may take.
const remembered = 20 * time.Second

func (c *Card) sweep(now time.Duration) {
	c.chunks = slices.DeleteFunc(c.chunks, func(ch *Chunk) bool { return ch.freed(now - remembered) })
}

// Listed are the PIDs under which the driver lists a chunk. AMD's lists nobody who has ended.
func (ch *Chunk) Listed(at time.Duration, yield func(*Process)) {
	way := ch.Way
	if way == Plain && ch.Card.Device.Vendor == "amd" {
		way = Exported
	}
	switch way {
	case Plain:
		yield(ch.Creator)
	case Exported, Pinned:
		if ch.Creator.AliveAt(at) {
			yield(ch.Creator)
		}
	case Imported:
		any := false
		for _, h := range ch.Holders {
			if h.AliveAt(at) {
				any = true
				yield(h)
			}
		}
		if !any && ch.last != nil && ch.Card.Device.Vendor != "amd" {
			yield(ch.last)
		}
	}
}

// Snapshot is one look of the driver's at cards, now.
func (n *Node) Snapshot(cards []*Card) gpu.Snapshot {
	s := gpu.Snapshot{At: n.Boottime(n.Now), Driver: gpu.Driver{Version: n.Epoch.Driver}}
	s.Readings = make([]gpu.Reading, 0, len(cards))
	for _, c := range cards {
		if n.Now >= c.Lost {
			s.Faults = append(s.Faults, gpu.Fault{Code: gpu.FaultLost, Device: c.Device.ID, BusID: c.Device.BusID, Detail: "GPU is lost"})
			continue
		}
		s.Readings = append(s.Readings, n.reading(c))
	}
	return s
}

// reserved is the driver's own share of an H200.
const reserved = 615 * MiB

// DriversOwn is what AMD's driver may keep for itself without telling, and what the backend takes for that.
const DriversOwn = 512 * MiB

func (n *Node) reading(c *Card) gpu.Reading {
	c.sweep(n.Now)
	r := gpu.Reading{Device: c.Device, Memory: gpu.Memory{Total: gpu.Bytes(c.Total), Reserved: gpu.Bytes(reserved)}}
	var used uint64
	for _, ch := range c.chunks {
		bytes := ch.shown(n.Now)
		if bytes == 0 {
			continue
		}
		used += bytes + ch.Overhead
		ch.Listed(n.Now, func(p *Process) { r.Processes = list(r.Processes, p, bytes) })
	}
	if n.Site.AMD {
		var listed uint64
		for _, p := range r.Processes {
			listed += p.Memory.Bytes
		}
		own := min(DriversOwn, used-min(used, listed))
		used, r.Memory.Reserved = used-own, gpu.Bytes(own)
	}
	if n.Site.NUMA {
		r.Memory.Unjudged = "the operating system keeps files in this memory"
		used += uint64(n.Boottime(n.Now)/time.Millisecond) % 4000 * MiB
	}
	r.Memory.Used, r.Memory.Free = gpu.Bytes(used), gpu.Bytes(c.Total-min(c.Total, used))
	return r
}

var (
	compute  = []gpu.Kind{gpu.Compute}
	graphics = []gpu.Kind{gpu.Graphics}
	mps      = []gpu.Kind{gpu.Compute, gpu.MPS}
)

func list(all []gpu.Process, p *Process, bytes uint64) []gpu.Process {
	for i := range all {
		if all[i].PID == p.PID {
			all[i].Memory.Bytes += bytes
			return all
		}
	}
	kinds := compute
	switch p.Name {
	case nameX:
		kinds = graphics
	case nameMPSClient:
		kinds = mps
	}
	return append(all, gpu.Process{PID: p.PID, Memory: gpu.Bytes(bytes), Kinds: kinds})
}

// listed reports whether the driver lists a PID on any card.
func (n *Node) listed(pid int) bool {
	found := false
	for _, c := range n.Cards {
		for _, ch := range c.chunks {
			if ch.shown(n.Now) > 0 {
				ch.Listed(n.Now, func(p *Process) { found = found || p.PID == pid })
			}
		}
	}
	return found
}
