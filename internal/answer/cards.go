package answer

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/settle"
)

// Scene is what the state of the node's GPUs is made from.
type Scene struct {
	Now       gpu.Snapshot // without readings where the driver gave no answer
	Who       map[int]attrib.Process
	At        func(time.Duration) time.Time // turns time since boot into a wall time
	Runs      []ledger.Run
	Epoch     gpu.Epoch                   // now's
	Baselines map[gpu.ID]finding.Baseline // that hold now
	Limits    finding.Limits
}

// NewCards is each GPU of the node: those that the driver shows now; where it shows none, those that runs of this
// epoch had. By Slurm's number, then by bus id.
func NewCards(s Scene) []CardStatus {
	cards := []CardStatus{}
	for _, r := range s.Now.Readings {
		c := CardStatus{Card: newCard(r.Device, s.index(r.Device.ID))}
		c.Memory = newMemory(r.Memory, &c.Unknown)
		s.balance(&c, r)
		s.add(&c, r.Device)
		cards = append(cards, c)
	}
	if len(cards) == 0 {
		cards = s.remembered()
	}
	slices.SortStableFunc(cards, func(a, b CardStatus) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.BusID, b.BusID))
	})
	return cards
}

// last is behind all GPUs with a number.
const last = 1 << 20

func order(c CardStatus) int {
	if c.Index == nil {
		return last
	}
	return *c.Index
}

// balance adds whose the memory is.
func (s Scene) balance(c *CardStatus, r gpu.Reading) {
	c.Processes = Listed(r, s.Who, s.At)
	for i := range c.Processes {
		s.people(&c.Processes[i])
	}
	if r.ProcessesUnknown != "" {
		c.Unknown.because("processes", r.ProcessesUnknown)
		c.Unknown.because("listed_bytes", r.ProcessesUnknown)
		c.Unknown.because("unexplained_bytes", r.ProcessesUnknown)
		return
	}
	listed := gpu.Bytes(0)
	for _, p := range r.Processes {
		if !p.Memory.Known() {
			listed = p.Memory
			break
		}
		listed.Bytes += p.Memory.Bytes
	}
	c.ListedBytes = c.Unknown.bytes("listed_bytes", listed)
	bytes, unknown := finding.Unexplained(r, s.Limits, s.Baselines[r.Device.ID])
	if unknown != "" {
		c.Unknown.because("unexplained_bytes", unknown)
		return
	}
	c.UnexplainedBytes = &bytes
}

// people adds what records know of a process's user and job.
func (s Scene) people(p *Process) {
	if p.UID != nil && *p.UID == 0 {
		p.User = "root"
	}
	for _, r := range s.Runs {
		if p.UID != nil && r.Job.UID == *p.UID && r.Job.User != "" {
			p.User = text(r.Job.User)
		}
		own := p.Job != "" && (p.Job == fmt.Sprint(r.Job.ID) || p.Job == string(r.Job.SLUID))
		if end := r.Epilog(); own && end != nil {
			p.JobEnded = moment(end.Wall)
		}
	}
}

// add adds what records know of a GPU.
func (s Scene) add(c *CardStatus, d gpu.Device) {
	c.Jobs = s.jobs(d)
	c.Last = s.lastLook(d.ID)
	if c.Last == nil {
		c.Unknown.because("last", "no hook's look at it is on record")
	}
}

// jobs are those that have a GPU now, or a part of it.
func (s Scene) jobs(d gpu.Device) []string {
	jobs := []string{}
	for _, r := range s.Runs {
		if !r.Running(s.Runs) || r.Epoch != (gpu.Epoch{}) && r.Epoch.Changed(s.Epoch) {
			continue
		}
		for _, a := range r.Devices {
			if a.Device.ID == d.ID || a.Device.Parent == d.ID && d.ID != "" {
				jobs = append(jobs, r.JobName())
			}
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}

// lastLook is the newest look of a hook's at a GPU that is on record.
func (s Scene) lastLook(id gpu.ID) *LastLook {
	var newest *LastLook
	var when time.Time
	for _, r := range s.Runs {
		for _, e := range r.Both() {
			reading, ok := e.Snapshot.Reading(id)
			if !ok || newest != nil && !e.Wall.After(when) {
				continue
			}
			when = e.Wall
			newest = &LastLook{Job: r.JobName(), At: moment(e.Wall), Codes: codesOn(id, e)}
			if reading.Memory.Used.Known() {
				newest.Used = &reading.Memory.Used.Bytes
			}
		}
	}
	return newest
}

// codesOn are the findings on a GPU that policy does not hide; a GPU that is not clean has one.
func codesOn(id gpu.ID, e ledger.End) []code.Code {
	codes := []code.Code{}
	for i, f := range e.Findings {
		if f.GPU == id && (e.Verdict.Tells(i) || e.Curves[id].State != settle.Clean) &&
			!slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

// index is Slurm's number of a GPU, from the newest record that has it.
func (s Scene) index(id gpu.ID) *int {
	for _, r := range ledger.Newest(s.Runs) {
		for _, a := range r.Devices {
			if a.Device.ID == id && id != "" {
				index := a.Index
				return &index
			}
		}
	}
	return nil
}

// remembered are the GPUs that runs of this epoch had, where the driver shows none now.
func (s Scene) remembered() []CardStatus {
	cards, seen := []CardStatus{}, map[gpu.ID]bool{}
	for _, r := range ledger.Newest(s.Runs) {
		for _, a := range r.Devices {
			if a.Device.ID == "" || seen[a.Device.ID] || r.Epoch.Changed(s.Epoch) {
				continue
			}
			seen[a.Device.ID] = true
			c := CardStatus{Card: assigned(a), Processes: []Process{}}
			for _, field := range []string{"total_bytes", "reserved_bytes", "used_bytes", "free_bytes", "listed_bytes",
				"unexplained_bytes", "processes"} {
				c.Unknown.because(field, "the driver gave no answer")
			}
			s.add(&c, a.Device)
			cards = append(cards, c)
		}
	}
	return cards
}

// GPU names a GPU.
type Card struct {
	Index *int   `json:"index"` // Slurm's number of it; null where no record has it
	UUID  string `json:"uuid"`  // empty where no GPU was found for Slurm's number
	BusID string `json:"bus_id"`
	Minor *int   `json:"minor"` // N of /dev/nvidiaN; null where unknown
	Name  string `json:"name"`  // the model; empty where unknown
}

func newCard(d gpu.Device, index *int) Card {
	return Card{Index: index, UUID: text(string(d.ID)), BusID: text(string(d.BusID)), Minor: d.Minor,
		Name: text(d.Name)}
}

func assigned(a ledger.Assigned) Card {
	index := a.Index
	return newCard(a.Device, &index)
}

// Memory is what one look said of a GPU's memory. Unknown of the object around it says why a figure is null.
type Memory struct {
	TotalBytes    *uint64 `json:"total_bytes"`
	ReservedBytes *uint64 `json:"reserved_bytes"` // kept by the driver itself
	UsedBytes     *uint64 `json:"used_bytes"`
	FreeBytes     *uint64 `json:"free_bytes"`
	// An old driver's used is never 0:
	UsedHasReserved bool   `json:"used_has_reserved"`  // it cannot tell the two apart
	Unjudged        string `json:"unjudged,omitempty"` // why used says nothing of what a job left behind
}

func newMemory(m gpu.Memory, u *Unknown) Memory {
	return Memory{
		UsedHasReserved: m.UsedHasReserved, Unjudged: text(m.Unjudged),
		TotalBytes: u.bytes("total_bytes", m.Total), ReservedBytes: u.bytes("reserved_bytes", m.Reserved),
		UsedBytes: u.bytes("used_bytes", m.Used), FreeBytes: u.bytes("free_bytes", m.Free),
	}
}

// Test is one test allocation.
type Test struct {
	Result       gpu.ProbeResult `json:"result"`              // ok, gap, blocked, broken, skipped
	Why          string          `json:"why,omitempty"`       // of every result but ok and gap
	LargestBytes *uint64         `json:"largest_block_bytes"` // the largest single block that was given
	FreeBytes    *uint64         `json:"free_bytes"`          // right before it
	Attempts     int             `json:"attempts"`
	Method       gpu.ProbeMethod `json:"method"` // contextless; context: some 500 MiB of the GPU were its own
	TookSeconds  float64         `json:"took_seconds"`
	Error        *CallError      `json:"error,omitempty"` // of blocked and broken
	Unknown      Unknown         `json:"unknown,omitempty"`
}

// CallError is a call of CUDA's that failed.
type CallError struct {
	Call    string `json:"call"`
	Code    int    `json:"code"`
	Name    string `json:"name"`
	Meaning string `json:"meaning"`
	Remedy  string `json:"remedy"`
}

func newTest(p gpu.Probe) *Test {
	t := Test{Result: known(p.Result), Why: text(p.Why), Attempts: p.Attempts, Method: known(p.Method),
		TookSeconds: seconds(p.Times.Init + p.Times.Search + p.Times.Release)}
	if p.Result == gpu.ProbeOK || p.Result == gpu.ProbeGap {
		t.LargestBytes, t.FreeBytes = t.Unknown.bytes("largest_block_bytes", p.Largest),
			t.Unknown.bytes("free_bytes", p.Free)
	} else {
		t.Unknown.because("largest_block_bytes", "the test allocation was "+string(p.Result))
		t.Unknown.because("free_bytes", "the test allocation was "+string(p.Result))
	}
	if e := p.Error; e != nil {
		t.Error = &CallError{Call: text(e.Call), Code: e.Code, Name: text(e.Name), Meaning: text(e.Meaning),
			Remedy: text(e.Remedy)}
	}
	return &t
}
