package page

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Request is what a chart is to show.
type Request struct {
	// Since and Until limit the time shown. If zero, it begins at the first record and ends at Now.
	Since, Until time.Time
	// Now is when the records were read. If zero, they are a copy, and the time of their last sample is used.
	Now   time.Time
	Check *record.Check // the last health check, nil if none is recorded
}

// Chart is a node's records as the page draws them.
type Chart struct {
	Since, Until time.Time
	// First and Last are the times of the first and the last recorded sample, shown or not; zero if there is none.
	First, Last time.Time
	Ticks       []Tick
	Lanes       []Lane
	Node        []Mark // findings that concern no single GPU
	// Entries are the findings in the time shown, latest first. Marks refer to them by index.
	Entries                           []Entry
	Codes                             []Count // most serious first, then most frequent
	Jobs, Running, Drains, HeldDrains int
}

// Lane is one GPU over time.
type Lane struct {
	GPU    GPU
	Blocks []Block
	Held   []Held
	Marks  []Mark
}

// GPU is a GPU or MIG instance, with the details of its latest record.
type GPU struct {
	Index  *int // Slurm's; nil if no record has it
	Device gpu.Device
	Total  gpu.Figure
}

// Count is how often a code was found.
type Count struct {
	Kind  catalog.Entry
	Found int
}

// layout holds the records, sorted by GPU, and the chart made from them.
type layout struct {
	Chart
	ask     Request
	runs    []record.Run // by last sample, oldest first
	samples []sample
	jobs    map[gpu.ID][]Block // sorted by start
	looks   map[gpu.ID][]look
}

// Lay makes a Chart of the records: each GPU is a lane, jobs are Blocks, leftover memory between two samples is Held,
// and findings are Marks. Positions are fractions of the time shown. What no sample recorded is not drawn.
func Lay(runs []record.Run, r Request) Chart {
	h := layout{runs: record.Newest(runs), ask: r, jobs: map[gpu.ID][]Block{}, looks: map[gpu.ID][]look{}}
	slices.Reverse(h.runs)
	h.readSamples()
	h.period()
	h.ticks()
	h.readJobs()
	h.readLooks()
	h.readEntries()
	for _, c := range h.gpus() {
		h.Lanes = append(h.Lanes, Lane{GPU: c, Marks: h.marks(c.Device.ID), Held: h.held(c), Blocks: h.blocks(c)})
	}
	h.Node = h.marks("")
	h.count()
	return h.Chart
}

// sample is what a hook or the health check recorded at one time, and the GPUs with Slurm's indexes.
type sample struct {
	at    time.Time
	given []record.Assigned
	seen  gpu.Snapshot
}

func (h *layout) readSamples() {
	for _, r := range h.runs {
		for _, e := range r.AllEnds() {
			h.samples = append(h.samples, sample{e.Wall, r.Devices, e.Snapshot})
		}
	}
	if c := h.ask.Check; c != nil {
		h.samples = append(h.samples, sample{c.Wall, c.Cards, c.Snapshot})
	}
}

// shortest is the least time shown, so that a node with one recorded sample also has a chart.
const shortest = time.Minute

func (h *layout) period() {
	for _, s := range h.samples {
		if !s.at.IsZero() && (h.First.IsZero() || s.at.Before(h.First)) {
			h.First = s.at
		}
		h.Last = later(h.Last, s.at)
	}
	h.ask.Now = cmp.Or(h.ask.Now, h.Last)
	until := cmp.Or(h.ask.Until, h.ask.Now)
	h.Since = cmp.Or(h.ask.Since, h.First, until.Add(-shortest))
	h.Until = later(until, h.Since.Add(shortest))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (c Chart) at(t time.Time) float64 {
	return min(max(float64(t.Sub(c.Since))/float64(c.Until.Sub(c.Since)), 0), 1)
}

func (c Chart) shows(from, to time.Time) bool { return !to.Before(c.Since) && !from.After(c.Until) }

// Tick is a labelled line across the lanes.
type Tick struct {
	At    float64
	Label string
	Day   bool // midnight
}

var steps = []int{1, 5, 15, 30, 60, 2 * 60, 3 * 60, 6 * 60, 12 * 60, aDay, 2 * aDay, 7 * aDay, 14 * aDay}

const (
	aDay      = 24 * 60
	mostTicks = 9 // labels that fit next to each other
)

func (h *layout) ticks() {
	minutes, step := int(h.Until.Sub(h.Since)/time.Minute), steps[0]
	for i := 1; minutes/step >= mostTicks; i++ {
		if step *= 2; i < len(steps) {
			step = steps[i]
		}
	}
	year, month, date := h.Since.Local().Date()
	for n := 0; ; n += step {
		// Minutes of the calendar: when clocks change, a day has 23 or 25 hours but only one midnight.
		t := time.Date(year, month, date, 0, n, 0, 0, time.Local)
		if t.After(h.Until) {
			return
		}
		form := "15:04"
		if n%aDay == 0 {
			form = "2 Jan"
		}
		if !t.Before(h.Since) {
			h.Ticks = append(h.Ticks, Tick{At: h.at(t), Label: t.Format(form), Day: n%aDay == 0})
		}
	}
}

// gpus returns the recorded GPUs by Slurm's index, followed by those that were given to no job.
func (h *layout) gpus() []GPU {
	known := map[gpu.ID]GPU{}
	of := func(d gpu.Device) GPU {
		if g, met := known[d.ID]; met {
			return g
		}
		return GPU{Device: d, Total: gpu.Unknown("never read")}
	}
	for _, s := range h.samples {
		for _, r := range s.seen.Readings {
			g := of(r.Device)
			if r.Memory.Total.Known() {
				g.Total = r.Memory.Total
			}
			r.Device.Name = cmp.Or(r.Device.Name, g.Device.Name)
			g.Device = r.Device
			known[r.Device.ID] = g
		}
		for _, d := range s.given {
			g := of(d.Device)
			if d.Index >= 0 {
				g.Index = &d.Index
			}
			known[d.Device.ID] = g
		}
	}
	delete(known, "") // without an ID no lane can be drawn
	return slices.SortedFunc(maps.Values(known), func(a, b GPU) int {
		return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(a.Device.ID, b.Device.ID))
	})
}

func (g GPU) order() int { return *cmp.Or(g.Index, new(math.MaxInt)) }

func (h *layout) count() {
	codes := map[catalog.Code]Count{}
	for _, e := range h.Entries {
		codes[e.Finding.Code] = Count{e.Kind, codes[e.Finding.Code].Found + 1}
	}
	h.Codes = slices.SortedFunc(maps.Values(codes), func(x, y Count) int {
		return cmp.Or(cmp.Compare(Entry{Kind: y.Kind}.Grave(), Entry{Kind: x.Kind}.Grave()),
			cmp.Compare(y.Found, x.Found), cmp.Compare(x.Kind.Code, y.Kind.Code))
	})
}

// Entry is one finding in the time shown, with where it was made and what policy decided.
type Entry struct {
	At      time.Time
	Phase   string // start, end, health check
	Job     string // empty for a health check
	User    string // unescaped
	Finding record.Finding
	Kind    catalog.Entry
	Judged  record.Judged
	Drained bool // the hook drained the node for this finding's code
}

// readEntries collects the findings in the time shown, except those that policy ignores.
func (h *layout) readEntries() {
	for _, r := range h.runs {
		for i, e := range r.AllEnds() {
			of := Entry{At: e.Wall, Phase: "end", Job: r.JobName(), User: r.Job.User}
			if i == 0 && r.Start != nil {
				of.Phase = "start"
			}
			h.enter(of, e.Findings, e.Verdict)
		}
	}
	if c := h.ask.Check; c != nil {
		h.enter(Entry{At: c.Wall, Phase: "health check"}, c.Findings, c.Verdict)
	}
	slices.SortStableFunc(h.Entries, func(x, y Entry) int { return y.At.Compare(x.At) })
}

func (h *layout) enter(of Entry, found []record.Finding, v record.Verdict) {
	if !h.shows(of.At, of.At) {
		return
	}
	for n, f := range found {
		of.Finding, of.Judged = f, v.Of(n)
		of.Drained = v.Action == catalog.ToDrain && v.Exit != 0 && v.Code == f.Code
		kind, known := catalog.Lookup(f.Code)
		if !known { // from another release
			kind = catalog.Entry{Code: f.Code, Severity: catalog.Warning, Title: "not known to this release"}
		}
		of.Kind = kind
		if of.Judged.Action != catalog.ToIgnore {
			h.Entries = append(h.Entries, of)
		}
	}
}

// Grave ranks findings for places that have room for only one.
func (e Entry) Grave() int {
	weight := map[catalog.Severity]int{catalog.Serious: 3, catalog.Warning: 2, catalog.Note: 1}[e.Kind.Severity]
	switch {
	case e.Drained:
		return 4
	case e.Judged.Action == catalog.ToNote:
		return min(weight, 1)
	}
	return weight
}

// Mark stands for findings of a lane that are close in time, most serious first.
type Mark struct {
	At      float64
	Entries []int // indexes into Chart.Entries
}

// markWidth is the fraction of a lane that a mark covers. Findings closer to each other share one mark.
const markWidth = 1.0 / 64

func (c Chart) marks(id gpu.ID) (marks []Mark) {
	for i, e := range slices.Backward(c.Entries) { // entries are sorted latest first
		if e.Finding.GPU != id {
			continue
		}
		at := c.at(e.At)
		if n := len(marks); n == 0 || at-marks[n-1].At >= markWidth {
			marks = append(marks, Mark{At: at})
		}
		m := &marks[len(marks)-1]
		m.Entries = append(m.Entries, i)
	}
	for _, m := range marks {
		slices.SortStableFunc(m.Entries,
			func(x, y int) int { return cmp.Compare(c.Entries[y].Grave(), c.Entries[x].Grave()) })
	}
	return marks
}
