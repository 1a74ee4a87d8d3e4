// Package diagnosis answers why a job ran out of GPU memory: each cause is yes, no or "cannot tell", with evidence.
package diagnosis

import (
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
	"bookend/internal/slurm"
)

// Name identifies a cause.
type Name string

// The causes, in the order in which they are reported.
const (
	Others    Name = "others"    // another job or process on the GPU
	Leftover  Name = "leftover"  // memory left by an earlier job
	Unlisted  Name = "unlisted"  // memory without a process
	Pieces    Name = "pieces"    // fragmentation between processes, shown by a test allocation
	Pool      Name = "pool"      // fragmentation inside the framework's own pool
	Fault     Name = "fault"     // driver or device fault
	Own       Name = "own"       // the job's own peak
	Processes Name = "processes" // several processes of the job on one GPU
	Limits    Name = "limits"    // ulimit -v, host memory
	Share     Name = "share"     // a share smaller than the GPU: MIG, shard, MPS
)

// Answer is yes, no or "cannot tell".
type Answer string

const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "cannot tell"
)

// Cause is the judgement of one cause.
type Cause struct {
	Name   Name   `json:"name"`
	Answer Answer `json:"answer"`
	// Evidence is a short text for the job's owner that names no other user's job or process. It needs report.Clean.
	Evidence string `json:"evidence"`
	// Index is Slurm's index of the GPU that the evidence is about; nil if that is all of the job's GPUs or uncertain.
	Index *int `json:"index,omitempty"`
	// With is the cause that this one accompanies, for example memory without a process that an earlier job left. It is
	// empty for a cause that stands by itself.
	With Name `json:"with,omitempty"`
}

// Explains reports whether the cause applied and stands by itself.
func (c Cause) Explains() bool { return c.Answer == Yes && c.With == "" }

func yes(evidence string) Cause    { return Cause{Answer: Yes, Evidence: evidence} }
func no(evidence string) Cause     { return Cause{Answer: No, Evidence: evidence} }
func untold(evidence string) Cause { return Cause{Answer: Unknown, Evidence: evidence} }

func (c Cause) on(card *finding.Card) Cause {
	if card != nil {
		c.Index = &card.Index
	}
	return c
}

// Reason is why a diagnosis is worth reporting, strongest first.
type Reason string

const (
	ByMessage Reason = "message" // the job's output reports that memory ran out
	ByShared  Reason = "shared"  // it only reports that a kernel's shared memory or registers ran out
	ByFailure Reason = "failure" // the job failed
	ByCause   Reason = "cause"   // a cause outside the job was found
)

// Diagnosis explains how a job ended.
type Diagnosis struct {
	Reason Reason `json:"reason,omitempty"` // empty if there is nothing to report
	// Headline is the answer in one sentence for the job's owner.
	Headline string   `json:"headline,omitempty"`
	Causes   []Cause  `json:"causes,omitempty"` // all of them, in order
	Try      []string `json:"try,omitempty"`    // what its owner can do, most promising first; at most MaxTry
}

const MaxTry = 3

// Cause returns the cause with this name, or the zero Cause if it was not judged.
func (d Diagnosis) Cause(n Name) Cause {
	for _, c := range d.Causes {
		if c.Name == n {
			return c
		}
	}
	return Cause{}
}

// Input is everything that a diagnosis uses. Unknown values are empty, with the reason in a field if there is one.
type Input struct {
	Job   slurm.Job
	Cards []finding.Card
	// Start and End are the job's two ends, nil for an end without samples.
	Start, End    *finding.Side
	StartFindings []finding.Finding
	Findings      []finding.Finding // at the end
	Probes        []gpu.Probe       // of the end, or of the start if the end made none
	Health        []gpu.Health
	HealthUnknown string         // which part was not read
	Kernel        *gpu.KernelLog // since the job's start
	Messages      []oom.Message
	// MessagesUnknown is why the job's output was not searched.
	MessagesUnknown string
	// Cancelled reports Slurm's line about cancellation or the time limit in the output. The exit status may then be 0.
	Cancelled bool
	// MessagesPart describes output that was not searched although some was; empty if there is none.
	MessagesPart string
	Seen         []Sighting
	// Recorded is what the recorder measured on the job's GPUs. Whole means that it missed no interval of the run.
	Recorded      []Recorded
	Every         time.Duration // time between two of its samples
	Whole         bool
	Shared        string // why others may legitimately use these GPUs
	SharedUnknown string
	// AddressSpace is the job's limit in bytes, read by its task hook and forgeable by the user; Unlimited if none.
	AddressSpace gpu.Figure
	WallStart    time.Time // the job's start as wall time; zero if unknown
}

// Unlimited is the AddressSpace of a job without a limit. No processor addresses 4 EiB, so larger values mean the same.
const Unlimited = 1 << 62

// Recorded holds the recorder's measurements of one GPU. They are lower bounds, since nothing is known between samples.
type Recorded struct {
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
