// Package diagnosis answers why a job ran out of GPU memory: each known cause is judged yes, no, or cannot tell, with its
// evidence.
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
	Overhead  Name = "overhead"  // driver overhead: reserved, contexts x processes
	Own       Name = "own"       // the job's own peak
	Processes Name = "processes" // several processes of the job on one card
	Limits    Name = "limits"    // ulimit -v, host memory
	Share     Name = "share"     // a share smaller than the card: MIG, shard, MPS
)

// Answer is yes, no, or cannot tell.
type Answer string

// The answers.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "cannot tell"
)

// Cause is one cause judged.
type Cause struct {
	Name     Name   `json:"name"`
	Answer   Answer `json:"answer"`
	Evidence string `json:"evidence"` // a few words with bytes, PIDs, times; raw strings of the system may be inside
	// Index is Slurm's number of the card that the evidence is of; nil for all of the job's.
	Index *int `json:"index,omitempty"`
	// Private evidence names what the job's owner may not know: another's PID. The report words it anew.
	Foreign bool `json:"foreign,omitempty"`
}

// Diagnosis is what is known of a job's end.
type Diagnosis struct {
	// Asked is why somebody would want to know: the job failed, a message was found, a cause is yes; empty: nobody.
	Asked  string   `json:"asked,omitempty"`
	Causes []Cause  `json:"causes,omitempty"` // every one, in order
	Try    []string `json:"try,omitempty"`    // what its owner can do, most promising first
	// Peaks are the most memory that single processes of the job had, bytes, largest first, where accounting is on.
	Peaks []gpu.Accounted `json:"peaks,omitempty"`
}

// Input is everything a diagnosis is made from. What is not known is empty, with its reason where there is a field for it.
type Input struct {
	Job   slurm.Job
	Cards []finding.Card
	// Start and End are the job's two ends, nil where there was no look.
	Start, End    *finding.Side
	StartFindings []finding.Finding
	Findings      []finding.Finding // of the end
	Limits        finding.Limits
	Probes        []gpu.Probe // of the end; those of the start where the end made none
	Health        []gpu.Health
	HealthUnknown string
	Kernel        *gpu.KernelLog // since the job's start
	Messages      []oom.Message
	// MessagesUnknown is why the job's output was not looked through.
	MessagesUnknown string
	Seen            []Sighting
	Shared          string // why others may use these cards legally
	SharedUnknown   string
	// AddressSpace is the job's limit of address space, bytes, as its task hook saw it: the user's claim. Unknown where
	// nobody looked; Unlimited where there is none.
	AddressSpace gpu.Figure
	// WallStart and WallEnd are the job's two ends as wall time, for accounting; zero where unknown.
	WallStart, WallEnd time.Time
}

// Unlimited is the AddressSpace of a job without a limit.
const Unlimited = 1 << 62

// Sighting is a process on one of the job's cards, seen by another hook of the node while the job ran.
type Sighting struct {
	At     time.Duration // CLOCK_BOOTTIME
	Device gpu.ID
	PID    int
	Bytes  gpu.Figure
	Owner  slurm.Owner // by cgroup; zero where not found
	Own    bool        // proven to be this job's
}

// Why judges every cause.
func Why(in Input) Diagnosis { return Diagnosis{} }
