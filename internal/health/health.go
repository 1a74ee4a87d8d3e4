// Package health judges what the driver and the kernel's log say of a card's condition: the one table of what each means
// and what NVIDIA's own guidance makes of it.
package health

import (
	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// Input is what is known of a job's cards at its end.
type Input struct {
	Cards []finding.Card
	Now   []gpu.Health
	// Before is the last look at each card's health on record, of this epoch; a card without one is not in it.
	Before map[gpu.ID]gpu.Health
	// Kernel is the kernel's log since the job began; nil where it was not read.
	Kernel *gpu.KernelLog
	// Idle are cards that were seen with nobody on them: what is mapped there is nobody's.
	Idle map[gpu.ID]bool
	// Doubt makes every finding uncertain (the hook sees only part of the node).
	Doubt string
}

// Judge returns what is wrong.
func Judge(in Input) []finding.Finding { return nil }
