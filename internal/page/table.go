package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/report"
)

// empty is said where there is nothing to draw.
type empty struct{ Title, Text string }

func (r Report) empty() *empty {
	c := r.Chart
	switch {
	case c.First.IsZero():
		return &empty{"No records yet",
			"No hook has written a record on this node: no job with GPUs has run since Bookend was installed, " +
				"or Prolog and Epilog are not set in slurm.conf. bookend doctor says which."}
	case c.Total.Jobs == 0 && len(c.Entries) == 0 &&
		!slices.ContainsFunc(c.Lanes, func(l Lane) bool { return len(l.Held) > 0 }):
		return &empty{"Nothing on record in this time", fmt.Sprintf("The records of this node reach from %s to %s.",
			c.First.In(c.Since.Location()).Format(stamp), c.Last.In(c.Since.Location()).Format(stamp))}
	}
	return nil
}

// tile is one figure of the summary.
type tile struct{ Figure, Name, Note, Class string }

func (r Report) tiles() []tile {
	c, t := r.Chart, r.Chart.Total
	jobs := tile{Figure: thousands(t.Jobs), Name: plural(t.Jobs, "job", "jobs")}
	if t.Running > 0 {
		jobs.Note = fmt.Sprintf("%s without an end yet", thousands(t.Running))
	}
	found := tile{Figure: thousands(len(c.Entries)), Name: plural(len(c.Entries), "finding", "findings")}
	if n := grave(c); n > 0 {
		found.Note, found.Class = fmt.Sprintf("%s serious", thousands(n)), "bad"
	}
	drains := tile{Figure: thousands(t.Drains), Name: plural(t.Drains, "drain", "drains")}
	if t.Drains > 0 {
		drains.Class = "bad"
	}
	gpus := tile{Figure: fmt.Sprint(len(c.Lanes)), Name: plural(len(c.Lanes), "GPU", "GPUs"), Note: string(models(c))}
	return []tile{gpus, jobs, found, drains, r.lemonTile()}
}

// models is what all cards are, if they are the same.
func models(c Chart) report.Safe {
	for _, l := range c.Lanes {
		if l.Card.Name != c.Lanes[0].Card.Name {
			return ""
		}
	}
	if len(c.Lanes) == 0 {
		return ""
	}
	return report.Clean(c.Lanes[0].Card.Name, nameWidth)
}

// lemonTile names the cards on which the same is found again and again.
func (r Report) lemonTile() tile {
	var names []string
	for _, id := range r.Lemons {
		if i := slices.IndexFunc(r.Chart.Lanes, func(l Lane) bool { return l.Card.ID == id }); i >= 0 {
			names = append(names, cardName(r.Chart.Lanes[i].Card))
		}
	}
	t := tile{Figure: fmt.Sprint(len(names)), Name: plural(len(names), "lemon", "lemons"),
		Note: "the same found in two runs or more"}
	if len(names) > 0 {
		t.Class, t.Note = "odd", strings.Join(names[:min(len(names), mostLemons)], ", ")
	}
	if more := len(names) - mostLemons; more > 0 {
		t.Note += fmt.Sprintf(" and %d more", more)
	}
	return t
}

func grave(c Chart) (n int) {
	for _, e := range c.Entries {
		if e.Grave() >= 3 {
			n++
		}
	}
	return n
}

// mostLemons is how many are named in the summary.
const mostLemons = 4

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// thousands groups digits by a thin gap, as many readers' commas and points mean different things.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// chip is a code with how often it was found.
type chip struct{ ID, Code, Title, Count, Shape string }

func (k words) chips() []chip {
	var out []chip
	for _, n := range k.chart.Total.Codes {
		out = append(out, chip{k.codeID(n.Kind.Code), codeName(n.Kind), n.Kind.Title, thousands(n.Found),
			severity(n.Kind.Severity)})
	}
	return out
}

func severity(s code.Severity) string {
	if s == code.Note || s == code.Warning || s == code.Serious {
		return string(s)
	}
	return "note"
}

// ruler is one zoom's lines and labels.
type ruler struct {
	Zoom  int
	Ticks []tick
}

type tick struct{ X, Label, Class string }

// edge is how near to an end of the axis half a label has no room.
const edge = 0.035

func axes(c Chart) []ruler {
	var all []ruler
	for i, zoom := range Zooms {
		a := ruler{Zoom: zoom}
		for _, t := range c.Ticks[i] {
			a.Ticks = append(a.Ticks, tick{X: percent(t.At), Label: t.Label, Class: tickClass(t, edge/float64(zoom))})
		}
		all = append(all, a)
	}
	return all
}

// tickClass keeps a label from hanging over an end of the axis.
func tickClass(t Tick, near float64) string {
	class := ""
	if t.Day {
		class = "day"
	}
	switch {
	case t.At < near:
		class += " first"
	case t.At > 1-near:
		class += " last"
	}
	return class
}

// card is a lane in the table of cards.
type card struct {
	Name   string
	Lane   string
	Model  report.Safe
	ID     report.Safe
	Jobs   string
	Busy   string
	Found  string
	Left   string
	Last   string
	Lemon  bool
	Memory string
}

func (k words) card(c Chart, i int) card {
	l := c.Lanes[i]
	out := card{
		Name: cardName(l.Card), Lane: fmt.Sprintf("lane-%d", i), Model: model(l.Card),
		ID: report.Clean(string(l.Card.ID), nameWidth), Jobs: thousands(l.Sum.Jobs),
		Busy: lasting(l.Sum.Busy), Found: thousands(l.Sum.Found), Left: "-", Last: "never", Lemon: k.lemon(l.Card),
	}
	if t := l.Card.Total; t.Known() && t.Bytes > 0 {
		out.Memory = figure(t)
	}
	if l.Sum.Worst.Bytes > 0 {
		out.Left = "up to " + figure(gpu.Bytes(l.Sum.Worst.Bytes))
	}
	if l.Sum.Held > 0 {
		out.Left += ", for " + lasting(l.Sum.Held)
	}
	if !l.Sum.Last.IsZero() {
		out.Last = l.Sum.Last.Format(stamp)
	}
	return out
}

// row is a finding in the table.
type row struct {
	ID, When, Card, Block      string
	Shape, CodeID, Code, Title string
	Occasion                   string
	Seen                       report.Safe
	Whose, Outcome             string
	Why                        report.Safe
}

// mostListed bounds the table: a page is to open at once.
const mostListed = 500

// choose picks the findings that are listed: all, or the gravest, and of those the latest.
func choose(all []Entry) map[int]bool {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(all[b].Grave(), all[a].Grave()) })
	listed := map[int]bool{}
	for _, i := range order[:min(len(order), mostListed)] {
		listed[i] = true
	}
	return listed
}

func left(all, listed int) string {
	if all == listed {
		return ""
	}
	return fmt.Sprintf("The %d gravest of %s findings are listed; bookend history has all.", listed, thousands(all))
}

func (k words) rows(listed map[int]bool) []row {
	var out []row
	for i, e := range k.chart.Entries {
		if !listed[i] {
			continue
		}
		r := row{
			ID: fmt.Sprintf("f%d", i), When: e.At.Format(stamp), Shape: shape(e), CodeID: k.codeID(e.Kind.Code),
			Code:  codeName(e.Kind),
			Title: e.Kind.Title, Occasion: k.occasion(e), Seen: k.seen(e), Whose: whose(e), Outcome: outcome(e),
			Why: k.text(e.Judged.Why, textWidth),
		}
		r.Card, r.Block = k.place(e)
		out = append(out, r)
	}
	return out
}

// place names the card of a finding, and the block of the job that it was found at.
func (k words) place(e Entry) (card, block string) {
	for i, l := range k.chart.Lanes {
		if l.Card.ID != e.GPU {
			continue
		}
		block = fmt.Sprintf("lane-%d", i)
		for n, b := range l.Blocks {
			if !e.At.Before(b.Start) && !e.At.After(b.End) && (b.Job == e.Job || b.Jobs > 1) {
				block = fmt.Sprintf("b%d-%d", i, n)
				break
			}
		}
		return cardName(l.Card), block
	}
	return "-", ""
}

// explained is a code with its meaning.
type explained struct{ ID, Code, Title, Meaning, Remedy, Shape string }

func (k words) codes() []explained {
	var out []explained
	for _, n := range k.chart.Total.Codes {
		out = append(out, explained{k.codeID(n.Kind.Code), codeName(n.Kind), n.Kind.Title, n.Kind.Meaning,
			n.Kind.Remedy, severity(n.Kind.Severity)})
	}
	return out
}

// codeID is the place where a code is explained. One that this release does not know has a number: its name is a claim.
func (k words) codeID(c code.Code) string {
	if _, known := code.Lookup(c); known {
		return "code-" + string(c)
	}
	return fmt.Sprintf("code-%d",
		slices.IndexFunc(k.chart.Total.Codes, func(n Count) bool { return n.Kind.Code == c }))
}

func codeName(e code.Entry) string { return string(report.Clean(string(e.Code), nameWidth)) }
