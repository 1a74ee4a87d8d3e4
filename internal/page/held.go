package page

import (
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/settle"
)

// look is what one hook or health check saw of one card.
type look struct {
	at    time.Time
	epoch gpu.Epoch
	by    string // who looked
	// left is set where memory or a process was on the card that no running job has a right to, bytes how much; tells
	// is not set where that could not be told.
	tells, left bool
	bytes       gpu.Figure
}

// readLooks finds the looks at each card, in their order.
func (h *history) readLooks() {
	for _, r := range h.runs {
		for _, d := range r.Devices {
			var start *look
			for i, e := range r.Both() {
				if e.Unseen != "" {
					continue
				}
				l := h.judge(e, d.Device.ID, start)
				l.epoch, l.by = r.Epoch, "a hook of job "+r.JobName()
				if i == 0 && r.Start != nil {
					start = &l
				}
				h.looks[d.Device.ID] = append(h.looks[d.Device.ID], l)
			}
		}
	}
	h.readCheck()
	for _, list := range h.looks {
		slices.SortStableFunc(list, func(a, b look) int { return a.at.Compare(b.at) })
	}
}

// busy reports that a moment fell between the two looks of a job that had the card.
func (h *history) busy(id gpu.ID, t time.Time) bool {
	return slices.ContainsFunc(h.jobs[id], func(k Block) bool { return t.After(k.Start) && t.Before(k.End) })
}

// usedOf is the memory in use of which something can be told.
func usedOf(r gpu.Reading) gpu.Figure {
	if r.Device.ID == "" || r.Memory.Unjudged != "" || r.Memory.UsedHasReserved {
		return gpu.Unknown("not read")
	}
	return r.Memory.Used
}

// judge says what a hook's look at a card of its own job tells; start is that at the job's start, nil for that itself.
// While another job has the card only the findings tell whose what is.
func (h *history) judge(e ledger.End, id gpu.ID, start *look) look {
	reading, _ := e.Snapshot.Reading(id)
	l, beside := look{at: e.Wall, bytes: usedOf(reading)}, h.busy(id, e.Wall)
	if beside {
		l.bytes = gpu.Unknown("others have the GPU too")
	} else if start != nil && start.left { // what a job got and gave back so is no finding of its end
		l.left = l.bytes.Known() && l.bytes.Bytes >= finding.WorthTelling
	}
	for _, f := range e.Findings {
		kind, _ := code.Lookup(f.Code)
		of := kind.Traits.Memory
		if f.GPU == id && f.Unknown == "" && (of.Stays() || of == code.Inherited && !beside) {
			l.left = true
			if beside && f.Bytes.Bytes > l.bytes.Bytes {
				l.bytes = f.Bytes
			}
		}
	}
	l.tells = l.left || !beside && (start == nil || start.tells) && e.Curves[id].State == settle.Clean
	return l
}

// readCheck adds the last health check's look at all cards, which says what was leaked. Memory in use on any other may
// be a job's without a record, and tells nothing.
func (h *history) readCheck() {
	c := h.ask.Check
	if c == nil || c.Stopped {
		return
	}
	for _, reading := range c.Snapshot.Readings {
		id, used := reading.Device.ID, usedOf(reading)
		l := look{at: c.Wall, epoch: c.Epoch, by: "the health check", bytes: gpu.Bytes(c.Leaked[id]), left: c.Leaked[id] > 0}
		l.tells = l.left || !h.busy(id, l.at) && used.Known() && used.Bytes <= finding.MaxBaseline
		h.looks[id] = append(h.looks[id], l)
	}
}

// Held is memory that no running job on record has a right to, from one look that saw it to the next that tells.
type Held struct {
	From, To   float64
	Start, End time.Time
	Bytes      gpu.Figure // as the first look saw it
	Share      float64    // of the card's memory, the least that is visible where that is unknown
	// Fate is what became of it: stayed, where it was seen at both ends; gone at some moment in between; unseen, where no
	// look since could tell.
	Fate string
	By   string // who saw it first
}

// held are a card's leftovers in the time shown.
func (h *history) held(c Card) (all []Held) {
	list := slices.DeleteFunc(slices.Clone(h.looks[c.ID]), func(l look) bool { return !l.tells })
	for i, l := range list {
		if !l.left {
			continue
		}
		k := Held{Start: l.at.In(h.ask.Zone), End: later(l.at, h.ask.Now), Bytes: l.bytes, Fate: "unseen", By: l.by,
			Share: max(share(l.bytes, c.Total), 3*least)}
		if i+1 < len(list) {
			next := list[i+1]
			if k.End, k.Fate = next.at, "gone"; next.left && !l.epoch.Changed(next.epoch) {
				k.Fate = "stayed"
			}
		}
		k.End = k.End.In(h.ask.Zone)
		k.From, k.To = h.at(k.Start), h.at(k.End)
		switch n := len(all); {
		case !h.shows(k.Start, k.End):
		case n > 0 && k.To-all[n-1].From < cell: // too short to be told apart from the one before
			all[n-1].To, all[n-1].End, all[n-1].Fate = k.To, k.End, k.Fate
		default:
			all = append(all, k)
		}
	}
	return all
}
