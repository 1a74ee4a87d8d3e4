package record

import "bookend/internal/gpu"

// CauseName identifies a cause.
type CauseName string

// The causes.
const (
	CauseOthers    CauseName = "others"    // another job or process on the GPU
	CauseLeftover  CauseName = "leftover"  // memory left by an earlier job
	CauseUnlisted  CauseName = "unlisted"  // memory without a process
	CausePieces    CauseName = "pieces"    // fragmentation between processes, shown by a test allocation
	CausePool      CauseName = "pool"      // fragmentation inside the framework's own pool
	CauseFault     CauseName = "fault"     // driver or device fault
	CauseOwn       CauseName = "own"       // the job's own peak
	CauseProcesses CauseName = "processes" // several processes of the job on one GPU
	CauseLimits    CauseName = "limits"    // ulimit -v, host memory
	CauseShare     CauseName = "share"     // a share smaller than the GPU: MIG, shard, MPS
	// CauseUnknown stands for none that was found.
	CauseUnknown CauseName = "unknown"
	// InOrder is no cause: it names the answer whether the GPUs were in order.
	InOrder CauseName = "in_order"
)

// Causes returns all causes, in the order in which they are reported.
func Causes() []CauseName {
	return []CauseName{CauseOthers, CauseLeftover, CauseUnlisted, CausePieces, CausePool, CauseFault, CauseOwn,
		CauseProcesses, CauseLimits, CauseShare}
}

// Title returns a cause's name in a table, "" if there is no such cause.
func (n CauseName) Title() string {
	return map[CauseName]string{
		CauseOthers: "another process", CauseLeftover: "left by an earlier job",
		CauseUnlisted: "memory without process", CausePieces: "fragmented memory", CausePool: "framework's pool",
		CauseFault: "GPU or driver fault", CauseOwn: "your own use", CauseProcesses: "several processes",
		CauseLimits: "limits, host memory", CauseShare: "only a share",
	}[n]
}

// Answer is yes, no or "cannot tell".
type Answer string

const (
	Yes        Answer = "yes"
	No         Answer = "no"
	CannotTell Answer = "cannot tell"
)

// Outweighs reports whether an answer is stronger than another: yes, then "cannot tell", then no, then none.
func (a Answer) Outweighs(other Answer) bool {
	strength := map[Answer]int{Yes: 3, CannotTell: 2, No: 1}
	return strength[a] > strength[other]
}

// Cause is the judgement of one cause.
type Cause struct {
	Name   CauseName `json:"name"`
	Answer Answer    `json:"answer"`
	// Evidence is a short text for the job's owner that names no other user's job or process. It needs safetext.Clean.
	Evidence string `json:"evidence"`
	// Index is Slurm's index of the GPU that the evidence is about; nil if that is all of the job's GPUs or uncertain.
	Index *int `json:"index,omitempty"`
	// With is the cause that this one accompanies, for example memory without a process that an earlier job left. It is
	// empty for a cause that stands by itself.
	With CauseName `json:"with,omitempty"`
}

// Explains reports whether the cause applied and stands by itself.
func (c Cause) Explains() bool { return c.Answer == Yes && c.With == "" }

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
	Where    string   `json:"where,omitempty"`  // follows the node's name: the GPUs on which memory ran out, if known
	Causes   []Cause  `json:"causes,omitempty"` // all of them, in order
	Try      []string `json:"try,omitempty"`    // what its owner can do, most promising first; at most MaxTry
	// Reported is what the errors of GPU, driver or kernel in the job's output mean, and what its owner can do.
	Reported []string `json:"reported,omitempty"`
	// InOrder answers, for a job that failed, whether its GPUs were in order from its start to its end.
	InOrder Cause `json:"in_order,omitzero"`
}

const MaxTry = 3

// Cause returns the cause with this name, or the zero Cause if it was not judged.
func (d Diagnosis) Cause(n CauseName) Cause {
	for _, c := range d.Causes {
		if c.Name == n {
			return c
		}
	}
	return Cause{}
}

// OutOfMemory returns the causes found of a job whose output says that memory ran out; nil of another job.
func (d *Diagnosis) OutOfMemory() (all []CauseName) {
	if d == nil || d.Reason != ByMessage {
		return nil
	}
	for _, c := range d.Causes {
		if c.Explains() {
			all = append(all, c.Name)
		}
	}
	if len(all) == 0 {
		return []CauseName{CauseUnknown}
	}
	return all
}

// Unlimited is the AddressSpace of a job without a limit. No processor addresses 4 EiB, so larger values mean the same.
const Unlimited = 1 << 62

// LimitOf returns the limit of address space that a task hook of the job recorded, in bytes; 0 is none recorded.
func LimitOf(addressSpace uint64) gpu.Figure {
	if addressSpace == 0 {
		return gpu.Unknown("no task hook of the job told its limit of address space")
	}
	return gpu.Bytes(addressSpace)
}

// Probably returns "probably " for an owner that neither a cgroup nor a sighting proves.
func Probably(o *Owner) string {
	if o.Level.Weaker(BySighting) {
		return "probably "
	}
	return ""
}
