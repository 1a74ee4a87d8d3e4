package page

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/ledger"
)

// Card is a GPU or MIG instance as the latest record has it.
type Card struct {
	gpu.Device
	Index *int // Slurm's number; nil where no record has one
	Total gpu.Figure
	seen  time.Time
}

// Means reports whether a name is this card's: Slurm's number, nvidiaN, the bus id, or the id or the beginning of it.
func (c Card) Means(name string) bool {
	byNumber := c.Index != nil && name == strconv.Itoa(*c.Index)
	return byNumber || c.Named(name) || len(name) >= fewestOfID && strings.HasPrefix(string(c.ID), name)
}

// fewestOfID is how much of an id names a card: "GPU-" and four of its digits.
const fewestOfID = 8

// cardsOf are the cards that are on record, by Slurm's number, those that no job was given last.
func cardsOf(runs []ledger.Run, check *ledger.Check, name string) []Card {
	known := map[gpu.ID]Card{}
	for _, r := range runs {
		for _, e := range r.Both() {
			for _, s := range snapshotsOf(e) {
				for _, reading := range s.Readings {
					meet(known, Card{Device: reading.Device, Total: reading.Memory.Total, seen: e.Wall})
				}
			}
		}
		for _, d := range r.Devices {
			given(known, idOf(r, d), d, r.LastSeen())
		}
	}
	if check != nil {
		for _, reading := range check.Snapshot.Readings {
			meet(known, Card{Device: reading.Device, Total: reading.Memory.Total, seen: check.Wall})
		}
		for _, d := range check.Cards {
			given(known, d.Device.ID, d, check.Wall)
		}
	}
	var all []Card
	for _, c := range known {
		if name == "" || c.Means(name) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Card) int {
		return cmp.Or(cmp.Compare(order(a.Index), order(b.Index)), cmp.Compare(order(a.Minor), order(b.Minor)),
			cmp.Compare(a.ID, b.ID))
	})
	return all
}

// order puts what has no number behind what has one.
func order(n *int) int {
	if n == nil {
		return 1 << 30
	}
	return *n
}

// meet takes over what a reading says of its card; a later one is right.
func meet(known map[gpu.ID]Card, c Card) {
	old, met := known[c.ID]
	if c.ID == "" || met && old.seen.After(c.seen) {
		return
	}
	c.Index = old.Index
	c.Name, c.BusID = cmp.Or(c.Name, old.Name), cmp.Or(c.BusID, old.BusID)
	if c.Minor == nil {
		c.Minor = old.Minor
	}
	if !c.Total.Known() || c.Total.Bytes == 0 {
		c.Total = old.Total
	}
	known[c.ID] = c
}

// given takes over Slurm's number of a card.
func given(known map[gpu.ID]Card, id gpu.ID, d ledger.Assigned, at time.Time) {
	if id == "" {
		return
	}
	c, met := known[id]
	if !met {
		c = Card{Device: d.Device, Total: gpu.Unknown("never read")}
		c.ID = id
	}
	if d.Index >= 0 && (c.Index == nil || !at.Before(c.seen)) {
		c.Index = &d.Index
	}
	known[id] = c
}

// idOf is the id of a device that was given to a run: where only its bus id was known then, as a look at it says.
func idOf(r ledger.Run, d ledger.Assigned) gpu.ID {
	if d.Device.ID != "" {
		return d.Device.ID
	}
	for _, e := range r.Both() {
		for _, reading := range e.Snapshot.Readings {
			if d.Device.BusID != "" && reading.Device.BusID == d.Device.BusID {
				return reading.Device.ID
			}
		}
	}
	return gpu.ID(d.Device.BusID)
}

func snapshotsOf(e ledger.End) []gpu.Snapshot {
	if e.Neighbours == nil {
		return []gpu.Snapshot{e.Snapshot}
	}
	return []gpu.Snapshot{e.Snapshot, *e.Neighbours}
}
