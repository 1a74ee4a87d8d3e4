package answer

import (
	"maps"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/gpu"
	"bookend/internal/health"
)

// Snapshot is what "bookend snapshot" says: what the driver answered just now.
type Snapshot struct {
	Head
	At      *time.Time `json:"at"`
	Release string     `json:"driver_release"` // empty where the driver did not say
	Cards   []CardNow  `json:"gpus"`
	Faults  []Fault    `json:"faults"`
	Tests   []LastTest `json:"tests"`   // the last of each GPU on record; for root alone
	Problem string     `json:"problem"` // why the answer is not whole; empty where it is
}

// CardNow is one GPU as the driver shows it.
type CardNow struct {
	Card
	Memory
	Processes []Process `json:"processes"` // null where unknown
	Unknown   Unknown   `json:"unknown,omitempty"`
}

// Others is the PID that stands for a process which the reader is not to know more of than that it is there.
const Others = 0

// Fault is a failure that the driver reported.
type Fault struct {
	Code   gpu.FaultCode `json:"code"`
	UUID   string        `json:"uuid"` // empty: the driver as a whole
	BusID  string        `json:"bus_id"`
	Detail string        `json:"detail"`
}

// LastTest is the last test allocation on a GPU.
type LastTest struct {
	UUID string     `json:"uuid"`
	At   *time.Time `json:"at"`
	Void bool       `json:"void"` // the driver was reloaded or the node booted since, or no one can tell
	Test
}

// NewSnapshot is the document of one look; at turns time since boot into a wall time.
func NewSnapshot(s gpu.Snapshot, who map[int]attrib.Process, at func(time.Duration) time.Time) Snapshot {
	d := Snapshot{Head: head(KindSnapshot), Release: text(s.Driver.Version), Cards: []CardNow{}, Faults: []Fault{},
		Tests: []LastTest{}}
	if s.At > 0 {
		d.At = moment(at(s.At))
	}
	for _, r := range s.Readings {
		d.Cards = append(d.Cards, newCardNow(r, who, at))
	}
	for _, f := range s.Faults {
		d.Faults = append(d.Faults, Fault{f.Code, text(string(f.Device)), text(string(f.BusID)), text(f.Detail)})
	}
	return d
}

func newCardNow(r gpu.Reading, who map[int]attrib.Process, at func(time.Duration) time.Time) CardNow {
	c := CardNow{Card: newCard(r.Device, nil)}
	c.Memory = newMemory(r.Memory, &c.Unknown)
	if r.ProcessesUnknown != "" {
		c.Unknown.because("processes", r.ProcessesUnknown)
		return c
	}
	c.Processes = Listed(r, who, at)
	return c
}

// Listed are the processes that the driver lists on a GPU, with what /proc said of them.
func Listed(r gpu.Reading, who map[int]attrib.Process, at func(time.Duration) time.Time) []Process {
	out := []Process{}
	for _, p := range r.Processes {
		owner, known := who[p.PID]
		owner.PID = p.PID
		if !known {
			owner.Why = "no one looked"
		}
		n := newProcess(owner, at)
		n.Bytes = n.Unknown.bytes("bytes", p.Memory)
		out = append(out, n)
	}
	return out
}

func newLastTest(r health.TestRecord, now gpu.Epoch) LastTest {
	return LastTest{UUID: text(string(r.Probe.Device)), At: moment(r.Wall), Void: !r.Epoch.Same(now),
		Test: *newTest(r.Probe)}
}

// AddTests adds the last test of each GPU, seen in an epoch of the driver.
func (s *Snapshot) AddTests(records map[gpu.ID]health.TestRecord, now gpu.Epoch) {
	for _, id := range slices.Sorted(maps.Keys(records)) {
		s.Tests = append(s.Tests, newLastTest(records[id], now))
	}
}
