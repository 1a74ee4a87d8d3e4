package answer

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
)

// repeated is how many runs with the same finding make a GPU worth a look.
const repeated = 2

// Lemons is what "bookend history --repeat-offenders" says: GPUs on which the same was found in several runs, most
// first.
type Lemons struct {
	Head
	Node  string  `json:"node"`
	Runs  int     `json:"runs"` // runs looked at
	Cards []Lemon `json:"gpus"`
}

// Lemon is one such GPU.
type Lemon struct {
	Card
	Runs  int      `json:"runs"` // runs that had it, of those looked at
	Codes []Repeat `json:"codes"`
}

// Repeat is one finding that comes again on a GPU.
type Repeat struct {
	Code    code.Code  `json:"code"`
	Title   string     `json:"title"`
	Runs    int        `json:"runs"`  // in which it was found
	Jobs    int        `json:"jobs"`  // distinct jobs that it is blamed on, or that met it where no one is blamed
	Users   int        `json:"users"` // distinct users of these
	FirstAt *time.Time `json:"first_at"`
	LastAt  *time.Time `json:"last_at"`
	Suspect Suspect    `json:"suspect"`
}

// Suspect says where to look first. It is a count, no proof.
type Suspect string

// The suspects.
const (
	SuspectCard Suspect = "card" // several users met it
	SuspectUser Suspect = "user" // always the same user
	SuspectNode Suspect = "node" // no one's job: what runs on the node beside them
)

// repeat is a Repeat that is being counted.
type repeat struct {
	runs, jobs, users map[string]bool
	first, last       time.Time
	other             bool // something of no job's was found
}

// tally is a GPU that is being counted.
type tally struct {
	card  ledger.Assigned
	runs  int
	codes map[code.Code]*repeat
}

// NewLemons counts what was found on each GPU, in runs that were picked, oldest or newest first. Each code counts once
// a run. What a start found of an earlier job's (BKD-DIRTY) was that one's, and is not counted again.
func NewLemons(node string, runs []ledger.Run) Lemons {
	cards := map[gpu.ID]*tally{}
	for _, r := range runs {
		for _, d := range r.Devices {
			if d.Device.ID == "" {
				continue
			}
			if cards[d.Device.ID] == nil {
				cards[d.Device.ID] = &tally{card: d, codes: map[code.Code]*repeat{}}
			}
			cards[d.Device.ID].runs++
		}
		every(r, func(e ledger.End, i int, f finding.Finding) {
			if t := cards[f.GPU]; t != nil && e.Verdict.Tells(i) && f.Code != code.Dirty {
				t.add(r, e, f)
			}
		})
	}
	l := Lemons{Head: head(KindLemons), Node: text(node), Runs: len(runs), Cards: []Lemon{}}
	for _, t := range cards {
		if lemon := t.lemon(); len(lemon.Codes) > 0 {
			l.Cards = append(l.Cards, lemon)
		}
	}
	slices.SortFunc(l.Cards, func(a, b Lemon) int {
		return cmp.Or(cmp.Compare(b.worst(), a.worst()), cmp.Compare(a.UUID, b.UUID))
	})
	return l
}

func (t *tally) add(r ledger.Run, e ledger.End, f finding.Finding) {
	c := t.codes[f.Code]
	if c == nil {
		c = &repeat{runs: map[string]bool{}, jobs: map[string]bool{}, users: map[string]bool{}}
		t.codes[f.Code] = c
	}
	c.runs[key(r)] = true
	job, user := uint32(r.Job.ID), r.Job.UID
	if o := f.Owner; o != nil {
		job, user = uint32(o.Job), o.UID
	}
	c.jobs[number(job)], c.users[number(user)] = true, true
	c.other = c.other || f.Code == code.Stray
	if c.first.IsZero() || e.Wall.Before(c.first) {
		c.first = e.Wall
	}
	if e.Wall.After(c.last) {
		c.last = e.Wall
	}
}

func (t *tally) lemon() Lemon {
	l := Lemon{Card: assigned(t.card), Runs: t.runs, Codes: []Repeat{}}
	for c, r := range t.codes {
		if len(r.runs) < repeated {
			continue
		}
		entry, _ := code.Lookup(c)
		l.Codes = append(l.Codes, Repeat{
			Code: c, Title: entry.Title, Runs: len(r.runs), Jobs: len(r.jobs), Users: len(r.users),
			FirstAt: moment(r.first), LastAt: moment(r.last), Suspect: r.suspect(),
		})
	}
	slices.SortFunc(l.Codes, func(a, b Repeat) int {
		return cmp.Or(cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Code, b.Code))
	})
	return l
}

func (r repeat) suspect() Suspect {
	switch {
	case r.other:
		return SuspectNode
	case len(r.users) > 1:
		return SuspectCard
	}
	return SuspectUser
}

func (l Lemon) worst() int {
	if len(l.Codes) == 0 {
		return 0
	}
	return l.Codes[0].Runs
}
