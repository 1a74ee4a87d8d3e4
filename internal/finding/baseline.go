package finding

import (
	"time"

	"bookend/internal/gpu"
)

// MaxBaseline is the most memory, in bytes, that a card's baseline may explain: services and the driver's own were
// measured to hold less, and what a job leaves that matters is more.
const MaxBaseline = 64 << 20

// Baseline is what a card carries without any job. It holds for one epoch, and never explains memory that has no
// known holder unless an admin accepted it: else an exported handle would be learned away.
type Baseline struct {
	GPU   gpu.ID    `json:"gpu"`
	Epoch gpu.Epoch `json:"epoch"`
	// Bytes is memory beyond the listed processes, at most MaxBaseline.
	Bytes uint64 `json:"bytes"`
	// Residents are listed processes of system services.
	Residents []Resident    `json:"residents,omitempty"`
	Accepted  bool          `json:"accepted,omitempty"` // by an admin: nothing is learned over it
	Holder    string        `json:"holder,omitempty"`   // who holds Bytes: a service's name, or "accepted"
	At        time.Duration `json:"at_ns"`              // CLOCK_BOOTTIME of the look it was learned from
}

// Resident is one process of a baseline.
type Resident struct {
	PID     int           `json:"pid"`
	Start   time.Duration `json:"start_ns"` // CLOCK_BOOTTIME: with the PID it names one process
	Bytes   uint64        `json:"bytes"`
	Service string        `json:"service,omitempty"`
}
