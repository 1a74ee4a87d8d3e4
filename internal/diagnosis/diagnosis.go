// Package diagnosis answers why a job ran out of GPU memory: each cause is yes, no, or cannot tell, with evidence.
package diagnosis

import (
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
	"bookend/internal/slurm"
)

// Name names a cause.
type Name string

// The causes, in the order in which they are told.
const (
	Others    Name = "others"    // another job or process on the card
	Leftover  Name = "leftover"  // memory left by an earlier job
	Unlisted  Name = "unlisted"  // memory without a process
	Pieces    Name = "pieces"    // fragmentation between processes: the probe
	Pool      Name = "pool"      // fragmentation inside the framework's own pool
	Fault     Name = "fault"     // driver or device fault
	Own       Name = "own"       // the job's own peak
	Processes Name = "processes" // several processes of the job on one card
	Limits    Name = "limits"    // ulimit -v, host memory
	Share     Name = "share"     // a share smaller than the card: MIG, shard, MPS
)

// Answer is yes, no, or cannot tell.
type Answer string

const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "cannot tell"
)

// Cause is one cause judged.
type Cause struct {
	Name   Name   `json:"name"`
	Answer Answer `json:"answer"`
	// Evidence is a few words for the job's owner: nothing names another's job or process. report.Clean before use.
	Evidence string `json:"evidence"`
	// Index is Slurm's number of the card that the evidence is of; nil for all of the job's, or if not certain.
	Index *int `json:"index,omitempty"`
	// With is the cause of which this one is only another side, such as memory that an earlier job left and that has no
	// process; empty for one of its own.
	With Name `json:"with,omitempty"`
}

func yes(evidence string) Cause    { return Cause{Answer: Yes, Evidence: evidence} }
func no(evidence string) Cause     { return Cause{Answer: No, Evidence: evidence} }
func untold(evidence string) Cause { return Cause{Answer: Unknown, Evidence: evidence} }

func (c Cause) on(card *finding.Card) Cause {
	if card != nil {
		c.Index = &card.Index
	}
	return c
}

// Reason is what makes a diagnosis worth telling, strongest first.
type Reason string

const (
	ByMessage Reason = "message" // the job's output says that memory ran out
	ByShared  Reason = "shared"  // it says so of a kernel's shared memory or registers alone
	ByFailure Reason = "failure" // the job failed
	ByCause   Reason = "cause"   // a cause was found that is not the job's own doing
)

// Diagnosis is what is known of a job's end.
type Diagnosis struct {
	Reason Reason `json:"reason,omitempty"` // empty: of no interest
	// Headline is the answer in one sentence for the job's owner.
	Headline string   `json:"headline,omitempty"`
	Causes   []Cause  `json:"causes,omitempty"` // every one, in order
	Try      []string `json:"try,omitempty"`    // what its owner can do, most promising first; at most MaxTry
	// Peaks are the most bytes that single processes of the job had, by accounting, largest first; at most MaxPeaks.
	Peaks []gpu.Accounted `json:"peaks,omitempty"`
}

const (
	MaxTry   = 3
	MaxPeaks = 4
)

// Cause returns a cause by its name; the zero one where it was not judged.
func (d Diagnosis) Cause(n Name) Cause {
	for _, c := range d.Causes {
		if c.Name == n {
			return c
		}
	}
	return Cause{}
}

// Input is everything a diagnosis is made from. What is not known is empty, with its reason if there is a field.
type Input struct {
	Job   slurm.Job
	Cards []finding.Card
	// Start and End are the job's two ends, nil where there was no look.
	Start, End    *finding.Side
	StartFindings []finding.Finding
	Findings      []finding.Finding // of the end
	Probes        []gpu.Probe       // of the end; those of the start where the end made none
	Health        []gpu.Health
	HealthUnknown string         // what of it was not read
	Kernel        *gpu.KernelLog // since the job's start
	Messages      []oom.Message
	// MessagesUnknown is why the job's output was not looked through.
	MessagesUnknown string
	// Cancelled: its output has Slurm's line that it was cancelled or met its time limit, which may leave its status 0.
	Cancelled bool
	// MessagesPart is what of the job's output was not looked through although some was read; empty for none.
	MessagesPart string
	Seen         []Sighting
	// Recorded is what the recorder saw of the job's GPUs; Whole says that it saw every interval between the two ends.
	Recorded      []Recorded
	Every         time.Duration // lies between two of its samples
	Whole         bool
	Shared        string // why others may use these cards legally
	SharedUnknown string
	// AddressSpace is the job's limit, bytes, as its task hook saw it: the user's claim. Unlimited if there is none.
	AddressSpace gpu.Figure
	WallStart    time.Time // the job's start as wall time, for accounting; zero where unknown
}

// Unlimited is the AddressSpace of a job without a limit. Larger is none either: no processor addresses 4 EiB.
const Unlimited = 1 << 62

// Recorded is what the recorder saw of one GPU. It does not see between samples: the figures are lower bounds.
type Recorded struct {
	Device   gpu.ID
	Own      uint64 // most memory of the job's own processes together, bytes
	Unlisted uint64 // most memory that no process accounted for, bytes
	Together int    // most processes of the job at once
	Unused   bool   // no process was seen there, at any time
}

// Sighting is a process on one of the job's cards, seen by another hook of the node while the job ran.
type Sighting struct {
	At      time.Duration // CLOCK_BOOTTIME
	Device  gpu.ID
	PID     int
	Bytes   gpu.Figure
	Own     bool // proven to be this job's
	Foreign bool // proven not to be: another job's by cgroup, or of another user and in no job's cgroup
}
