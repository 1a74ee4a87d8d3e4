package answer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// History is what "bookend history" says: runs, the newest first.
type History struct {
	Head
	Node string    `json:"node"`
	Runs []Summary `json:"runs"`
	More int       `json:"more"` // how many more there are that --limit leaves out
}

// RunHead says which run of which job it is, and how that stands.
type RunHead struct {
	Job       string     `json:"job"` // as its user names it: "42", "42_3", "42+1"
	JobID     uint32     `json:"job_id"`
	SLUID     string     `json:"sluid"` // the run's own id, from Slurm 25.11 on
	User      string     `json:"user"`
	UID       uint32     `json:"uid"`
	Partition string     `json:"partition"`
	State     State      `json:"state"`
	BeganAt   *time.Time `json:"began_at"` // when the prolog looked
	EndedAt   *time.Time `json:"ended_at"` // when its epilog looked
	Seconds   *float64   `json:"duration_seconds"`
	Exit      *int       `json:"exit_code"`   // of the job; null while it runs, or where Slurm does not say
	Signal    *int       `json:"exit_signal"` // that ended it; 0 for none
	Unknown   Unknown    `json:"unknown,omitempty"`
}

// State is how a run stands.
type State string

// The states. Of a run that is lost no epilog came: it is over all the same, as what began since shows, or a health
// check.
const (
	Running State = "running"
	Ended   State = "ended"
	Lost    State = "lost"
)

// Summary is one run in short.
type Summary struct {
	RunHead
	Cards    []Card           `json:"gpus"`
	Start    *finding.Verdict `json:"start"` // null where no prolog is on record
	End      *finding.Verdict `json:"end"`   // of the last epilog; null where none is
	Findings []Brief          `json:"findings"`
	// memory that was there at its start and still is, where nothing else was found
	StillBytes uint64 `json:"still_bytes"`
	// PeakBytes is the most that the job's own processes had on one GPU, BusyPercent how busy its GPUs were in the
	// mean, IdleGPUs those that nobody was seen to use. All are null or empty where it was not recorded throughout.
	PeakBytes   *uint64 `json:"peak_bytes"`
	BusyPercent *int    `json:"busy_percent"`
	IdleGPUs    []int   `json:"idle_gpus"`
}

// Brief is a finding, what policy made of it, and which end found it.
type Brief struct {
	finding.Finding
	Action config.Action `json:"action"`
	At     string        `json:"at"` // start, end
}

// NewHistory is the document of runs that were picked, the newest first; more are left out.
func NewHistory(node string, runs, all []ledger.Run, more int) History {
	return cleaned(History{Head: head(KindHistory), Node: node, Runs: summaries(runs, all), More: more})
}

// summaries are runs in short, in their order; all are the node's.
func summaries(runs, all []ledger.Run) []Summary {
	out := []Summary{}
	for _, r := range runs {
		out = append(out, newSummary(r, all))
	}
	return out
}

func newSummary(r ledger.Run, all []ledger.Run) Summary {
	s := Summary{RunHead: newRunHead(r, all), Cards: []Card{}, Findings: []Brief{}, IdleGPUs: []int{}}
	for _, d := range r.Devices {
		s.Cards = append(s.Cards, assigned(d))
	}
	s.recorded(r)
	if r.Start != nil {
		s.Start = &r.Start.Verdict
		s.Findings = append(s.Findings, briefs("start", *r.Start)...)
	}
	if r.Epilog() != nil {
		last := r.Last()
		s.End, s.StillBytes = &last.Verdict, stillThere(r, last)
		for _, e := range r.Ends {
			s.Findings = append(s.Findings, briefs("end", e)...)
		}
	}
	return s
}

func briefs(at string, e ledger.End) (out []Brief) {
	for i, f := range e.Findings {
		out = append(out, Brief{f, e.Verdict.Of(i).Action, at})
	}
	return out
}

func newRunHead(r ledger.Run, all []ledger.Run) RunHead {
	h := RunHead{Job: r.JobName(), JobID: uint32(r.Job.ID), SLUID: string(r.Job.SLUID), User: r.Job.User,
		UID: r.Job.UID, Partition: r.Job.Partition, State: stateOf(r, all)}
	if r.Start != nil {
		h.BeganAt = h.Unknown.moment("began_at", r.Start.Wall)
	} else {
		h.Unknown.because("began_at", "no prolog is on record")
	}
	h.ended(r)
	if e := r.Job.Exit; e.Known {
		code, signal := e.Raw>>8, e.Raw&0x7f
		h.Exit, h.Signal = &code, &signal
	} else {
		why := cmp.Or(e.Why, "Slurm has not said it")
		h.Unknown.because("exit_code", why)
		h.Unknown.because("exit_signal", why)
	}
	return h
}

func (h *RunHead) ended(r ledger.Run) {
	seen := r.Epilog()
	if seen == nil {
		why := "no epilog is on record"
		if r.Closed() {
			why = r.Last().Unseen
		}
		h.Unknown.because("ended_at", why)
		h.Unknown.because("duration_seconds", why)
		return
	}
	h.EndedAt = h.Unknown.moment("ended_at", seen.Wall)
	if r.Start == nil {
		h.Unknown.because("duration_seconds", "no prolog is on record")
		return
	}
	took := seconds(seen.At - r.Start.At)
	h.Seconds = &took
}

func stateOf(r ledger.Run, all []ledger.Run) State {
	switch {
	case r.Epilog() != nil:
		return Ended
	case r.Running(all):
		return Running
	}
	return Lost
}

// every is each finding of a run with the end that made it.
func every(r ledger.Run, visit func(e ledger.End, i int, f finding.Finding)) {
	for _, e := range r.Both() {
		for i, f := range e.Findings {
			visit(e, i, f)
		}
	}
}

// Filter picks runs; an empty one picks all.
type Filter struct {
	GPU          string     // an index of Slurm's, a UUID, a bus id, or nvidiaN
	Job          *slurm.Ref // a job
	User         string     // a user's name or uid
	Code         code.Code  // something of this code was found
	Since, Until time.Time  // it was there at some time between the two; zero: without bound
	Failed       bool       // Slurm says that the job failed
	Found        bool       // something was found that policy does not hide
}

// Pick returns the runs that a filter lets through, in their order.
func (f Filter) Pick(runs []ledger.Run) []ledger.Run {
	var out []ledger.Run
	for _, r := range runs {
		if f.lets(r) {
			out = append(out, r)
		}
	}
	return out
}

func (f Filter) lets(r ledger.Run) bool {
	switch {
	case f.Job != nil && !names(*f.Job, r):
	case f.User != "" && f.User != r.Job.User && f.User != fmt.Sprint(r.Job.UID):
	case f.GPU != "" && !slices.ContainsFunc(r.Devices, f.isCard):
	case f.Failed && (!r.Job.Exit.Known || r.Job.Exit.Raw == 0):
	case f.Code != "" && !finds(r,
		func(_ ledger.End, _ int, found finding.Finding) bool { return found.Code == f.Code }):
	case f.Found && !finds(r, func(e ledger.End, i int, _ finding.Finding) bool { return e.Verdict.Tells(i) }):
	case !f.Since.IsZero() && r.Closed() && r.Last().Wall.Before(f.Since): // one that runs is there now
	case !f.Until.IsZero() && r.First().Wall.After(f.Until):
	default:
		return true
	}
	return false
}

func finds(r ledger.Run, is func(ledger.End, int, finding.Finding) bool) (yes bool) {
	every(r, func(e ledger.End, i int, f finding.Finding) { yes = yes || is(e, i, f) })
	return yes
}

// names reports whether a reference, as people type it, is of this run.
func names(ref slurm.Ref, r ledger.Run) bool {
	switch {
	case ref.SLUID != "":
		return r.Job.SLUID == ref.SLUID
	case ref.Sign == "_":
		return r.Display.Array.Master == ref.ID && r.Display.Array.Task == ref.Part
	case ref.Sign == "+":
		return r.Job.HetJobID == ref.ID && r.Job.ID == ref.ID+slurm.JobID(ref.Part)
	}
	// An array's or a heterogeneous job's own id is the first, or the last, of its parts, and stands for all of them.
	return r.Job.ID == ref.ID || r.Display.Array.Master == ref.ID || r.Job.HetJobID == ref.ID
}

// isCard reports whether this GPU of a job's is meant: by Slurm's number, UUID, bus id, or as nvidiaN.
func (f Filter) isCard(a ledger.Assigned) bool {
	if n, err := strconv.Atoi(f.GPU); err == nil {
		return n == a.Index
	}
	return a.Device.Named(f.GPU) || strings.EqualFold(f.GPU, string(a.Device.Parent))
}

// repeated is how many runs with the same finding make a GPU worth a look.
const repeated = 2

// Offenders is what "bookend history --repeat-offenders" says: GPUs on which the same was found in several runs, most
// first.
type Offenders struct {
	Head
	Node  string     `json:"node"`
	Runs  int        `json:"runs"` // runs looked at
	Cards []Offender `json:"gpus"`
}

// Offender is one such GPU.
type Offender struct {
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
	runs        map[string]bool
	jobs        map[slurm.JobID]bool
	users       map[uint32]bool
	first, last time.Time
	other       bool // something of no job's was found
}

// tally is a GPU that is being counted.
type tally struct {
	card  ledger.Assigned
	runs  int
	codes map[code.Code]*repeat
}

// NewOffenders counts what was found on each GPU, in runs that were picked, oldest or newest first. Each code counts
// once a run. What a start found of an earlier job's (BKD-DIRTY) was that one's, and is not counted again.
func NewOffenders(node string, runs []ledger.Run) Offenders {
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
	l := Offenders{Head: head(KindOffenders), Node: node, Runs: len(runs), Cards: []Offender{}}
	for _, t := range cards {
		if offender := t.offender(); len(offender.Codes) > 0 {
			l.Cards = append(l.Cards, offender)
		}
	}
	slices.SortFunc(l.Cards, func(a, b Offender) int {
		return cmp.Or(cmp.Compare(b.Codes[0].Runs, a.Codes[0].Runs), cmp.Compare(a.UUID, b.UUID))
	})
	return cleaned(l)
}

func (t *tally) add(r ledger.Run, e ledger.End, f finding.Finding) {
	c := t.codes[f.Code]
	if c == nil {
		c = &repeat{runs: map[string]bool{}, jobs: map[slurm.JobID]bool{}, users: map[uint32]bool{}}
		t.codes[f.Code] = c
	}
	c.runs[fmt.Sprintf("%d/%s", r.Job.ID, r.Key)] = true
	job, user := r.Job.ID, r.Job.UID
	if o := f.Owner; o != nil {
		job, user = o.Job, o.UID
	}
	c.jobs[job], c.users[user] = true, true
	c.other = c.other || f.Code == code.Stray
	if c.first.IsZero() || e.Wall.Before(c.first) {
		c.first = e.Wall
	}
	if e.Wall.After(c.last) {
		c.last = e.Wall
	}
}

func (t *tally) offender() Offender {
	l := Offender{Card: assigned(t.card), Runs: t.runs, Codes: []Repeat{}}
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
