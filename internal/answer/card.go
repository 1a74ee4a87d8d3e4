package answer

import (
	"bookend/internal/gpu"
	"bookend/internal/ledger"
)

// Card names a GPU.
type Card struct {
	Index *int   `json:"index"` // Slurm's number of it; null where no record has it
	UUID  string `json:"uuid"`  // empty where no card was found for Slurm's number
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
	Method       gpu.ProbeMethod `json:"method"` // contextless; context: some 500 MiB of the card were its own
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
