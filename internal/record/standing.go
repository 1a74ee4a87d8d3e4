package record

import (
	"time"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Standing is what a node keeps of fatal errors of its GPUs that nothing is known to have ended, in one epoch.
type Standing struct {
	Epoch gpu.Epoch `json:"epoch,omitzero"`
	// Mark is the newest entry of the kernel's log that was considered.
	Mark   gpu.KernelMark  `json:"mark"`
	Faults []StandingFault `json:"faults,omitempty"`
	// Resets are GPUs that were reset, with the newest entry of the log then: what it has of them up to that is over.
	Resets map[gpu.BusID]gpu.KernelMark `json:"resets,omitempty"`
	// Errors has an error of each GPU that speaks against its hardware, over or not.
	Errors map[gpu.BusID]int `json:"errors,omitempty"`
	// Lost is set if entries of the kernel's log were overwritten before a health check could read them.
	Lost bool `json:"lost,omitempty"`
}

// StandingFault is one fatal error of one GPU, by its first entry in the kernel's log or, once the node was drained for
// that, by the first one since.
type StandingFault struct {
	Xid gpu.Xid `json:"xid"`
	GPU gpu.ID  `json:"gpu,omitempty"` // empty if the hook that found it did not look at this GPU
	// At is when a hook found it (CLOCK_BOOTTIME); Hook and Job are that hook's, Job 0 for a health check.
	At   time.Duration `json:"at_ns"`
	Hook slurm.Context `json:"hook"`
	Job  slurm.JobID   `json:"job,omitempty"`
	// Drained is set once the node was drained for it. If it is not drained any more, an admin has decided so.
	Drained bool `json:"drained,omitempty"`
}
