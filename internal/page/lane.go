package page

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/report"
)

// Heights in a lane, in pixels: marks above (page.html.tmpl places them), blocks below.
const (
	bodyTop   = 26
	bodyTall  = 44
	laneTall  = bodyTop + bodyTall + 8
	rowGap    = 2
	leastUse  = 2 // what is known to be more than nothing is visible
	leastHeld = 6
	labelRoom = 6.6 // of one letter
	// narrow is the width of a lane on the smallest screens: a label that fits there fits everywhere.
	narrow = 600
)

// lane is one card as it is drawn.
type lane struct {
	ID     string
	Name   string
	Model  report.Safe
	Facts  string
	Lemon  bool
	Told   string // for those who do not see it
	Tall   int
	Blocks []block
	Helds  []held
	Laps   []rect
	Marks  []mark
}

// rect is a rectangle: percentages across, pixels down.
type rect struct{ X, W, Y, H, Tip string }

type block struct {
	rect
	ID      string
	Class   string
	Use     *rect
	Label   report.Safe
	LabelX  string
	LabelY  string
	LabelAt int // the smallest zoom at which it fits
}

type held struct {
	rect
	Class string
}

type mark struct {
	X, Tip string
	Link   string
	Shape  string
	Count  string
}

func percent(part float64) string { return fmt.Sprintf("%.3f%%", part*100) }

func pixels(n float64) string { return fmt.Sprintf("%.1f", n) }

func (k words) lane(l Lane, id string, listed map[int]bool) lane {
	out := lane{
		ID: id, Name: cardName(l.Card), Model: model(l.Card), Facts: facts(l.Sum), Lemon: k.lemon(l.Card),
		Told: told(l), Tall: laneTall, Marks: k.marks(l.Marks, listed),
	}
	for i, b := range l.Blocks {
		out.Blocks = append(out.Blocks, k.block(b, fmt.Sprintf("b%s-%d", id, i)))
	}
	for _, h := range l.Held {
		out.Helds = append(out.Helds, k.held(h))
	}
	for _, s := range l.Overlaps {
		tip := "more than one job had this card here"
		out.Laps = append(out.Laps, rect{X: percent(s.From), W: percent(s.Width()), Y: pixels(bodyTop - 3), H: "6",
			Tip: tip})
	}
	return out
}

func (k words) lemon(c Card) bool { return slices.Contains(k.lemons, c.ID) }

func model(c Card) report.Safe {
	return report.Clean(strings.TrimPrefix(c.Name, "NVIDIA "), nameWidth)
}

func facts(s Sum) string {
	text := count(s.Jobs, "job", "jobs")
	if s.Found > 0 {
		text += ", " + count(s.Found, "finding", "findings")
	}
	return text
}

// told is a lane in words.
func told(l Lane) string {
	text := cardName(l.Card) + ": " + facts(l.Sum)
	if l.Sum.Held > 0 {
		text += fmt.Sprintf(", something left on it for %s", lasting(l.Sum.Held))
	}
	return text
}

func (k words) block(b Block, id string) block {
	rows := b.Rows
	tall := (float64(bodyTall) - float64(rows-1)*rowGap) / float64(rows)
	top := bodyTop + float64(b.Row)*(tall+rowGap)
	out := block{
		rect: rect{X: percent(b.From), W: percent(b.Width()), Y: pixels(top), H: pixels(tall),
			Tip: string(k.blockTip(b))},
		ID: id, Class: blockClass(b),
	}
	if b.Most.Known() && b.Most.Bytes > 0 {
		h := max(b.Share*tall, leastUse)
		out.Use = &rect{X: out.X, W: out.W, Y: pixels(top + tall - h), H: pixels(h)}
	}
	label := b.Job
	if b.Jobs > 1 {
		label = count(b.Jobs, "job", "jobs")
	}
	for _, zoom := range Zooms {
		if tall >= 12 && b.Width()*narrow*float64(zoom) > float64(len(label)+1)*labelRoom {
			out.Label, out.LabelAt = report.Safe(label), zoom
			out.LabelX, out.LabelY = percent(b.From), pixels(top+12)
			break
		}
	}
	return out
}

func blockClass(b Block) string {
	class := "job"
	for _, c := range []struct {
		is   bool
		name string
	}{{b.Jobs > 1, "many"}, {b.Running, "running"}, {b.NoEnd, "noend"}, {b.NoStart, "nostart"}} {
		if c.is {
			class += " " + c.name
		}
	}
	return class
}

func (k words) blockTip(b Block) report.Safe {
	head := "Job " + b.Job
	if b.Jobs > 1 {
		head = count(b.Jobs, "job", "jobs") + ", too close to be told apart here"
	}
	if k.users && b.User != "" {
		head += " of " + string(report.Clean(b.User, nameWidth))
	}
	lines := []string{head, when(b)}
	if b.Most.Known() {
		lines = append(lines, "most memory seen in use: "+figure(b.Most))
	} else {
		lines = append(lines, "memory in use: nobody looked")
	}
	if b.Found > 0 {
		lines = append(lines, count(b.Found, "finding", "findings"))
	}
	return report.Safe(strings.Join(lines, "\n"))
}

func when(b Block) string {
	from, to := b.Start.Format(stamp), b.End.Format(stamp)
	if b.NoStart {
		from += " (start not on record)"
	}
	switch {
	case b.Running:
		return "since " + from + ", still running"
	case b.NoEnd:
		return from + ", end not on record, over by " + to
	}
	return fmt.Sprintf("%s to %s, %s", from, to, lasting(b.End.Sub(b.Start)))
}

var fates = map[Fate]string{
	Stayed: "still there at %s", Gone: "gone by %s", Unknown: "at %s nobody could tell",
	Unseen: "nobody has looked since, up to %s",
}

func (k words) held(h Held) held {
	tall := max(h.Share*bodyTall, leastHeld)
	out := held{Class: "held " + string(h.Fate), rect: rect{
		X: percent(h.From), W: percent(h.Width()), Y: pixels(bodyTop + bodyTall - tall), H: pixels(tall),
	}}
	if !h.Bytes.Known() {
		out.Class += " vague"
	}
	what := "left on the card"
	if h.Unclaimed {
		what = "in use, and no record says by whom: a job without a record may have had the card"
		out.Class += " unclaimed"
	}
	out.Tip = fmt.Sprintf("%s %s\nseen %s by %s, ", figure(h.Bytes), what, h.Start.Format(stamp), h.By) +
		fmt.Sprintf(fates[h.Fate], h.End.Format(stamp))
	return out
}

// marks are findings over a lane. One links to its row, or where that is not listed to what its code means.
func (k words) marks(all []Mark, listed map[int]bool) []mark {
	var out []mark
	for _, m := range all {
		first := m.Entries[0]
		e := k.chart.Entries[first]
		link := k.codeID(e.Kind.Code)
		if listed[first] {
			link = fmt.Sprintf("f%d", first)
		}
		one := mark{X: percent(m.At), Link: "#" + link, Shape: shape(e), Tip: k.markTip(m)}
		if n := len(m.Entries); n > 1 {
			one.Count = fmt.Sprint(min(n, mostCounted))
		}
		out = append(out, one)
	}
	return out
}

// mostCounted is the largest number that fits a mark.
const mostCounted = 99

// shape tells findings apart without colour.
func shape(e Entry) string {
	return [...]string{"note", "note", "warning", "serious", "drained"}[e.Grave()]
}

// mostTold is how many findings the text of one mark has in full.
const mostTold = 3

func (k words) markTip(m Mark) string {
	var parts []string
	for i, at := range m.Entries {
		if i == mostTold {
			parts = append(parts, fmt.Sprintf("and %d more", len(m.Entries)-i))
			break
		}
		parts = append(parts, k.tip(k.chart.Entries[at]))
	}
	return strings.Join(parts, "\n\n")
}

// tip is one finding in full: what, where, whose, what to do.
func (k words) tip(e Entry) string {
	lines := []string{fmt.Sprintf("%s: %s", codeName(e.Kind), e.Kind.Title)}
	lines = append(lines, fmt.Sprintf("%s, %s", k.occasion(e), e.At.Format(stamp)))
	if seen := string(k.seen(e)); seen != "" {
		lines = append(lines, seen)
	}
	if who := whose(e); who != "" {
		lines = append(lines, who)
	}
	lines = append(lines, outcome(e))
	if e.Kind.Remedy != "" {
		lines = append(lines, "Do: "+e.Kind.Remedy)
	}
	return strings.Join(lines, "\n")
}
