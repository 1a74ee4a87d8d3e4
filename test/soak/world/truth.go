package world

import (
	"slices"
	"time"
)

// Fate is what becomes of memory if nobody intervenes.
type Fate int

// The fates.
const (
	Stuck   Fate = iota // it stays, and nobody who has a right to the card keeps it
	Passing             // it stays for now: its holder ends by itself, later than anybody would wait
	Leaving             // its holders are gone, or go within the time that was measured of such
	Alive               // a live job's process keeps it
	OfNode              // a service's or the administrator's own
)

// String names a fate.
func (f Fate) String() string {
	return [...]string{"stuck", "passing", "leaving", "live job's", "node's"}[f]
}

// Item is a chunk with its fate.
type Item struct {
	*Chunk
	Fate     Fate
	Unlisted bool
}

// Held is what an item takes of its card, in bytes.
func (i Item) Held() uint64 { return i.Bytes + i.Overhead }

// Stock is what truly lies on a card.
type Stock []Item

// Stock takes it: as of a look, which may lie a little back.
func (n *Node) Stock(c *Card, asOf time.Duration) Stock {
	var s Stock
	for _, ch := range c.chunks {
		if ch.Since > asOf || ch.freed(asOf) {
			continue
		}
		unlisted := true
		ch.Listed(asOf, func(*Process) { unlisted = false })
		s = append(s, Item{Chunk: ch, Fate: ch.fate(asOf), Unlisted: unlisted})
	}
	return s
}

func (ch *Chunk) fate(asOf time.Duration) Fate {
	if ch.Creator.OfNode {
		return OfNode
	}
	if ch.Way == Pinned && !ch.Creator.AliveAt(asOf) {
		return Stuck
	}
	fate := Leaving
	for _, h := range ch.Holders {
		if !h.AliveAt(asOf) {
			continue
		}
		switch {
		case h.Job != nil && h.Job.Live:
			return Alive
		case h.Stays():
			fate = Stuck
		case !h.Leaves && fate == Leaving:
			fate = Passing
		}
	}
	return fate
}

// Sum adds up the bytes of some items.
func (s Stock) Sum(counts func(Item) bool) (sum uint64) {
	for _, i := range s {
		if counts(i) {
			sum += i.Held()
		}
	}
	return sum
}

// Of adds up the bytes of some fates.
func (s Stock) Of(fates ...Fate) uint64 {
	return s.Sum(func(i Item) bool { return slices.Contains(fates, i.Fate) })
}

// Moves reports stock that never settles.
func (s Stock) Moves() bool { return slices.ContainsFunc(s, func(i Item) bool { return i.Moves() }) }

// Has reports whether a chunk is among the stock.
func (s Stock) Has(ch *Chunk) bool {
	return slices.ContainsFunc(s, func(i Item) bool { return i.Chunk == ch })
}

// Unlisted adds up the bytes that are in no process's figure, of all fates or of some.
func (s Stock) Unlisted(fates ...Fate) uint64 {
	return s.Sum(func(i Item) bool { return i.Unlisted && (len(fates) == 0 || slices.Contains(fates, i.Fate)) })
}

// Blamable are the jobs that a chunk may be blamed on: whose process made it, or whose keeps it. A process of nobody's
// that its user started while his job had the card to itself cannot be told from the job's, and is the job's here.
func (n *Node) Blamable(ch *Chunk) []*Job {
	var jobs []*Job
	for _, p := range append([]*Process{ch.Creator}, ch.Holders...) {
		if p.Job != nil {
			jobs = append(jobs, p.Job)
			continue
		}
		for _, j := range n.Jobs {
			if j.UID == p.UID && j.Has(ch.Card) && j.Allocated <= p.Start && (j.Closed == 0 || p.Start <= j.Closed) {
				jobs = append(jobs, j)
			}
		}
	}
	return jobs
}

// SharedByRight reports whether another job may be on a card by right, now.
func (n *Node) SharedByRight(j *Job, c *Card) bool {
	switch n.Site.Sharing {
	case SharedByName, SharedByMPS, SharedShards, MaybeShards:
		return true
	}
	return slices.ContainsFunc(n.Jobs, func(o *Job) bool {
		return o != j && o.Live && o.Has(c) && (j.Ended == 0 || o.Allocated < j.Ended)
	})
}

// Shows is a service that has a card open, if any.
func (n *Node) Shows(c *Card) bool {
	return slices.ContainsFunc(n.processes, func(p *Process) bool { return p.Service != "" && slices.Contains(p.Minors, *c.Device.Minor) })
}
