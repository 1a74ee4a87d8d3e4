package page

import (
	"time"

	"bookend/internal/ledger"
)

// axis is the time shown.
type axis struct {
	since, until time.Time
	now          time.Time // after it nothing is known
	zone         *time.Location
}

// shortest is the least time shown: a node with one look on record has a chart too.
const shortest = time.Minute

func newAxis(runs []ledger.Run, r Request) axis {
	first, last := ends(runs, r.Check)
	a := axis{since: r.Since, until: r.Until, now: r.Now, zone: r.Zone}
	if a.now.IsZero() {
		a.now = last
	}
	if a.until.IsZero() {
		a.until = a.now
	}
	if a.since.IsZero() {
		a.since = first
	}
	if a.until.Sub(a.since) < shortest {
		if r.Since.IsZero() {
			a.since = a.until.Add(-shortest)
		} else {
			a.until = a.since.Add(shortest)
		}
	}
	if r.Since.IsZero() {
		a.since = a.since.Add(-a.until.Sub(a.since) / margin) // the first block begins a little inside
	}
	a.since, a.until, a.now = a.since.In(r.Zone), a.until.In(r.Zone), a.now.In(r.Zone)
	return a
}

// margin is the part of the time shown that lies before the first look.
const margin = 100

// ends are the first and the last moment on record.
func ends(runs []ledger.Run, check *ledger.Check) (first, last time.Time) {
	meet := func(t time.Time) {
		if t.IsZero() {
			return
		}
		if first.IsZero() || t.Before(first) {
			first = t
		}
		last = later(last, t)
	}
	for _, r := range runs {
		for _, e := range r.Both() {
			meet(e.Wall)
		}
	}
	if check != nil {
		meet(check.Wall)
	}
	return first, last
}

// at is the place of a moment, cut to what is shown.
func (a axis) at(t time.Time) float64 {
	whole := a.until.Sub(a.since)
	if whole <= 0 {
		return 0
	}
	return min(max(float64(t.Sub(a.since))/float64(whole), 0), 1)
}

// shows reports that a part of from to to is in the time shown.
func (a axis) shows(from, to time.Time) bool { return !to.Before(a.since) && !from.After(a.until) }

func (a axis) span(from, to time.Time) Span { return Span{a.at(from), a.at(to)} }

// Tick is a line across the lanes with its label.
type Tick struct {
	At    float64
	Label string
	Day   bool // a day begins
}

// step is a distance of ticks: of days, or of less than one.
type step struct {
	days int
	time time.Duration
}

var steps = []step{
	{0, 10 * time.Second}, {0, 30 * time.Second}, {0, time.Minute}, {0, 5 * time.Minute}, {0, 15 * time.Minute},
	{0, 30 * time.Minute},
	{0, time.Hour}, {0, 2 * time.Hour}, {0, 3 * time.Hour}, {0, 6 * time.Hour}, {0, 12 * time.Hour}, {1, 0}, {2, 0},
	{7, 0}, {14, 0}, {28, 0}, {91, 0}, {364, 0},
}

// mostTicks is how many labels stand beside each other without touching, at zoom 1.
const mostTicks = 9

func ticks(a axis) [][]Tick {
	all := make([][]Tick, len(Zooms))
	for i, zoom := range Zooms {
		all[i] = a.ticks(mostTicks * zoom)
	}
	return all
}

func (a axis) ticks(most int) []Tick {
	s := a.step(most)
	var out []Tick
	for t := a.first(s); !t.After(a.until); t = s.after(t) {
		if !t.Before(a.since) && len(out) <= most {
			day := t.Hour() == 0 && t.Minute() == 0 && t.Second() == 0
			out = append(out, Tick{At: a.at(t), Label: s.label(t, day), Day: day})
		}
	}
	return out
}

// step is the smallest that gives no more than most ticks.
func (a axis) step(most int) step {
	whole := a.until.Sub(a.since)
	for _, s := range steps {
		if whole/s.length() < time.Duration(most) {
			return s
		}
	}
	last := steps[len(steps)-1]
	last.days *= 1 + int(whole/last.length())/most
	return last
}

func (s step) length() time.Duration { return s.time + time.Duration(s.days)*24*time.Hour }

// first is a tick at or before the beginning: a day's first moment, of whole weeks a Monday's.
func (a axis) first(s step) time.Time {
	day := time.Date(a.since.Year(), a.since.Month(), a.since.Day(), 0, 0, 0, 0, a.zone)
	if s.days >= 7 {
		day = day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
	}
	if s.days > 0 {
		return day
	}
	return day.Add(a.since.Sub(day) / s.time * s.time)
}

// after is the next tick. Days are the calendar's: some have 23 or 25 hours, and after those hours count from midnight.
func (s step) after(t time.Time) time.Time {
	if s.days > 0 {
		return t.AddDate(0, 0, s.days)
	}
	next := t.Add(s.time)
	midnight := time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, t.Location())
	if next.After(midnight) {
		return midnight
	}
	return next
}

func (s step) label(t time.Time, day bool) string {
	switch {
	case s.days >= 91:
		return t.Format("Jan 2006")
	case day:
		return t.Format("2 Jan")
	case s.time < time.Minute:
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}
