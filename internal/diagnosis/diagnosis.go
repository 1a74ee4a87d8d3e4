// Package diagnosis answers why a job ran out of GPU memory: each cause is yes, no or "cannot tell", with evidence.
package diagnosis

import (
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

func yes(evidence string) record.Cause { return record.Cause{Answer: record.Yes, Evidence: evidence} }
func no(evidence string) record.Cause  { return record.Cause{Answer: record.No, Evidence: evidence} }
func untold(evidence string) record.Cause {
	return record.Cause{Answer: record.CannotTell, Evidence: evidence}
}

func on(card *record.Assigned, c record.Cause) record.Cause {
	if card != nil {
		c.Index = &card.Index
	}
	return c
}

// Input is everything that a diagnosis uses. Unknown values are empty, with the reason in a field if there is one.
type Input struct {
	Job   slurm.Job
	Cards []record.Assigned
	// Start and End are the job's two ends, nil for an end without samples.
	Start, End    *record.Side
	StartFindings []record.Finding
	Findings      []record.Finding // at the end
	Probes        []gpu.Probe      // of the end, or of the start if the end made none
	Health        []gpu.Health
	HealthUnknown string         // which part was not read
	Kernel        *gpu.KernelLog // since the job's start
	Messages      []record.Message
	// MessagesUnknown is why the job's output was not searched.
	MessagesUnknown string
	// Cancelled reports Slurm's line about cancellation or the time limit in the output. The exit status may then be 0.
	Cancelled bool
	// MessagesPart describes output that was not searched although some was; empty if there is none.
	MessagesPart string
	Seen         []Sighting
	// Recorded is what the recorder measured on the job's GPUs. Whole means that it missed no interval of the run.
	Recorded      []RecordedUse
	Every         time.Duration // time between two of its samples
	Whole         bool
	Shared        string // why others may legitimately use these GPUs
	SharedUnknown string
	// AddressSpace is the job's limit in bytes, read by its task hook and forgeable by the user; Unlimited if none.
	AddressSpace gpu.Figure
	WallStart    time.Time // the job's start as wall time; zero if unknown
}

// RecordedUse holds the recorder's measurements of one GPU. They are lower bounds, since nothing is known between
// samples.
type RecordedUse struct {
	Device   gpu.ID
	Own      uint64 // most memory of the job's own processes together, bytes
	Unlisted uint64 // most memory that no process accounted for, bytes
	Together int    // most processes of the job in one sample
	Unused   bool   // no sample found any process
}

// Sighting is a process that the recorder saw on one of the job's GPUs.
type Sighting struct {
	At      time.Duration // CLOCK_BOOTTIME
	Device  gpu.ID
	PID     int
	Bytes   gpu.Figure
	Own     bool // proven to belong to this job
	Foreign bool // proven not to belong to it: in another job's cgroup, or of another user and in no job's cgroup
}
