package record

import (
	"time"

	"bookend/internal/gpu"
)

// Check is what the node's last health check saw and concluded.
type Check struct {
	At      time.Duration `json:"at_ns"` // CLOCK_BOOTTIME when it began
	Wall    time.Time     `json:"wall"`  // for display
	Took    time.Duration `json:"took_ns,omitempty"`
	Stopped bool          `json:"stopped,omitempty"` // it was stopped early: nothing below is of this check
	Epoch   gpu.Epoch     `json:"epoch,omitzero"`
	// The node's GPUs with Slurm's numbers, -1 if not certain; empty if the driver could not be queried.
	Cards    []Assigned   `json:"cards,omitempty"`
	Snapshot gpu.Snapshot `json:"snapshot"` // one sample of all of them
	// Unexplained is the memory that no listed process accounts for, in bytes, for GPUs where it is known.
	Unexplained map[gpu.ID]uint64 `json:"unexplained,omitempty"`
	// Leaked is what was found on GPUs that no job has, in bytes; no entry for a GPU that is clean or a job's.
	Leaked   map[gpu.ID]uint64 `json:"leaked,omitempty"`
	Findings []Finding         `json:"findings,omitempty"`
	Verdict  Verdict           `json:"verdict"`
	// Health and Kernel are where the next check continues; Boot is the boot whose log Kernel is from.
	Health []gpu.Health    `json:"health,omitempty"`
	Kernel *gpu.KernelMark `json:"kernel,omitempty"`
	Boot   string          `json:"boot,omitempty"`
	// Rest counts, by list, the entries that were left out to keep the record small; nil if it is complete.
	Rest map[string]int `json:"rest,omitempty"`
}

// IDAt returns the GPU that has a number of Slurm's, empty if this check has not seen which. A nil check saw none.
func (c *Check) IDAt(index int) gpu.ID {
	if c != nil {
		for _, card := range c.Cards {
			if card.Index == index && index >= 0 {
				return card.Device.ID
			}
		}
	}
	return ""
}

// Bounded is End.Bounded for a health check.
func (c Check) Bounded() Check { return c.with(End.Bounded) }

// Bare is End.Bare for a health check.
func (c Check) Bare() Check { return c.with(End.Bare) }

func (c Check) with(bound func(End) End) Check {
	c.Wall = c.Wall.UTC().Round(0)
	e := bound(End{Snapshot: c.Snapshot, Findings: c.Findings, Verdict: c.Verdict, Health: c.Health, Rest: c.Rest})
	c.Snapshot, c.Findings, c.Verdict, c.Health, c.Rest = e.Snapshot, e.Findings, e.Verdict, e.Health, e.Rest
	return c
}

// GPUSeen is what one health check saw of a GPU. If it is neither Clean nor Dirty, its state is unknown.
type GPUSeen struct {
	Clean bool   // settled, and nothing on it but what is always there
	Dirty bool   // something is on it, and no job has it
	Why   string // why it is not clean
	Given bool   // Slurm gives it to jobs, or may; other GPUs do not affect when a drain ends
	// ByList says that Clean only means that no process is listed: the GPU's memory cannot be judged.
	ByList bool
}
