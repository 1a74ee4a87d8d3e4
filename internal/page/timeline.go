package page

import (
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/ledger"
)

// Request says what of the records is wanted.
type Request struct {
	// Since and Until bound the time shown; zero: from the first record on, up to Now.
	Since, Until time.Time
	// Now is when the records were read; zero: they are a copy, and the last look in them is the latest that is known.
	Now  time.Time
	Zone *time.Location
	// GPU names one card as Card.Means has it; empty: all.
	GPU string
	// Check is the last health check, nil where there is none on record, and Sighted what all of them saw.
	Check   *ledger.Check
	Sighted ledger.Sighted
	// Blocks is about how many blocks are drawn at most, in all lanes: what is too short is joined with its neighbours.
	Blocks int
}

// Chart is all that is drawn.
type Chart struct {
	Since, Until time.Time
	// First and Last are the first and the last look on record, shown or not; zero: there is none.
	First, Last time.Time
	Ticks       [][]Tick // one list for each of Zooms
	Lanes       []Lane
	Elsewhere   []Mark // of findings that concern no card
	// Entries are the findings of the time shown, the latest first. Marks name them by their place here.
	Entries []Entry
	Total   Total
}

// At is the moment at a place.
func (c Chart) At(part float64) time.Time {
	return c.Since.Add(time.Duration(part * float64(c.Until.Sub(c.Since))))
}

// Zooms are how much wider than the page a chart may be drawn.
var Zooms = [...]int{1, 4, 16}

// Lane is one card over time.
type Lane struct {
	Card     Card
	Blocks   []Block
	Held     []Held
	Overlaps []Span
	Marks    []Mark
	Sum      Sum
}

// Span is a part of the time shown, 0 to 1.
type Span struct{ From, To float64 }

// Width is a span's length.
func (s Span) Width() float64 { return s.To - s.From }

// Lay lays records out.
func Lay(runs []ledger.Run, r Request) Chart {
	if r.Zone == nil {
		r.Zone = time.UTC
	}
	book := open(runs, r)
	c := Chart{Since: book.since, Until: book.until, Ticks: ticks(book.axis)}
	c.Entries = book.entries()
	for _, card := range book.cards {
		c.Lanes = append(c.Lanes, book.lane(card, c.Entries))
	}
	c.Elsewhere = book.marks(c.Entries, "")
	c.Total = total(book, c)
	c.First, c.Last = ends(runs, r.Check)
	return c
}

// book is what the records say, sorted by card.
type book struct {
	axis
	runs  []ledger.Run
	check *ledger.Check
	cards []Card
	stays map[gpu.ID]guests
	looks map[gpu.ID][]look
	cells int
	one   bool // a single card was asked for
}

// onCards reports that a run is of a card that is shown; one whose cards nobody knows may be of any.
func (b book) onCards(r ledger.Run) bool {
	if !b.one {
		return true
	}
	return slices.ContainsFunc(r.Devices, func(d ledger.Assigned) bool {
		return slices.ContainsFunc(b.cards, func(c Card) bool { return c.ID == idOf(r, d) })
	})
}

// perCell is how many blocks there are for each cell at most: one that is longer than a cell, and one of the shorter
// ones.
const perCell = 2

// fewestCells keeps a lane readable whatever is asked for.
const fewestCells = 100

func open(runs []ledger.Run, r Request) book {
	b := book{runs: runs, check: r.Check, axis: newAxis(runs, r), one: r.GPU != ""}
	b.cards = cardsOf(runs, r.Check, r.GPU)
	b.cells = max(r.Blocks/perCell/max(len(b.cards), 1), fewestCells) // of a lane
	b.stays = guestsOf(runs, b.now)
	b.looks = looksOf(runs, r.Check, b.stays)
	b.seeUse(r.Sighted)
	return b
}

func (b book) lane(c Card, all []Entry) Lane {
	l := Lane{Card: c, Marks: b.marks(all, c.ID)}
	l.Blocks = b.blocks(c)
	l.Overlaps = b.overlaps(c)
	l.Held = b.held(c)
	l.Sum = b.sum(c, l.Held, all)
	return l
}
