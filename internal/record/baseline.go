package record

import (
	"time"

	"bookend/internal/gpu"
)

// MaxBaseline is the most memory, in bytes, that a GPU's baseline may explain and that a service may hold and still
// count as part of the node. Services were measured to hold less; a leftover of a job that matters is larger.
const MaxBaseline = 64 << 20

// Baseline is what a GPU carries without any job, in one epoch. Only an admin can add memory without a holder to it.
type Baseline struct {
	GPU       gpu.ID        `json:"gpu"`
	Epoch     gpu.Epoch     `json:"epoch"`
	Bytes     uint64        `json:"bytes"`               // memory beyond the listed processes, at most MaxBaseline
	Residents []Resident    `json:"residents,omitempty"` // listed processes of system services
	Accepted  bool          `json:"accepted,omitempty"`  // accepted by an admin: learning does not replace it
	Holder    string        `json:"holder,omitempty"`    // what holds Bytes: a service's name, or "accepted"
	At        time.Duration `json:"at_ns"`               // CLOCK_BOOTTIME of the sample it was learned from
}

// Resident is one process of a baseline.
type Resident struct {
	PID     int           `json:"pid"`
	Start   time.Duration `json:"start_ns"` // CLOCK_BOOTTIME; with the PID it identifies one process
	Bytes   uint64        `json:"bytes"`
	Service string        `json:"service,omitempty"`
}

// TestRecord is the last test of a GPU, kept from one hook to the next.
type TestRecord struct {
	Probe  gpu.Probe      `json:"probe"`
	Epoch  gpu.Epoch      `json:"epoch"`
	Kernel gpu.KernelMark `json:"kernel"`         // the newest entry of the kernel log then; zero if it was not read
	Wall   time.Time      `json:"wall"`           // for display
	Seen   int            `json:"seen,omitempty"` // how many processes came to this result, one after the other
	Jobs   int            `json:"jobs,omitempty"` // how many jobs have ended since without another test
	// Speeds are those of the pattern tests so far.
	Speeds gpu.Speeds `json:"speeds,omitempty"`
}
