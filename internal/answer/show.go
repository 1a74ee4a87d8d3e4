package answer

import (
	"slices"
	"strings"
	"time"

	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/oom"
	"bookend/internal/settle"
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
	Numbering slurmconf.Origin `json:"numbering"` // what told which GPUs the job's numbers mean
	Cards     []CardEnds       `json:"gpus"`
	Start     *End             `json:"start"` // null: no prolog ran, or its record was lost
	Ends      []End            `json:"ends"`  // one for each epilog; empty while the job runs
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
	Processes     *int         `json:"processes"`
	State         settle.State `json:"state"` // clean, flat (something stays), moving, unknown; empty: not judged
	Looks         int          `json:"looks"`
	SettleSeconds float64      `json:"settle_seconds"` // until the first of the final equal looks
	WatchSeconds  float64      `json:"watch_seconds"`  // from the first look to the last
	Test          *gpu.Probe   `json:"test"`           // null where none was made or on record
	// a start may have the test of an earlier hook; null where none was made
	TestedAt *time.Time `json:"tested_at"`
	Unknown  Unknown    `json:"unknown,omitempty"`
}

// End is what one hook found.
type End struct {
	At       *time.Time           `json:"at"`
	Unseen   string               `json:"unseen"` // why the run is over though no epilog came; empty where one did
	Verdict  finding.Verdict      `json:"verdict"`
	Findings []Finding            `json:"findings"`
	Messages []oom.Message        `json:"messages"` // of the job's output: its user's claim
	Outputs  []ledger.Output      `json:"outputs"`  // where messages were looked for
	Why      *diagnosis.Diagnosis `json:"why"`      // null where no one looked for why
	Report   []string             `json:"report"`   // as the user got it, in lines
	// memory that was there at its start and still is, where nothing else was found
	StillBytes uint64 `json:"still_bytes"`
	// What else was read:
	Conditions []gpu.Health   `json:"conditions"` // of the job's GPUs
	Kernel     *gpu.KernelLog `json:"kernel_log"` // null where it was not looked at
	// entries that are not in the record, which has a size limit, by list: docs/limits.md; empty if it is complete
	LeftOut map[string]int `json:"left_out"`
}

// NewShow is the document of a job's runs.
func NewShow(node, job string, runs, all []ledger.Run) Show {
	s := Show{Head: head(KindShow), Node: node, Job: job, Runs: []Run{}}
	for _, r := range runs {
		s.Runs = append(s.Runs, newRun(r, all))
	}
	return cleaned(s)
}

func newRun(r ledger.Run, all []ledger.Run) Run {
	run := Run{RunHead: newRunHead(r, all), Numbering: r.Numbering,
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
	n := End{At: moment(e.Wall), Unseen: e.Unseen, Verdict: e.Verdict, Findings: findings(e),
		Messages: list(e.Messages), Outputs: list(e.Outputs), Why: e.Diagnosis, Report: lines(e.Report),
		Conditions: list(e.Health), Kernel: e.Kernel, LeftOut: e.Rest}
	if n.LeftOut == nil {
		n.LeftOut = map[string]int{}
	}
	return n
}

// lines are those of a text.
func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
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
	c := CardEnd{State: curve.State, Looks: curve.Looks, SettleSeconds: seconds(curve.Settled),
		WatchSeconds: seconds(curve.Span)}
	c.Memory = newMemory(r.Memory, &c.Unknown)
	if n := len(r.Processes); r.ProcessesUnknown == "" {
		c.Processes = &n
	} else {
		c.Unknown.because("processes", r.ProcessesUnknown)
	}
	if p, ok := e.Probe(id); ok {
		if !searched(p) {
			p.Largest = gpu.Unknown("the test allocation was " + string(p.Result))
			p.Free = p.Largest
		}
		c.Test = &p
		if p.Result != gpu.ProbeSkipped && p.At > 0 {
			c.TestedAt = moment(e.Clock(p.At))
		}
	} else {
		c.Unknown.because("test", "none was made, or it is not on record")
	}
	return &c
}
