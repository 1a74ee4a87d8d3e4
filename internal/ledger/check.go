package ledger

import (
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// Check is what the node's last health check saw, and what it made of it.
type Check struct {
	At      time.Duration `json:"at_ns"` // CLOCK_BOOTTIME when it began
	Wall    time.Time     `json:"wall"`  // for display
	Took    time.Duration `json:"took_ns,omitempty"`
	Stopped bool          `json:"stopped,omitempty"` // it was ended before it was done: nothing below is of this check
	Epoch   gpu.Epoch     `json:"epoch,omitzero"`
	// Cards are all of the node's, with Slurm's numbers of them: -1 for one that is not certain. Empty where the driver
	// could not be asked.
	Cards []Assigned `json:"cards,omitempty"`
	// Snapshot is one look at all of them.
	Snapshot gpu.Snapshot `json:"snapshot"`
	// Unexplained is what no listed process accounts for, in bytes, of cards of which that can be told.
	Unexplained map[gpu.ID]uint64 `json:"unexplained,omitempty"`
	// Leaked is what was found on cards that no job has, in bytes; nothing for a card that is clean or a job's.
	Leaked map[gpu.ID]uint64 `json:"leaked,omitempty"`
	// Keepers is what the newest search for processes outside of jobs that keep the driver open found; nil for none
	// yet.
	Keepers  *Keepers          `json:"keepers,omitempty"`
	Findings []finding.Finding `json:"findings,omitempty"`
	Verdict  finding.Verdict   `json:"verdict"`
	// Health and Kernel are where the next check goes on from; Boot is the boot of whose log Kernel is.
	Health []gpu.Health    `json:"health,omitempty"`
	Kernel *gpu.KernelMark `json:"kernel,omitempty"`
	Boot   string          `json:"boot,omitempty"`
	// Rest counts, by list, the entries that were left out to keep the record small; nil where it is whole.
	Rest map[string]int `json:"rest,omitempty"`
}

// Keepers are processes outside of jobs for which memory without a process never drains.
type Keepers struct {
	At      time.Duration `json:"at_ns"` // CLOCK_BOOTTIME of the search
	Count   int           `json:"count"`
	Unknown string        `json:"unknown,omitempty"` // why they could not be counted
}
