package answer

import (
	"fmt"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/oom"
)

// Show is what "bookend show" says: every run of a job on record, the newest last.
type Show struct {
	Head
	Node string `json:"node"`
	Job  string `json:"job"` // as it was asked for
	Runs []Run  `json:"runs"`
}

// Run is one run of a job: both ends of it, and each card side by side.
type Run struct {
	RunHead
	Cards []CardEnds `json:"gpus"`
	Start *End       `json:"start"` // null: no prolog ran, or its record was lost
	Ends  []End      `json:"ends"`  // one for each epilog; empty while the job runs
}

// CardEnds is one card of a job at both ends.
type CardEnds struct {
	Card
	Start *CardEnd `json:"start"` // null where there was no look at it
	End   *CardEnd `json:"end"`   // of the last epilog
}

// CardEnd is one card at one end.
type CardEnd struct {
	Memory
	Processes     *int    `json:"processes"`
	State         string  `json:"state"` // clean, flat (something stays), moving, unknown; empty: not judged
	Looks         int     `json:"looks"`
	SettleSeconds float64 `json:"settle_seconds"` // until the first of the final equal looks
	Test          *Test   `json:"test"`           // null where none was made or on record
	Unknown       Unknown `json:"unknown,omitempty"`
}

// End is what one hook found.
type End struct {
	At       *time.Time `json:"at"`
	Unseen   string     `json:"unseen"` // why the run is over though no epilog came: nobody looked; empty where one did
	Verdict  Verdict    `json:"verdict"`
	Findings []Finding  `json:"findings"`
	Messages []Message  `json:"messages"` // of the job's output: its user's claim
	Why      *Why       `json:"why"`      // null where nobody looked for why
	Report   string     `json:"report"`   // as the user got it
}

// Message is what the job's output says of memory.
type Message struct {
	Kind      oom.Kind      `json:"kind"`      // device, init, host, shared, fault
	Framework oom.Framework `json:"framework"` // empty for none that is known
	Line      string        `json:"line"`
	Count     int           `json:"count"`
}

// NewShow is the document of a job's runs.
func NewShow(node, job string, runs, all []ledger.Run) Show {
	s := Show{Head: head(KindShow), Node: text(node), Job: text(job), Runs: []Run{}}
	for _, r := range runs {
		s.Runs = append(s.Runs, newRun(r, all))
	}
	return s
}

func newRun(r ledger.Run, all []ledger.Run) Run {
	run := Run{RunHead: newRunHead(r, all), Cards: []CardEnds{}, Ends: []End{}}
	for _, d := range r.Devices {
		c := CardEnds{Card: assigned(d)}
		if r.Start != nil {
			c.Start = cardEnd(d.Device.ID, *r.Start)
		}
		if n := len(r.Ends); n > 0 {
			c.End = cardEnd(d.Device.ID, r.Ends[n-1])
		}
		run.Cards = append(run.Cards, c)
	}
	if r.Start != nil {
		start := newEnd(*r.Start)
		run.Start = &start
	}
	for _, e := range r.Ends {
		run.Ends = append(run.Ends, newEnd(e))
	}
	return run
}

func newEnd(e ledger.End) End {
	n := End{
		At: moment(e.Wall), Unseen: text(e.Unseen), Verdict: newVerdict(e.Verdict), Why: newWhy(e.Diagnosis), Report: e.Report, Messages: []Message{},
		Findings: findings(e.Findings, e.Verdict, func(boot time.Duration) time.Time { return e.Wall.Add(boot - e.At) }),
	}
	for _, m := range e.Messages {
		n.Messages = append(n.Messages, Message{m.Kind, m.Framework, text(m.Line), m.Count})
	}
	return n
}

func cardEnd(id gpu.ID, e ledger.End) *CardEnd {
	r, ok := e.Snapshot.Reading(id)
	if !ok {
		return nil
	}
	curve := e.Curves[id]
	c := CardEnd{State: string(curve.State), Looks: curve.Looks, SettleSeconds: seconds(curve.Settled)}
	c.Memory = newMemory(r.Memory, &c.Unknown)
	if n := len(r.Processes); r.ProcessesUnknown == "" {
		c.Processes = &n
	} else {
		c.Unknown.because("processes", r.ProcessesUnknown)
	}
	if p, ok := testOf(id, e); ok {
		c.Test = newTest(p)
	} else {
		c.Unknown.because("test", "none was made, or it is not on record")
	}
	return &c
}

func testOf(id gpu.ID, e ledger.End) (gpu.Probe, bool) {
	for _, p := range e.Probes {
		if p.Device == id {
			return p, true
		}
	}
	return gpu.Probe{}, false
}

// JobName is a run's job as its user names it: "1234_7", "1234+1", or its id.
func JobName(r ledger.Run) string {
	switch {
	case r.Display.Array.Master != 0:
		return fmt.Sprintf("%d_%d", r.Display.Array.Master, r.Display.Array.Task)
	case r.Job.HetJobID != 0 && r.Job.ID >= r.Job.HetJobID:
		return fmt.Sprintf("%d+%d", r.Job.HetJobID, r.Job.ID-r.Job.HetJobID)
	}
	return fmt.Sprint(r.Job.ID)
}
