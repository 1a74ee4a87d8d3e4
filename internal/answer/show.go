package answer

import (
	"fmt"
	"strings"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/oom"
	"bookend/internal/report"
	"bookend/internal/slurmconf"
)

// Show is what "bookend show" says: every run of a job on record, the newest last.
type Show struct {
	Head
	Node string `json:"node"`
	Job  string `json:"job"` // as it was asked for
	Runs []Run  `json:"runs"`
}

// Run is one run of a job: both ends of it, and each GPU side by side.
type Run struct {
	RunHead
	Numbering Numbering  `json:"numbering"`
	Cards     []CardEnds `json:"gpus"`
	Start     *End       `json:"start"` // null: no prolog ran, or its record was lost
	Ends      []End      `json:"ends"`  // one for each epilog; empty while the job runs
}

// Numbering is what told which GPUs the job's numbers mean.
type Numbering struct {
	// uuid, gpu_map, slurmd, counted, ambiguous; empty in records of earlier versions
	Source slurmconf.Source `json:"source"`
	Why    string           `json:"why"` // why it is ambiguous; else empty
}

// CardEnds is one GPU of a job at both ends.
type CardEnds struct {
	Card
	Start *CardEnd `json:"start"` // null where there was no look at it
	End   *CardEnd `json:"end"`   // of the last epilog
}

// CardEnd is one GPU at one end.
type CardEnd struct {
	Memory
	Processes     *int    `json:"processes"`
	State         string  `json:"state"` // clean, flat (something stays), moving, unknown; empty: not judged
	Looks         int     `json:"looks"`
	SettleSeconds float64 `json:"settle_seconds"` // until the first of the final equal looks
	WatchSeconds  float64 `json:"watch_seconds"`  // from the first look to the last
	Test          *Test   `json:"test"`           // null where none was made or on record
	// a start may have the test of an earlier hook; null where none was made
	TestedAt *time.Time `json:"tested_at"`
	Unknown  Unknown    `json:"unknown,omitempty"`
}

// End is what one hook found.
type End struct {
	At       *time.Time `json:"at"`
	Unseen   string     `json:"unseen"` // why the run is over though no epilog came: no one looked; empty where one did
	Verdict  Verdict    `json:"verdict"`
	Findings []Finding  `json:"findings"`
	Messages []Message  `json:"messages"` // of the job's output: its user's claim
	Outputs  []Output   `json:"outputs"`  // where messages were looked for
	Why      *Why       `json:"why"`      // null where no one looked for why
	Report   string     `json:"report"`   // as the user got it, in lines
	// memory that was there at its start and still is, where nothing else was found
	StillBytes uint64 `json:"still_bytes"`
	// What else was read:
	Conditions []Condition `json:"conditions"` // of the job's GPUs
	Kernel     *KernelLog  `json:"kernel_log"` // null where it was not looked at
	// entries that are not in the record, which has a size limit, by list: docs/limits.md; empty if it is complete
	LeftOut map[string]int `json:"left_out"`
}

// Output is one of a job's outputs, and what was looked through of it for messages about memory.
type Output struct {
	Kind ledger.OutputKind `json:"kind"`       // output, errors, step
	Path string            `json:"path"`       // the user's claim; empty where it is not known
	Size int64             `json:"size_bytes"` // when it was opened
	Read int64             `json:"read_bytes"` // so many bytes at its end were looked through
	Why  string            `json:"why"`        // why nothing of it was, or where that stopped
}

// Message is what the job's output says of memory.
type Message struct {
	Kind      oom.Kind      `json:"kind"`      // device, init, host, shared, fault
	Framework oom.Framework `json:"framework"` // empty for none that is known
	Line      string        `json:"line"`
	Count     int           `json:"count"`
	Output    int           `json:"output"` // where it stands: which of the outputs, from 0
}

func newMessage(m oom.Message) Message {
	return Message{Kind: known(m.Kind), Framework: known(m.Framework), Line: string(report.Keep(m.Line, oom.MaxLine)),
		Count: m.Count, Output: m.File}
}

// lines are those of a report, each fit for a document.
func lines(raw string) string {
	var b strings.Builder
	for line := range strings.Lines(raw) {
		fmt.Fprintln(&b, report.Keep(strings.TrimSuffix(line, "\n"), widest))
	}
	return b.String()
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
	run := Run{RunHead: newRunHead(r, all), Numbering: Numbering{known(r.Numbering.Source), text(r.Numbering.Why)},
		Cards: []CardEnds{}, Ends: []End{}}
	for _, d := range r.Devices {
		c := CardEnds{Card: assigned(d)}
		if r.Start != nil {
			c.Start = cardEnd(d.Device.ID, *r.Start)
		}
		if r.Closed() {
			c.End = cardEnd(d.Device.ID, r.Last())
		}
		run.Cards = append(run.Cards, c)
	}
	if r.Start != nil {
		start := newEnd(*r.Start)
		run.Start = &start
	}
	for _, e := range r.Ends {
		end := newEnd(e)
		end.StillBytes = stillThere(r, e)
		run.Ends = append(run.Ends, end)
	}
	return run
}

func newEnd(e ledger.End) End {
	n := End{
		At: moment(e.Wall), Unseen: text(e.Unseen), Verdict: newVerdict(e.Verdict), Why: newWhy(e.Diagnosis),
		Report: lines(e.Report), Messages: []Message{}, Outputs: []Output{},
		Conditions: conditions(e.Health), Kernel: kernelLog(e), LeftOut: map[string]int{},
		Findings: findings(e),
	}
	for _, m := range e.Messages {
		n.Messages = append(n.Messages, newMessage(m))
	}
	for list, count := range e.Rest {
		n.LeftOut[text(list)] = count
	}
	for _, o := range e.Outputs {
		n.Outputs = append(n.Outputs,
			Output{Kind: known(o.Kind), Path: text(o.Path), Size: o.Size, Read: o.Read, Why: text(o.Why)})
	}
	return n
}

// stillThere is what the job got with its GPUs and gave back so, of an end that says no more than that they are clean.
func stillThere(r ledger.Run, e ledger.End) (bytes uint64) {
	if r.Start == nil || e.Verdict.Code != "" || e.Unseen != "" {
		return 0
	}
	for _, d := range r.Devices {
		was, _ := r.Start.Snapshot.Reading(d.Device.ID)
		now, _ := e.Snapshot.Reading(d.Device.ID)
		dirty := r.Start.Curves[d.Device.ID].State.Dirty()
		if dirty && was.Memory.Used.Known() && now.Memory.Used.Known() {
			bytes += min(was.Memory.Used.Bytes, now.Memory.Used.Bytes)
		}
	}
	if bytes < finding.WorthTelling {
		return 0
	}
	return bytes
}

func cardEnd(id gpu.ID, e ledger.End) *CardEnd {
	r, ok := e.Snapshot.Reading(id)
	if !ok {
		return nil
	}
	curve := e.Curves[id]
	c := CardEnd{State: text(string(curve.State)), Looks: curve.Looks, SettleSeconds: seconds(curve.Settled),
		WatchSeconds: seconds(curve.Span)}
	c.Memory = newMemory(r.Memory, &c.Unknown)
	if n := len(r.Processes); r.ProcessesUnknown == "" {
		c.Processes = &n
	} else {
		c.Unknown.because("processes", r.ProcessesUnknown)
	}
	if p, ok := e.Probe(id); ok {
		c.Test = newTest(p)
		if p.Result != gpu.ProbeSkipped && p.At > 0 {
			c.TestedAt = moment(e.Clock(p.At))
		}
	} else {
		c.Unknown.because("test", "none was made, or it is not on record")
	}
	return &c
}
