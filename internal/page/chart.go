package page

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
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
}

// Chart is all that is drawn.
type Chart struct {
	Since, Until time.Time
	// First and Last are the first and the last look on record, shown or not; zero: there is none.
	First, Last time.Time
	Ticks       []Tick
	Lanes       []Lane
	Node        []Mark // of findings that concern no card
	// Entries are the findings of the time shown, the latest first. Marks name them by their place here.
	Entries []Entry
	Codes   []Count // the most grave first, then the most frequent
	Jobs    int
	Running int
	Drains  int
}

// Lane is one card over time.
type Lane struct {
	Card   Card
	Blocks []Block
	Held   []Held
	Marks  []Mark
	Jobs   int
	Found  int       // findings of this card that are no notes
	Last   time.Time // of the looks at it; zero: none
}

// Card is a GPU or MIG instance as the latest record has it.
type Card struct {
	gpu.Device
	Index *int // Slurm's number; nil where no record has one
	Total gpu.Figure
}

// Count is how often a code was found.
type Count struct {
	Kind  code.Entry
	Found int
}

// Lay lays records out.
func Lay(runs []ledger.Run, r Request) Chart {
	if r.Zone == nil {
		r.Zone = time.UTC
	}
	h := history{runs: slices.Clone(runs), Request: r}
	slices.SortStableFunc(h.runs, func(a, b ledger.Run) int { return a.LastSeen().Compare(b.LastSeen()) })
	h.period()
	h.ticks()
	h.readCards()
	h.readJobs()
	h.readLooks()
	h.readUse()
	h.readEntries()
	for _, c := range h.cards {
		h.Lanes = append(h.Lanes, h.lane(c))
	}
	h.Node = h.marks("")
	h.count()
	return h.Chart
}

// history is what the records say, sorted by card, and the chart that is made of it.
type history struct {
	Chart
	Request
	runs  []ledger.Run // the one that was seen last is the last
	cards []Card
	jobs  map[gpu.ID][]Block
	looks map[gpu.ID][]look
}

// shortest is the least time shown: a node with one look on record has a chart too.
const shortest = time.Minute

// period finds the time that is on record, and the part of it that is shown.
func (h *history) period() {
	meet := func(t time.Time) {
		if !t.IsZero() && (h.First.IsZero() || t.Before(h.First)) {
			h.First = t
		}
		h.Last = later(h.Last, t)
	}
	for _, r := range h.runs {
		for _, e := range r.Both() {
			meet(e.Wall)
		}
	}
	if h.Check != nil {
		meet(h.Check.Wall)
	}
	or := func(t, other time.Time) time.Time {
		if t.IsZero() {
			t = other
		}
		return t.In(h.Zone)
	}
	h.First, h.Last = h.First.In(h.Zone), h.Last.In(h.Zone)
	h.Now = or(h.Now, h.Last)
	until := or(h.Request.Until, h.Now)
	h.Chart.Since = or(h.Request.Since, or(h.First, until.Add(-shortest)))
	h.Chart.Until = later(until, h.Chart.Since.Add(shortest))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// at is the place of a moment, cut to what is shown.
func (c Chart) at(t time.Time) float64 {
	return min(max(float64(t.Sub(c.Since))/float64(c.Until.Sub(c.Since)), 0), 1)
}

// shows reports that a part of from to to is in the time shown.
func (c Chart) shows(from, to time.Time) bool { return !to.Before(c.Since) && !from.After(c.Until) }

// Tick is a line across the lanes with its label.
type Tick struct {
	At    float64
	Label string
	Day   bool // a day begins
}

// steps are the distances of ticks, in minutes.
var steps = []int{1, 5, 15, 30, 60, 2 * 60, 3 * 60, 6 * 60, 12 * 60, day, 2 * day, 7 * day, 14 * day, 28 * day,
	91 * day}

const (
	day       = 24 * 60
	mostTicks = 9 // labels that stand beside each other without touching
)

// ticks are set at the smallest distance that gives no more than mostTicks.
func (h *history) ticks() {
	minutes := int(h.Chart.Until.Sub(h.Chart.Since) / time.Minute)
	longest := steps[len(steps)-1]
	step := longest * (1 + minutes/(longest*mostTicks))
	if i := slices.IndexFunc(steps, func(s int) bool { return minutes/s < mostTicks }); i >= 0 {
		step = steps[i]
	}
	year, month, date := h.Chart.Since.Date()
	for n := 0; ; n += step {
		// Minutes of the calendar: where clocks are changed a day has 23 or 25 hours, and still one midnight.
		t := time.Date(year, month, date, 0, n, 0, 0, h.Zone)
		if t.After(h.Chart.Until) {
			return
		}
		if t.Before(h.Chart.Since) {
			continue
		}
		k := Tick{At: h.at(t), Label: t.Format("15:04"), Day: n%day == 0}
		switch {
		case step >= longest:
			k.Label = t.Format("Jan 2006")
		case k.Day:
			k.Label = t.Format("2 Jan")
		}
		h.Ticks = append(h.Ticks, k)
	}
}

// Means reports whether a name is this card's: Slurm's number, nvidiaN, the bus id, or the id or the beginning of it.
func (c Card) Means(name string) bool {
	byNumber := c.Index != nil && name == strconv.Itoa(*c.Index)
	return byNumber || c.Named(name) || len(name) >= fewestOfID && strings.HasPrefix(string(c.ID), name)
}

// fewestOfID is how much of an id names a card: "GPU-" and four of its digits.
const fewestOfID = 8

// readCards finds the cards that are on record, by Slurm's number, those that no job was given last.
func (h *history) readCards() {
	known := map[gpu.ID]Card{}
	for _, r := range h.runs {
		for _, e := range r.Both() {
			meet(known, e.Snapshot, r.Devices)
		}
	}
	if h.Check != nil {
		meet(known, h.Check.Snapshot, h.Check.Cards)
	}
	for _, c := range known {
		if h.GPU == "" || c.Means(h.GPU) {
			h.cards = append(h.cards, c)
		}
	}
	order := func(n *int) int {
		if n == nil {
			return 1 << 30
		}
		return *n
	}
	slices.SortFunc(h.cards, func(a, b Card) int {
		return cmp.Or(cmp.Compare(order(a.Index), order(b.Index)), cmp.Compare(order(a.Minor), order(b.Minor)),
			cmp.Compare(a.ID, b.ID))
	})
}

// meet takes over what a look and Slurm say of cards.
func meet(known map[gpu.ID]Card, s gpu.Snapshot, given []ledger.Assigned) {
	for _, r := range s.Readings {
		c := Card{Device: r.Device, Index: known[r.Device.ID].Index, Total: r.Memory.Total}
		if old, met := known[c.ID]; met {
			c.Name = cmp.Or(c.Name, old.Name)
			if !c.Total.Known() {
				c.Total = old.Total
			}
		}
		known[c.ID] = c
	}
	for _, d := range given {
		c, met := known[d.Device.ID]
		if !met {
			c = Card{Device: d.Device, Total: gpu.Unknown("never read")}
		}
		if d.Index >= 0 {
			c.Index = &d.Index
		}
		known[c.ID] = c
	}
	delete(known, "") // of no id: no lane can be drawn for it
}

// count adds up the time shown.
func (h *history) count() {
	for i := range h.runs {
		r := &h.runs[i]
		if k, ok := h.block(r); !ok || !h.shows(k.Start, k.End) || !h.onCards(*r) {
			continue
		} else if h.Jobs++; k.Running {
			h.Running++
		}
		for _, e := range r.Both() {
			if e.Verdict.Action == config.Drain && e.Verdict.Exit != 0 && h.shows(e.Wall, e.Wall) {
				h.Drains++
			}
		}
	}
	codes := map[code.Code]Count{}
	for _, e := range h.Entries {
		codes[e.Finding.Code] = Count{e.Kind, codes[e.Finding.Code].Found + 1}
	}
	rank := map[code.Severity]int{code.Serious: 0, code.Warning: 1, code.Note: 2}
	h.Codes = slices.SortedFunc(maps.Values(codes), func(x, y Count) int {
		return cmp.Or(cmp.Compare(rank[x.Kind.Severity], rank[y.Kind.Severity]), cmp.Compare(y.Found, x.Found),
			cmp.Compare(x.Kind.Code, y.Kind.Code))
	})
}

func (h *history) lane(c Card) Lane {
	l := Lane{Card: c, Marks: h.marks(c.ID), Held: h.held(c)}
	l.Blocks = h.blocks(c)
	for _, k := range l.Blocks {
		l.Jobs += k.Jobs
	}
	for _, look := range h.looks[c.ID] {
		if h.shows(look.at, look.at) {
			l.Last = look.at.In(h.Zone)
		}
	}
	for _, e := range h.Entries {
		if e.GPU == c.ID && e.Grave() > 1 {
			l.Found++
		}
	}
	return l
}
