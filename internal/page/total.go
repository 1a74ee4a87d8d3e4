package page

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
)

// Sum is what a lane comes to in the time shown.
type Sum struct {
	Jobs  int
	Busy  time.Duration // with a job on it, as far as on record
	Held  time.Duration // with something left on it, as far as looks saw both ends
	Worst gpu.Figure    // the most that was left
	Found int           // findings of this card that are no notes
	Last  time.Time     // of the looks at it; zero: none
}

// Count is how often a code was found.
type Count struct {
	Kind  code.Entry
	Found int
}

// Total is what the time shown comes to.
type Total struct {
	Jobs, Running, Drains int
	Codes                 []Count // the most grave first, then the most frequent
	Joined                bool    // some blocks stand for several jobs
}

func (b book) sum(c Card, held []Held, all []Entry) Sum {
	s := Sum{Worst: gpu.Bytes(0)}
	var until time.Time
	for _, st := range b.stays[c.ID].list {
		if !b.shows(st.from, st.to) {
			continue
		}
		s.Jobs++
		from, to := b.cut(later(st.from, until)), b.cut(st.to)
		if to.After(from) && !st.noEnd {
			s.Busy += to.Sub(from)
		}
		until = later(until, st.to)
	}
	for _, l := range b.looks[c.ID] {
		if b.shows(l.at, l.at) {
			s.Last = l.at.In(b.zone)
		}
	}
	for _, h := range held {
		if h.Unclaimed {
			continue
		}
		if h.Fate == Stayed {
			s.Held += b.cut(h.End).Sub(b.cut(h.Start))
		}
		if h.Bytes.Known() {
			s.Worst.Bytes = max(s.Worst.Bytes, h.Bytes.Bytes)
		}
	}
	for _, e := range all {
		if e.GPU == c.ID && e.Grave() > 1 {
			s.Found++
		}
	}
	return s
}

// cut moves a moment into the time shown.
func (b book) cut(t time.Time) time.Time {
	if t.Before(b.since) {
		return b.since
	}
	if t.After(b.until) {
		return b.until
	}
	return t
}

func total(b book, c Chart) Total {
	var t Total
	for _, r := range b.runs {
		s, ok := stayOf(&r, b.now)
		if !ok || !b.shows(s.from, s.to) || !b.onCards(r) {
			continue
		}
		t.Jobs++
		if r.Running(b.runs) {
			t.Running++
		}
		for _, e := range r.Both() {
			if e.Verdict.Action == config.Drain && e.Verdict.Exit != 0 && b.shows(e.Wall, e.Wall) {
				t.Drains++
			}
		}
	}
	t.Codes = counts(c.Entries)
	for _, l := range c.Lanes {
		t.Joined = t.Joined || slices.ContainsFunc(l.Blocks, func(k Block) bool { return k.Jobs > 1 })
	}
	return t
}

func counts(all []Entry) []Count {
	at := map[code.Code]int{}
	var out []Count
	for _, e := range all {
		i, met := at[e.Finding.Code]
		if !met {
			i = len(out)
			at[e.Finding.Code] = i
			out = append(out, Count{Kind: e.Kind})
		}
		out[i].Found++
	}
	rank := map[code.Severity]int{code.Serious: 0, code.Warning: 1, code.Note: 2}
	slices.SortStableFunc(out, func(x, y Count) int {
		return cmp.Or(cmp.Compare(rank[x.Kind.Severity], rank[y.Kind.Severity]), cmp.Compare(y.Found, x.Found),
			cmp.Compare(x.Kind.Code, y.Kind.Code))
	})
	return out
}
