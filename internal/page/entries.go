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

// Entry is one finding of the time shown, with where it was made and what policy made of it.
type Entry struct {
	At    time.Time
	Phase string // start, end, health check
	Job   string // none of a health check's
	User  string // raw
	finding.Finding
	Kind    code.Entry
	Judged  finding.Judged
	Drained bool // by this finding's code the hook drained the node
}

// readEntries finds the findings of the time shown that policy does not ignore.
func (h *history) readEntries() {
	for _, r := range h.runs {
		for i, e := range r.Both() {
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

// enter adds the findings of one verdict.
func (h *history) enter(of Entry, found []finding.Finding, v finding.Verdict) {
	if !h.shows(of.At, of.At) {
		return
	}
	of.At = of.At.In(h.ask.Zone)
	for n, f := range found {
		of.Finding, of.Judged = f, v.Of(n)
		of.Drained = v.Action == config.Drain && v.Exit != 0 && v.Code == f.Code
		kind, known := code.Lookup(f.Code)
		if !known { // of another release
			kind = code.Entry{Code: f.Code, Severity: code.Warning, Title: "not known to this release"}
		}
		if of.Kind = kind; of.Judged.Action != config.Ignore {
			h.Entries = append(h.Entries, of)
		}
	}
}

// Grave is how much a finding weighs where there is room for one only.
func (e Entry) Grave() int {
	weight := map[code.Severity]int{code.Serious: 3, code.Warning: 2, code.Note: 1}[e.Kind.Severity]
	switch {
	case e.Drained:
		return 4
	case e.Judged.Action == config.Note:
		return min(weight, 1)
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
func (c Chart) marks(id gpu.ID) (marks []Mark) {
	for i, e := range slices.Backward(c.Entries) { // the latest come first
		if e.GPU != id {
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
