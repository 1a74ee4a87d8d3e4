package answer

import (
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/state"
	"bookend/internal/timeline"
)

// Report is what "bookend report" says: each GPU over time, its jobs, what stayed on it, and what was found.
type Report struct {
	Head
	Node     string      `json:"node"`
	MadeAt   *time.Time  `json:"made_at"`
	Bookend  string      `json:"bookend"`  // the release that made it
	Copy     bool        `json:"copy"`     // of records that were taken elsewhere: what is there now nobody knows
	Users    bool        `json:"users"`    // users are named; else a name is "(user)" in texts, user is empty, and uid null
	Since    *time.Time  `json:"since"`    // the time shown
	Until    *time.Time  `json:"until"`    // its end
	FirstAt  *time.Time  `json:"first_at"` // the first look on record, shown or not; null: there is none
	LastAt   *time.Time  `json:"last_at"`  // the last one
	Jobs     int         `json:"jobs"`
	Running  int         `json:"running"` // of these, without an end yet
	Drains   int         `json:"drains"`
	Codes    []CodeCount `json:"codes"` // what was found, the most grave first
	Cards    []Lane      `json:"gpus"`
	Findings []Dated     `json:"findings"` // the latest first, without those that policy ignores
	Damaged  []Damaged   `json:"damaged"`
}

// CodeCount is how often a finding was made.
type CodeCount struct {
	Code     code.Code     `json:"code"`
	Title    string        `json:"title"`
	Severity code.Severity `json:"severity"` // note, warning, serious
	Findings int           `json:"findings"`
}

// Lane is one GPU over the time shown.
type Lane struct {
	Card
	TotalBytes  *uint64    `json:"total_bytes"`
	Lemon       bool       `json:"lemon"` // the same was found on it in two runs or more
	Jobs        int        `json:"jobs"`
	Findings    int        `json:"findings"`        // without notes
	BusySeconds float64    `json:"busy_seconds"`    // with a job, as far as is on record
	LeftSeconds float64    `json:"left_seconds"`    // with something left on it, as far as looks saw both ends of that
	LeftBytes   uint64     `json:"left_bytes"`      // the most that was left
	LastLookAt  *time.Time `json:"last_look_at"`    // null: nobody looked in this time
	Stays       []Stay     `json:"stays"`           // of jobs
	Left        []Left     `json:"left"`            // memory that no running job has a right to
	Shared      []Period   `json:"several_at_once"` // when more than one job had it
	Unknown     Unknown    `json:"unknown,omitempty"`
}

// Stay is a job's time on a GPU.
type Stay struct {
	Job       string     `json:"job"`  // as its user names it; empty where jobs is more than 1
	Jobs      int        `json:"jobs"` // 1, or how many there are in one moment
	User      string     `json:"user"`
	From      *time.Time `json:"from"`
	To        *time.Time `json:"to"` // until now, where it runs
	Running   bool       `json:"running"`
	StartSeen bool       `json:"start_seen"` // false: it began some time before from
	EndSeen   bool       `json:"end_seen"`   // false: it runs, or was over by to
	MostBytes *uint64    `json:"most_bytes"` // the most memory that a look saw in use: it may have had more
	Findings  int        `json:"findings"`   // of its two ends, on this GPU
	Unknown   Unknown    `json:"unknown,omitempty"`
}

// Left is memory on a GPU that no running job on record has a right to.
type Left struct {
	From      *time.Time `json:"from"` // the look that saw it first
	To        *time.Time `json:"to"`   // the next look
	Bytes     *uint64    `json:"bytes"`
	Fate      string     `json:"fate"`      // stayed, gone (at some moment in between), unknown, unseen (nobody has looked since)
	By        string     `json:"seen_by"`   // who saw it first
	Unclaimed bool       `json:"unclaimed"` // in use, and no record says by whom: a job without a record may have it
	Unknown   Unknown    `json:"unknown,omitempty"`
}

// Period is a part of the time shown.
type Period struct {
	From *time.Time `json:"from"`
	To   *time.Time `json:"to"`
}

// Dated is a finding, with when it was made and at what.
type Dated struct {
	At      *time.Time `json:"at"`
	Phase   string     `json:"phase"` // start, end, health check
	Job     string     `json:"job"`   // at whose start or end; empty: at a health check
	User    string     `json:"user"`
	Drained bool       `json:"drained"` // a hook drained the node for it
	Finding
}

// Telling is what a report is made of.
type Telling struct {
	Node, Release string
	Made          time.Time
	Chart         timeline.Chart
	Lemons        []gpu.ID
	Damaged       []state.Damage
	Copy, Users   bool
	People        []string // users of whom nothing is told where they are not to be named
}

// NewReport is the document of a chart.
func NewReport(t Telling) Report {
	c := t.Chart
	r := Report{
		Head: head(KindReport), Node: text(t.Node), MadeAt: moment(t.Made), Bookend: text(t.Release), Copy: t.Copy, Users: t.Users, FirstAt: moment(c.First),
		LastAt: moment(c.Last), Jobs: c.Total.Jobs, Running: c.Total.Running, Drains: c.Total.Drains, Codes: []CodeCount{}, Cards: []Lane{}, Findings: []Dated{},
		Damaged: []Damaged{},
	}
	if !c.First.IsZero() {
		r.Since, r.Until = moment(c.Since), moment(c.Until)
	}
	if t.Users {
		t.People = nil
	}
	for _, n := range c.Total.Codes {
		r.Codes = append(r.Codes, CodeCount{known(n.Kind.Code), n.Kind.Title, n.Kind.Severity, n.Found})
	}
	for _, l := range c.Lanes {
		r.Cards = append(r.Cards, t.lane(l))
	}
	for _, e := range c.Entries {
		r.Findings = append(r.Findings, t.dated(e))
	}
	for _, d := range t.Damaged {
		r.Damaged = append(r.Damaged, Damaged{Path: t.text(d.Path), Why: t.text(d.Why)})
	}
	return r
}

// text makes a text from outside fit for the document, without names that are not to be told.
func (t Telling) text(raw string) string { return text(Hide(raw, t.People)) }

// user is a user's name, if that is to be told.
func (t Telling) user(name string) string {
	if !t.Users {
		return ""
	}
	return text(name)
}

func (t Telling) lane(l timeline.Lane) Lane {
	out := Lane{
		Card: newCard(l.Card.Device, l.Card.Index), Lemon: slices.Contains(t.Lemons, l.Card.ID), Jobs: l.Sum.Jobs, Findings: l.Sum.Found, BusySeconds: seconds(l.Sum.Busy),
		LeftSeconds: seconds(l.Sum.Held), LeftBytes: l.Sum.Worst.Bytes, LastLookAt: moment(l.Sum.Last), Stays: []Stay{}, Left: []Left{}, Shared: []Period{},
	}
	out.TotalBytes = out.Unknown.bytes("total_bytes", l.Card.Total)
	for _, b := range l.Blocks {
		s := Stay{
			Job: b.Job, Jobs: b.Jobs, User: t.user(b.User), Running: b.Running, StartSeen: !b.NoStart, EndSeen: !b.Running && !b.NoEnd, Findings: b.Found,
		}
		s.From, s.To = s.Unknown.moment("from", b.Start), s.Unknown.moment("to", b.End)
		s.MostBytes = s.Unknown.bytes("most_bytes", b.Most)
		out.Stays = append(out.Stays, s)
	}
	for _, h := range l.Held {
		left := Left{From: moment(h.Start), To: moment(h.End), Fate: string(h.Fate), By: h.By, Unclaimed: h.Unclaimed}
		left.Bytes = left.Unknown.bytes("bytes", h.Bytes)
		out.Left = append(out.Left, left)
	}
	for _, s := range l.Overlaps {
		out.Shared = append(out.Shared, Period{moment(t.Chart.At(s.From)), moment(t.Chart.At(s.To))})
	}
	return out
}

func (t Telling) dated(e timeline.Entry) Dated {
	e.Judged.Why = Hide(e.Judged.Why, t.People)
	d := Dated{
		At: moment(e.At), Phase: string(e.Phase), Job: e.Job, User: t.user(e.User), Drained: e.Drained,
		Finding: newFinding(t.hidden(e.Finding), e.Judged, func(boot time.Duration) time.Time { return e.At.Add(boot - e.Boot) }),
	}
	d.Title, d.Severity = e.Kind.Title, e.Kind.Severity // of a code of another release too
	if !t.Users {
		d.anonymous()
	}
	return d
}

// anonymous takes from a finding the numbers of users.
func (d *Dated) anonymous() {
	if d.Owner != nil {
		d.Owner.UID = nil
	}
	if d.Process != nil {
		d.Process.anonymous()
	}
	for i := range d.Maybe {
		d.Maybe[i].anonymous()
	}
}

func (p *Process) anonymous() {
	if p.Owner != nil {
		p.Owner.UID = nil
	}
	if p.UID != nil {
		p.UID = nil
		p.Unknown.because("uid", "users are not named")
	}
}

// hidden is a finding without names that are not to be told, in whatever text of the system's.
func (t Telling) hidden(f finding.Finding) finding.Finding {
	if t.Users {
		return f
	}
	f.Observed, f.Unknown, f.Expected = Hide(f.Observed, t.People), Hide(f.Unknown, t.People), Hide(f.Expected, t.People)
	if f.Holder != nil {
		h := t.holder(*f.Holder)
		f.Holder = &h
	}
	f.Candidates = slices.Clone(f.Candidates)
	for i := range f.Candidates {
		f.Candidates[i] = t.holder(f.Candidates[i])
	}
	return f
}

func (t Telling) holder(h finding.Holder) finding.Holder {
	p := &h.Process
	for _, text := range []*string{&p.Name, &p.Why, &p.Service, &p.Container} {
		*text = Hide(*text, t.People)
	}
	h.Memory.Unknown, h.Open = Hide(h.Memory.Unknown, t.People), slices.Clone(h.Open)
	for i := range h.Open {
		h.Open[i] = Hide(h.Open[i], t.People)
	}
	return h
}
