package page

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// Phase is the end of a job at which a finding was made, or that it was between them.
type Phase string

// The phases.
const (
	Start Phase = "start"
	End   Phase = "end"
	Check Phase = "health check"
)

// Entry is one finding of the time shown, with where it was made and what policy made of it.
type Entry struct {
	At    time.Time
	Boot  time.Duration // the same as CLOCK_BOOTTIME
	Phase Phase
	Job   string // none of a health check's
	User  string // raw
	finding.Finding
	Kind    code.Entry
	Judged  finding.Judged
	Drained bool // by this finding's code the hook drained the node
}

// entries are the findings of the time shown that policy does not ignore, the latest first.
func (b book) entries() []Entry {
	shown := map[gpu.ID]bool{"": true}
	for _, c := range b.cards {
		shown[c.ID] = true
	}
	var all []Entry
	for _, r := range b.runs {
		if !b.onCards(r) {
			continue
		}
		for i, e := range r.Both() {
			if !b.shows(e.Wall, e.Wall) {
				continue
			}
			phase := End
			if i == 0 && r.Start != nil {
				phase = Start
			}
			for n, f := range e.Findings {
				if entry, told := b.entry(f, e.Verdict, n); told && shown[f.GPU] {
					entry.At, entry.Boot, entry.Phase, entry.Job, entry.User = e.Wall.In(b.zone), e.At, phase,
						r.JobName(), r.Job.User
					all = append(all, entry)
				}
			}
		}
	}
	if c := b.check; c != nil && b.shows(c.Wall, c.Wall) {
		for n, f := range c.Findings {
			if entry, told := b.entry(f, c.Verdict, n); told && shown[f.GPU] {
				entry.At, entry.Boot, entry.Phase = c.Wall.In(b.zone), c.At, Check
				all = append(all, entry)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y Entry) int { return y.At.Compare(x.At) })
	return all
}

// entry is the nth finding of a verdict, and whether it is told of at all.
func (b book) entry(f finding.Finding, v finding.Verdict, n int) (Entry, bool) {
	known, ok := code.Lookup(f.Code)
	if !ok { // of another release
		known = code.Entry{Code: f.Code, Severity: code.Warning, Scope: code.Own, Title: "not known to this release"}
	}
	judged := v.Of(n)
	drained := v.Action == config.Drain && v.Exit != 0 && v.Code == f.Code
	return Entry{Finding: f, Kind: known, Judged: judged, Drained: drained}, judged.Action != config.Ignore
}

// Grave is how much a finding weighs where there is room for one only.
func (e Entry) Grave() int {
	weight := map[code.Severity]int{code.Serious: 3, code.Warning: 2, code.Note: 1}[e.Kind.Severity]
	if e.Judged.Action == config.Note {
		weight = min(weight, 1)
	}
	if e.Drained {
		weight = 4
	}
	return weight
}

// Mark stands for the findings of one moment of a lane, the gravest first.
type Mark struct {
	At      float64
	Entries []int // places in Chart.Entries
}

// markWidth is the part of a lane that a mark takes: nearer to each other, findings share one.
const markWidth = 1.0 / 64

// marks are those of a card's findings; of no id those that concern no card.
func (b book) marks(all []Entry, id gpu.ID) []Mark {
	var marks []Mark
	for i := len(all) - 1; i >= 0; i-- { // the latest come first
		if all[i].GPU != id {
			continue
		}
		at := b.at(all[i].At)
		if n := len(marks); n == 0 || at-marks[n-1].At >= markWidth {
			marks = append(marks, Mark{At: at})
		}
		m := &marks[len(marks)-1]
		m.Entries = append(m.Entries, i)
	}
	for _, m := range marks {
		slices.SortStableFunc(m.Entries, func(x, y int) int { return cmp.Compare(all[y].Grave(), all[x].Grave()) })
	}
	return marks
}
