package record

import (
	"time"

	"bookend/internal/gpu"
)

// TestRecord is the last test of a GPU, kept from one hook to the next.
type TestRecord struct {
	Probe  gpu.Probe      `json:"probe"`
	Epoch  gpu.Epoch      `json:"epoch"`
	Kernel gpu.KernelMark `json:"kernel"` // the newest entry of the kernel log then; zero if it was not read
	Wall   time.Time      `json:"wall"`   // for display
	// Seen is how many processes came to this result, one after the other.
	Seen int `json:"seen,omitempty"`
	// Jobs is how many jobs have ended since without another test.
	Jobs int `json:"jobs,omitempty"`
}
