package page

import (
	"math"
	"slices"
	"sort"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
)

// stay is a job's time on one card.
type stay struct {
	run      *ledger.Run
	from, to time.Time
	// running: it has not ended. noStart and noEnd: that end is not on record, and from or to only bounds it.
	running, noStart, noEnd bool
	most                    gpu.Figure // the most memory that was seen in use meanwhile
}

const nobodySaw = "nobody looked meanwhile"

// guests are the jobs of one card in the order in which they came.
type guests struct {
	list   []stay
	latest []time.Time // the last end of each and all before it
}

// at calls f for each stay that held the card at a moment, both ends included, until f returns false.
func (g guests) at(t time.Time, f func(i int) bool) {
	after := sort.Search(len(g.list), func(i int) bool { return g.list[i].from.After(t) })
	for i := after - 1; i >= 0 && !g.latest[i].Before(t); i-- {
		if !g.list[i].to.Before(t) && !f(i) {
			return
		}
	}
}

// holds reports that a job had the card at a moment.
func (g guests) holds(t time.Time) (held bool) {
	g.at(t, func(int) bool { held = true; return false })
	return held
}

// runs reports that a moment fell between a job's own two looks.
func (g guests) runs(t time.Time) (runs bool) {
	g.at(t, func(i int) bool {
		runs = g.list[i].from.Before(t) && t.Before(g.list[i].to)
		return !runs
	})
	return runs
}

// guestsOf are the jobs of each card.
func guestsOf(runs []ledger.Run, now time.Time) map[gpu.ID]guests {
	out := map[gpu.ID]guests{}
	for id, list := range staysOf(runs, now) {
		g := guests{list: list, latest: make([]time.Time, len(list))}
		for i, s := range list {
			g.latest[i] = s.to
			if i > 0 {
				g.latest[i] = later(s.to, g.latest[i-1])
			}
		}
		out[id] = g
	}
	return out
}

// staysOf are the jobs of each card, in the order in which they came.
func staysOf(runs []ledger.Run, now time.Time) map[gpu.ID][]stay {
	all := map[gpu.ID][]stay{}
	for i := range runs {
		s, ok := stayOf(&runs[i], now)
		if !ok {
			continue
		}
		for _, d := range runs[i].Devices {
			if id := idOf(runs[i], d); id != "" {
				all[id] = append(all[id], s)
			}
		}
	}
	for _, list := range all {
		slices.SortStableFunc(list, func(a, b stay) int { return a.from.Compare(b.from) })
	}
	endUnknown(runs, all)
	return all
}

func stayOf(r *ledger.Run, now time.Time) (stay, bool) {
	if r.First() == nil {
		return stay{}, false
	}
	s := stay{run: r, from: r.First().Wall, most: gpu.Unknown(nobodySaw)}
	switch {
	case r.EndSeen():
		s.to = r.Epilog().Wall
	case r.Closed():
		s.to, s.noEnd = overBy(*r), true
	default:
		s.to, s.running = now, true
	}
	if r.Start == nil {
		s.noStart = true
		if begun := r.Job.Start; !begun.IsZero() && begun.Before(s.from) {
			s.from = begun // Slurm's word: nobody looked then
		}
	}
	if s.to.Before(s.from) { // the clock was set back
		s.to = s.from
	}
	return s, true
}

// overBy is when a run of which no end was seen was over: when the health check says, or else when it said so.
func overBy(r ledger.Run) time.Time {
	e := r.Ends[0]
	if r.Start != nil && e.At > r.Start.At {
		if by := r.Start.Wall.Add(e.At - r.Start.At); by.Before(e.Wall) {
			return by
		}
	}
	return e.Wall
}

// endUnknown bounds the runs that are over though no epilog has run: by the next job of the card, or by what says that
// they are over.
func endUnknown(runs []ledger.Run, all map[gpu.ID][]stay) {
	over := map[*ledger.Run]time.Time{}
	for i := range runs {
		r := &runs[i]
		if _, is := r.Superseded(runs); is && r.First() != nil {
			over[r] = since(runs, *r)
		} else if r.Closed() && !r.EndSeen() {
			over[r] = overBy(*r)
		}
	}
	for _, list := range all {
		for i := range list {
			end, is := over[list[i].run]
			if !is {
				continue
			}
			for _, next := range list[i+1:] {
				if next.from.After(list[i].from) && (end.IsZero() || next.from.Before(end)) {
					end = next.from
					break
				}
			}
			list[i].running, list[i].noEnd = false, true
			list[i].to = later(list[i].from, end)
		}
	}
}

// since is the wall time of the first record that says that a run is over: its job again, or another boot.
func since(runs []ledger.Run, r ledger.Run) (at time.Time) {
	for _, o := range runs {
		f := o.First()
		again := o.Job.ID == r.Job.ID || o.Epoch.Boot != "" && r.Epoch.Boot != "" && o.Epoch.Boot != r.Epoch.Boot
		if f != nil && again && f.Wall.After(r.First().Wall) && (at.IsZero() || f.Wall.Before(at)) {
			at = f.Wall
		}
	}
	return at
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// seeUse notes of each stay the most memory that anybody saw in use during it: hooks of other jobs, health checks, its
// own end, and the driver's accounting where that is on. All of them are lower bounds.
func (b book) seeUse(sighted ledger.Sighted) {
	for id, g := range b.stays {
		list := g.list
		for i := range list {
			list[i].useOf(id, sighted)
		}
		for _, l := range b.looks[id] {
			g.at(l.at, func(i int) bool {
				list[i].sawAt(l)
				return true
			})
		}
	}
}

// sawAt notes what a look between a stay's own two saw. At its end what is not there any more says nothing of it.
func (s *stay) sawAt(l look) {
	between := l.at.After(s.from) && (s.running || l.at.Before(s.to))
	atEnd := l.at.Equal(s.to) && !s.running && l.used.Known() && l.used.Bytes >= finding.WorthTelling
	if between || atEnd {
		s.use(l.used)
	}
}

// useOf notes what accounting and health checks say of one card.
func (s *stay) useOf(id gpu.ID, sighted ledger.Sighted) {
	until := time.Duration(math.MaxInt64)
	for _, e := range s.run.Ends {
		until = min(until, e.At)
		for _, h := range e.Health {
			if h.Device == id {
				s.use(peak(h.Accounting, *s))
			}
		}
	}
	for _, seen := range sighted.During(*s.run, s.run.Began(), until) {
		if seen.Device == id {
			s.use(seen.Bytes)
		}
	}
}

func (s *stay) use(f gpu.Figure) {
	if f.Known() && (!s.most.Known() || f.Bytes > s.most.Bytes) {
		s.most = f
	}
}

// peak is the most that one process of accounting held that began during a stay.
func peak(a gpu.Accounting, s stay) gpu.Figure {
	most := gpu.Unknown(nobodySaw)
	for _, p := range a.Processes {
		if p.Peak.Known() && !p.Began.Before(s.from) && !p.Began.After(s.to) &&
			(!most.Known() || p.Peak.Bytes > most.Bytes) {
			most = p.Peak
		}
	}
	return most
}
