package record

import (
	"fmt"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// RecordedFault is an error of a GPU that its driver reported while a job ran, as often as it did.
type RecordedFault struct {
	Code   int           `json:"code"`             // as of a gpu.Xid
	First  time.Duration `json:"first_ns"`         // CLOCK_BOOTTIME of the first, late by one interval at most
	Wall   time.Time     `json:"wall"`             // of the first
	Last   time.Duration `json:"last_ns"`          // CLOCK_BOOTTIME of the last
	Lines  int           `json:"lines,omitempty"`  // lines of the kernel log
	Events int           `json:"events,omitempty"` // events of the driver: they report what the lines do
	Jobs   []slurm.JobID `json:"jobs,omitempty"`   // other jobs that had the GPU or may have had it; at most 16
}

// Times returns how often the error occurred.
func (f RecordedFault) Times() int { return max(f.Lines, f.Events) }

// Text returns which error it is, how often it occurred, and which other jobs had the GPU.
func (f RecordedFault) Text() string {
	e, _ := catalog.LookupXid(f.Code)
	text := fmt.Sprintf("%s (%s)", gpu.Error(f.Code), e.Meaning)
	if n := f.Times(); n > 1 {
		text += fmt.Sprintf(", the first of %d", n)
	}
	if len(f.Jobs) > 0 {
		text += "; other jobs on the GPU: " + strings.Trim(fmt.Sprint(f.Jobs), "[]")
	}
	return text
}
