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

// Standing is what a node keeps of fatal errors of its GPUs that nothing is known to have ended, in one epoch.
type Standing struct {
	Epoch  gpu.Epoch       `json:"epoch,omitzero"`
	Mark   gpu.KernelMark  `json:"mark"` // the newest entry of the kernel's log that was considered
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

// Strike is one fault that speaks against a GPU itself, with all that was found of it.
type Strike struct {
	At    time.Time      `json:"at"`  // when it was first found
	Job   slurm.JobID    `json:"job"` // whose hook found it
	Codes []catalog.Code `json:"codes"`
	Xids  []int          `json:"xids,omitempty"`
}

// Struck is a GPU with strikes.
type Struck struct {
	Index   *int       `json:"index"` // Slurm's index; null if it is not certain
	Device  gpu.Device `json:"device"`
	Faults  []Strike   `json:"faults"`          // oldest first
	Hours   int        `json:"within_hours"`    // how far back they were counted
	Repeats bool       `json:"repeat_offender"` // it has as many as the configuration asks for
}

// Name returns Slurm's index of the GPU, or its UUID.
func (s Struck) Name() string {
	if s.Index != nil {
		return fmt.Sprint(*s.Index)
	}
	return string(s.Device.ID)
}

func (s Struck) Words() string {
	if !s.Repeats {
		return ""
	}
	n, unit := s.Hours, "hours"
	if n >= 48 && n%24 == 0 {
		n, unit = n/24, "days"
	}
	const form = "GPU %s: %d faults in %d %s: repeat offender; bookend rma %[1]s"
	return fmt.Sprintf(form, s.Name(), len(s.Faults), n, unit)
}

// Words returns what was found, with its meaning and what NVIDIA asks for.
func (s Strike) Words() string {
	var words []string
	for _, n := range s.Xids {
		e, _ := catalog.LookupXid(n)
		words = append(words, fmt.Sprintf("%s (%s; NVIDIA asks: %s)", gpu.Error(n), e.Meaning, e.Asks))
	}
	for _, c := range s.Codes {
		if entry, _ := catalog.Lookup(c); c != catalog.Xid && c != catalog.XidFatal {
			words = append(words, fmt.Sprintf("%s (%s)", c, entry.Title))
		}
	}
	return strings.Join(words, ", ")
}
