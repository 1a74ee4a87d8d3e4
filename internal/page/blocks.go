package page

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/gpu"
)

// Block is one job on a card, or several that are too short to be told apart.
type Block struct {
	Span
	Row     int
	Rows    int // how many of the jobs around it stand on top of each other, with it
	Jobs    int
	Job     string // its name; of several none
	User    string // raw, as Job's other strings are not
	Start   time.Time
	End     time.Time
	Running bool
	NoStart bool
	NoEnd   bool
	// Most is the most memory seen in use meanwhile, a lower bound; Share is that of the card's.
	Most  gpu.Figure
	Share float64
	Found int // findings of its two ends on this card
}

// mostRows is how many jobs that share a card are drawn apart.
const mostRows = 4

// blocks are the jobs of a card in the time shown.
func (b book) blocks(c Card) []Block {
	var blocks []Block
	var small joiner
	list := b.stays[c.ID].list
	places := stack(list)
	for i, s := range list {
		if !b.shows(s.from, s.to) {
			continue
		}
		k := b.block(c, s)
		k.Row, k.Rows = places[i].row, places[i].rows
		if k.Width()*float64(b.cells) >= 1 {
			blocks = append(blocks, k)
		} else {
			small.add(k, b.cells)
		}
	}
	blocks = append(blocks, small.blocks...)
	slices.SortStableFunc(blocks,
		func(x, y Block) int { return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.Row, y.Row)) })
	return blocks
}

// place is where a job stands among those that had a card at one time.
type place struct{ row, rows int }

// stack gives each stay the first row that is free when it begins, the last where none is. Those that no moment parts
// share a number of rows.
func stack(list []stay) []place {
	places := make([]place, len(list))
	var free [mostRows]time.Time
	first, until := 0, time.Time{}
	for i, s := range list {
		if !s.from.Before(until) {
			first, free = i, [mostRows]time.Time{}
		}
		row := slices.IndexFunc(free[:], func(t time.Time) bool { return !s.from.Before(t) })
		if row < 0 {
			row = mostRows - 1
		}
		free[row], until = later(free[row], s.to), later(until, s.to)
		places[i] = place{row, max(row+1, places[max(i-1, first)].rows)}
		for k := i - 1; k >= first && places[k].rows < places[i].rows; k-- {
			places[k].rows = places[i].rows
		}
	}
	return places
}

func (b book) block(c Card, s stay) Block {
	k := Block{
		Span: b.span(s.from, s.to), Jobs: 1, Job: s.run.JobName(), User: s.run.Job.User, Start: s.from.In(b.zone),
		End:     s.to.In(b.zone),
		Running: s.running, NoStart: s.noStart, NoEnd: s.noEnd, Most: s.most,
	}
	if c.Total.Known() && c.Total.Bytes > 0 && s.most.Known() {
		k.Share = min(float64(s.most.Bytes)/float64(c.Total.Bytes), 1)
	}
	for _, e := range s.run.Both() {
		for _, f := range e.Findings {
			if f.GPU == c.ID {
				k.Found++
			}
		}
	}
	return k
}

// joiner joins the blocks of one row that begin in the same cell.
type joiner struct {
	blocks []Block
	last   map[[3]int]int // of a row, its rows and a cell: where its block is
}

func (j *joiner) add(k Block, cells int) {
	if j.last == nil {
		j.last = map[[3]int]int{}
	}
	cell := [3]int{k.Row, k.Rows, int(k.From * float64(cells))}
	at, joined := j.last[cell]
	if !joined {
		j.last[cell] = len(j.blocks)
		j.blocks = append(j.blocks, k)
		return
	}
	o := &j.blocks[at]
	o.Jobs, o.Found, o.Job, o.User = o.Jobs+1, o.Found+k.Found, "", ""
	o.To, o.End = max(o.To, k.To), later(o.End, k.End)
	o.Running, o.NoStart, o.NoEnd = o.Running || k.Running, o.NoStart && k.NoStart, o.NoEnd || k.NoEnd
	if k.Most.Known() && (!o.Most.Known() || k.Most.Bytes > o.Most.Bytes) {
		o.Most, o.Share = k.Most, k.Share
	}
}

// overlaps are the times in which several jobs had a card at once.
func (b book) overlaps(c Card) []Span {
	var spans []Span
	var latest stay
	for i, s := range b.stays[c.ID].list {
		if i > 0 && s.from.Before(latest.to) && !latest.noEnd && latest.run.Job.ID != s.run.Job.ID {
			to := latest.to
			if s.to.Before(to) {
				to = s.to
			}
			if b.shows(s.from, to) {
				spans = join(spans, b.span(s.from, to), b.cells)
			}
		}
		if i == 0 || s.to.After(latest.to) {
			latest = s
		}
	}
	return spans
}

// join adds a span, to the last one where they touch.
func join(spans []Span, s Span, cells int) []Span {
	if n := len(spans); n > 0 && s.From-spans[n-1].To < 1/float64(cells) {
		spans[n-1].To = max(spans[n-1].To, s.To)
		return spans
	}
	return append(spans, s)
}
