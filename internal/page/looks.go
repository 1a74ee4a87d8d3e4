package page

import (
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
)

// look is what one hook saw of one card.
type look struct {
	at    time.Time
	epoch gpu.Epoch
	used  gpu.Figure
	// left says whether anything was on the card that no running job has a right to, and bytes how much, where known.
	left  answer
	bytes gpu.Figure
	by    string // who looked
	aside bool   // who was not there for a job of this card
}

// answer is whether something stayed on a card.
type answer int

const (
	cannotTell answer = iota
	nothing
	something
	unclaimed // it is in use, and no record says by whom: a job without one may be running
)

// looksOf are the looks at each card, in their order.
func looksOf(runs []ledger.Run, check *ledger.Check, stays map[gpu.ID]guests) map[gpu.ID][]look {
	all := map[gpu.ID][]look{}
	for _, r := range runs {
		for _, d := range r.Devices {
			id := idOf(r, d)
			var start *look
			for i, e := range r.Both() {
				if e.Unseen != "" {
					continue
				}
				l := lookAt(r, e, id, start, stays[id])
				if i == 0 && r.Start != nil {
					start = &l
				}
				all[id] = append(all[id], l)
			}
		}
		for _, e := range r.Both() {
			if e.Neighbours != nil {
				aside(all, look{at: e.Wall, epoch: r.Epoch, by: byHook(r)}, *e.Neighbours, nil, stays)
			}
		}
	}
	if check != nil && !check.Stopped {
		aside(all, look{at: check.Wall, epoch: check.Epoch, by: "the health check"}, check.Snapshot, check.Leaked,
			stays)
	}
	for _, list := range all {
		slices.SortStableFunc(list, func(a, b look) int { return a.at.Compare(b.at) })
		goOn(list)
	}
	return all
}

// goOn says of use that was seen from aside, on a card that no job on record has, what it is: what was left before,
// where something was.
func goOn(list []look) {
	last := look{}
	for i := range list {
		l := &list[i]
		if l.left == unclaimed && last.left == something && !last.epoch.Changed(l.epoch) {
			l.left, l.bytes = something, l.used
			if last.bytes.Known() {
				l.bytes.Bytes = min(l.bytes.Bytes, last.bytes.Bytes)
			}
		}
		if l.left != cannotTell {
			last = *l
		}
	}
}

// lookAt is a hook's look at a card of its own job; start is that at the job's start, nil for that itself.
func lookAt(r ledger.Run, e ledger.End, id gpu.ID, start *look, others guests) look {
	l := look{at: e.Wall, epoch: r.Epoch, used: gpu.Unknown("not read"), bytes: gpu.Bytes(0), by: byHook(r)}
	reading, read := e.Snapshot.Reading(id)
	if read && reading.Memory.Unjudged == "" && !reading.Memory.UsedHasReserved {
		l.used = reading.Memory.Used
	}
	if start != nil && start.left == something && start.bytes.Known() && l.used.Known() {
		// What a job got and gave back so is no finding of its end.
		l.found(min(start.bytes.Bytes, l.used.Bytes))
	}
	carried := l.left == something
	beside := start == nil && others.runs(e.Wall) // what a start finds beside another job of the card is that one's
	for _, f := range e.Findings {
		whose := f.Code.Traits().Memory
		if f.GPU == id && f.Unknown == "" && (whose.Stays() || whose == code.Inherited && !carried && !beside) {
			l.take(f)
		}
	}
	if l.used.Known() && l.bytes.Known() {
		l.bytes.Bytes = min(l.bytes.Bytes, l.used.Bytes)
	}
	blind := beside || start != nil && start.left == cannotTell // what is no more than at the start tells nothing of it
	if l.left != something && !blind && settled(e, id, l.used) {
		l.left = nothing
	}
	return l
}

func (l *look) found(bytes uint64) {
	if bytes >= finding.WorthTelling {
		l.left, l.bytes = something, gpu.Bytes(bytes)
	}
}

func (l *look) take(f finding.Finding) {
	l.left = something
	switch {
	case !f.Bytes.Known():
		l.bytes = f.Bytes
	case l.bytes.Known():
		l.bytes.Bytes += f.Bytes.Bytes
	}
}

// settled reports that a look without a leftover says that there was none.
func settled(e ledger.End, id gpu.ID, used gpu.Figure) bool {
	for _, f := range e.Findings {
		if entry, _ := code.Lookup(f.Code); f.GPU == id && (f.Unknown != "" || f.Code == code.Lost) &&
			entry.Scope == code.Card {
			return false
		}
	}
	state := e.Curves[id].State
	return state.AtRest() || state == "" && used.Known() && used.Bytes < finding.WorthTelling
}

func byHook(r ledger.Run) string { return "a hook of job " + r.JobName() }

// aside adds what was seen of cards by who was not there for their jobs: hooks of jobs with other cards, and health
// checks, which say what was leaked. Of a card that a job has only the memory in use counts.
func aside(all map[gpu.ID][]look, like look, s gpu.Snapshot, leaked map[gpu.ID]uint64, stays map[gpu.ID]guests) {
	for _, reading := range s.Readings {
		l, id := like, reading.Device.ID
		l.aside, l.used, l.bytes = true, gpu.Unknown("not read"), gpu.Bytes(0)
		if reading.Memory.Unjudged == "" && !reading.Memory.UsedHasReserved {
			l.used = reading.Memory.Used
		}
		switch {
		case leaked[id] > 0:
			l.found(leaked[id])
		case !l.used.Known() || stays[id].holds(l.at):
		case l.used.Bytes > finding.MaxBaseline:
			l.left, l.bytes = unclaimed, l.used
		default:
			l.left = nothing
		}
		all[id] = append(all[id], l)
	}
}
