package page

import (
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
)

// look is what one hook saw of one card.
type look struct {
	at    time.Time
	epoch gpu.Epoch
	used  gpu.Figure
	// left says whether anything was on the card that no running job has a right to, and bytes how much, where known.
	left  answer
	bytes gpu.Figure
	by    string // who looked
	aside bool   // who was not there for a job of this card
}

// answer is whether something stayed on a card.
type answer int

const (
	cannotTell answer = iota
	nothing
	something
)

// readLooks finds the looks at each card, in their order.
func (h *history) readLooks() {
	h.looks = map[gpu.ID][]look{}
	for _, r := range h.runs {
		by := "a hook of job " + r.JobName()
		for _, d := range r.Devices {
			var start *look
			for i, e := range r.Both() {
				if e.Unseen != "" {
					continue
				}
				l := look{at: e.Wall, epoch: r.Epoch, by: by}
				h.judge(&l, e, d.Device.ID, start)
				if i == 0 && r.Start != nil {
					start = &l
				}
				h.looks[d.Device.ID] = append(h.looks[d.Device.ID], l)
			}
		}
	}
	h.check()
	for _, list := range h.looks {
		slices.SortStableFunc(list, func(a, b look) int { return a.at.Compare(b.at) })
	}
}

// holds reports that a job had the card at a moment, within that a moment fell between a job's own two looks.
func (h *history) holds(id gpu.ID, t time.Time) (holds, within bool) {
	for _, k := range h.jobs[id] {
		holds = holds || !t.Before(k.Start) && !t.After(k.End)
		within = within || t.After(k.Start) && t.Before(k.End)
	}
	return holds, within
}

// usedOf is the memory in use of which something can be told.
func usedOf(r gpu.Reading) gpu.Figure {
	if r.Device.ID == "" || r.Memory.Unjudged != "" || r.Memory.UsedHasReserved {
		return gpu.Unknown("not read")
	}
	return r.Memory.Used
}

// judge says what a hook's look at a card of its own job tells; start is that at the job's start, nil for that itself.
func (h *history) judge(l *look, e ledger.End, id gpu.ID, start *look) {
	reading, _ := e.Snapshot.Reading(id)
	l.used = usedOf(reading)
	// What a job got and gave back so is no finding of its end.
	carried := start != nil && start.left == something && start.bytes.Known() && l.used.Known()
	if carried {
		l.leave(gpu.Bytes(min(start.bytes.Bytes, l.used.Bytes)))
	}
	_, beside := h.holds(id, l.at)
	beside = beside && start == nil // what a start finds beside another job of the card is that one's
	blind := beside || start != nil && start.left == cannotTell
	for _, f := range e.Findings {
		if f.GPU != id {
			continue
		}
		of := f.Code.Traits()
		if f.Unknown == "" && (of.Memory.Stays() || of.Memory == code.Inherited && !carried && !beside) {
			l.leave(f.Bytes)
		}
		kind, _ := code.Lookup(f.Code)
		blind = blind || kind.Scope == code.Card && (f.Unknown != "" || f.Code == code.Lost)
	}
	if l.used.Known() && l.bytes.Known() {
		l.bytes.Bytes = min(l.bytes.Bytes, l.used.Bytes)
	}
	state := e.Curves[id].State
	clean := state.AtRest() || state == "" && l.used.Known() && l.used.Bytes < finding.WorthTelling
	if l.left != something && !blind && clean {
		l.left = nothing
	}
}

// leave adds memory that was left on the card.
func (l *look) leave(f gpu.Figure) {
	switch {
	case f.Known() && f.Bytes < finding.WorthTelling && l.left != something:
		return
	case !f.Known() || l.left != something:
		l.bytes = f
	case l.bytes.Known():
		l.bytes.Bytes += f.Bytes
	}
	l.left = something
}

// check adds the last health check's look at all cards, which says what was leaked. Of a card that a job has only the
// memory in use counts. Memory in use on any other may be a job's without a record, and tells nothing.
func (h *history) check() {
	c := h.Check
	if c == nil || c.Stopped {
		return
	}
	for _, reading := range c.Snapshot.Readings {
		id := reading.Device.ID
		l := look{at: c.Wall, epoch: c.Epoch, by: "the health check", aside: true, used: usedOf(reading)}
		held, _ := h.holds(id, l.at)
		switch {
		case c.Leaked[id] > 0:
			l.leave(gpu.Bytes(c.Leaked[id]))
		case !held && l.used.Known() && l.used.Bytes <= finding.MaxBaseline:
			l.left = nothing
		}
		h.looks[id] = append(h.looks[id], l)
	}
}

// Held is memory that no running job on record has a right to, from one look that saw it to the next look or looks.
type Held struct {
	From, To   float64
	Start, End time.Time
	Bytes      gpu.Figure // the most of it that a look saw
	Share      float64    // of the card's memory, the least that is visible where that is unknown
	Fate       Fate
	By         string // who saw it first
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
func (h *history) held(c Card) (all []Held) {
	list := h.telling(c.ID)
	for i, l := range list {
		if l.left != something {
			continue
		}
		k := Held{Start: l.at.In(h.Zone), End: later(l.at, h.Now).In(h.Zone), Bytes: l.bytes, Fate: Unseen, By: l.by,
			Share: max(share(l.bytes, c.Total), 3*least)}
		if i+1 < len(list) {
			next := list[i+1]
			switch k.End = next.at.In(h.Zone); {
			case next.left == nothing || l.epoch.Changed(next.epoch):
				k.Fate = Gone
			case next.left == something:
				k.Fate = Stayed
			default:
				k.Fate = Unknown
			}
		}
		if k.From, k.To = h.at(k.Start), h.at(k.End); h.shows(k.Start, k.End) {
			all = joined(all, k)
		}
	}
	return all
}

// telling are the looks at a card that tell what stayed on it, or that were to: those beside a running job tell of its
// use alone.
func (h *history) telling(id gpu.ID) (list []look) {
	for _, l := range h.looks[id] {
		if _, within := h.holds(id, l.at); l.left != cannotTell || !l.aside && !within {
			list = append(list, l)
		}
	}
	return list
}

// joined adds a piece, to the last one where that goes on in it with the same size, or both are too short to be told
// apart.
func joined(all []Held, k Held) []Held {
	if len(all) == 0 {
		return append(all, k)
	}
	last := &all[len(all)-1]
	same := last.Fate == Stayed && k.Fate == Stayed && last.Bytes == k.Bytes && last.End.Equal(k.Start)
	if !same && k.To-last.From >= cell {
		return append(all, k)
	}
	last.To, last.End, last.Fate = k.To, k.End, k.Fate
	if k.Bytes.Known() && (!last.Bytes.Known() || k.Bytes.Bytes > last.Bytes.Bytes) {
		last.Bytes, last.Share = k.Bytes, k.Share
	}
	return all
}
