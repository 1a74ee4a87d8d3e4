package page

import (
	"time"

	"bookend/internal/gpu"
)

// Held is memory that no running job on record has a right to, from one look that saw it to the next look or looks.
type Held struct {
	Span
	Start, End time.Time
	Bytes      gpu.Figure // the most of it that a look saw
	Share      float64    // of the card's memory; of what is unknown none
	Fate       Fate
	By         string // who saw it first
	// Unclaimed is true for memory in use on a card that no job on record had: a job without a record may have it.
	Unclaimed bool
}

// Fate is what became of what stayed.
type Fate string

// The fates. Only Stayed was seen at both ends; the others say what the next look found, or that there was none.
const (
	Stayed  Fate = "stayed"
	Gone    Fate = "gone"    // it went at some moment in between
	Unknown Fate = "unknown" // the next look could not tell
	Unseen  Fate = "unseen"  // nobody has looked since
)

// held are a card's leftovers in the time shown.
func (b book) held(c Card) []Held {
	var all []Held
	list := b.judged(c)
	for i, l := range list {
		if l.left != something && l.left != unclaimed {
			continue
		}
		h := Held{Start: l.at.In(b.zone), End: later(l.at, b.now).In(b.zone), Bytes: l.bytes, Fate: Unseen, By: l.by,
			Unclaimed: l.left == unclaimed}
		if i+1 < len(list) {
			h.End, h.Fate = list[i+1].at.In(b.zone), fateOf(l, list[i+1])
		}
		if b.shows(h.Start, h.End) {
			h.Span = b.span(h.Start, h.End)
			h.Share = share(h.Bytes, c.Total)
			all = joinHeld(all, h, b.cells)
		}
	}
	return all
}

// judged are the looks at a card that tell what stayed on it, or that were to: those beside a running job tell of its
// use alone.
func (b book) judged(c Card) []look {
	var list []look
	for _, l := range b.looks[c.ID] {
		if l.left == cannotTell && (l.aside || b.stays[c.ID].runs(l.at)) {
			continue
		}
		list = append(list, l)
	}
	return list
}

func fateOf(l, next look) Fate {
	switch {
	case next.left == nothing || l.epoch.Changed(next.epoch):
		return Gone
	case next.left == l.left:
		return Stayed
	}
	return Unknown
}

func share(f, total gpu.Figure) float64 {
	if !f.Known() || !total.Known() || total.Bytes == 0 {
		return 0
	}
	return min(float64(f.Bytes)/float64(total.Bytes), 1)
}

// joinHeld adds a piece, to the last one where that goes on in it with the same size, or both are too short to be told
// apart.
func joinHeld(all []Held, h Held, cells int) []Held {
	n := len(all)
	if n == 0 {
		return append(all, h)
	}
	last := &all[n-1]
	if last.Unclaimed != h.Unclaimed {
		return append(all, h)
	}
	same := last.Fate == Stayed && h.Fate == Stayed && last.Bytes == h.Bytes && last.End.Equal(h.Start)
	cell := 1 / float64(cells)
	small := last.Width() < cell && h.Width() < cell && h.To-last.From < cell
	if !same && !small {
		return append(all, h)
	}
	last.To, last.End, last.Fate = h.To, h.End, h.Fate
	if h.Bytes.Known() && (!last.Bytes.Known() || h.Bytes.Bytes > last.Bytes.Bytes) {
		last.Bytes, last.Share = h.Bytes, h.Share
	}
	return all
}
