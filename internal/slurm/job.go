// Package slurm parses what Slurm passes to a hook: the job in the environment, and the job in a cgroup path. It parses
// only strings that users can influence, and does not touch the system.
package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// JobID is Slurm's raw numeric job id (array tasks and het components have ids of their own).
type JobID uint32

// SLUID is the id of one run of a job (TellsRun): "s" and 13 characters of Crockford's base 32.
type SLUID string

// Context is the hook that Slurm is running, from SLURM_SCRIPT_CONTEXT.
type Context string

const (
	Prolog     Context = "prolog_slurmd"
	Epilog     Context = "epilog_slurmd"
	TaskProlog Context = "prolog_task"
	TaskEpilog Context = "epilog_task"
)

// HealthCheck is not a context of Slurm's, which passes its health check the node's name and nothing else.
const HealthCheck Context = "health_check"

// Job is a job as a hook's environment describes it. Strings are raw: users choose many of them.
type Job struct {
	Context   Context `json:"context"`
	ID        JobID   `json:"id"`
	SLUID     SLUID   `json:"sluid,omitempty"`
	HetJobID  JobID   `json:"het_job_id,omitempty"`
	Node      string  `json:"node"` // SLURMD_NODENAME, checked against the grammar of node names
	Partition string  `json:"partition,omitempty"`
	User      string  `json:"user,omitempty"`
	UID       uint32  `json:"uid"`
	GID       uint32  `json:"gid"`
	NodeList  string  `json:"node_list,omitempty"`
	Restarts  int     `json:"restarts"`           // an epilog after a requeue sees the prolog's number plus 1
	WorkDir   string  `json:"work_dir,omitempty"` // the user's claim
	Batch     bool    `json:"batch,omitempty"`    // has a batch script: SLURM_JOB_STDIN is set for no other job
	Stdout    string  `json:"stdout,omitempty"`   // the user's claim, patterns unexpanded
	Stderr    string  `json:"stderr,omitempty"`   // the same; set only if it is a file of its own (sbatch -e)
	// GPUIndexes are the values of SLURM_JOB_GPUS: Slurm's own device indexes, in order.
	GPUIndexes []int    `json:"gpu_indexes,omitempty"`
	Visible    []string `json:"visible,omitempty"` // the elements of CUDA_VISIBLE_DEVICES: global indexes or UUIDs
	// GPUProblem is why Slurm's lists could not be read: both are then empty and the job's GPUs unknown, not none.
	GPUProblem string     `json:"gpu_problem,omitempty"`
	MPSPercent string     `json:"mps_percent,omitempty"` // CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: the job shares its GPU
	Exclusive  bool       `json:"exclusive,omitempty"`   // no other job is on its nodes; never known before 23.02
	Exit       ExitStatus `json:"exit"`
	Start      time.Time  `json:"start,omitzero"` // SLURM_JOB_START_TIME (TellsStart)
}

// OutputFile is a file that a job writes to. The path is tainted: the job's user can choose and change it.
type OutputFile struct {
	Path string `json:"path"`
	// Dev and Ino are those of the file when the job wrote to it; both 0 if they were not read.
	Dev uint64 `json:"dev,omitempty"`
	Ino uint64 `json:"ino,omitempty"`
}

// OutputFiles are the files of a batch step, as /proc showed them while the job ran; zero where none was seen.
type OutputFiles struct {
	Output OutputFile `json:"output,omitzero"` // of the script's first process
	Errors OutputFile `json:"errors,omitzero"` // of Slurm itself: those of the script, or all of its output
}

// UnknownName begins the reason why the file of an output is not known: only the job's own environment has its name.
const UnknownName = "its name cannot be told from here: "

// ExitStatus is how a job ended, as raw wait(2) statuses. Only an epilog has it, and not always.
type ExitStatus struct {
	Known   bool   `json:"known"`
	Why     string `json:"why,omitempty"` // reason if it is unknown
	Raw     int    `json:"raw"`           // SLURM_JOB_EXIT_CODE
	Derived int    `json:"derived"`       // SLURM_JOB_DERIVED_EC: highest of the steps
}

// Owner is the job that a cgroup path belongs to, by id or by SLUID (CgroupByRun); both are unset if there is none.
type Owner struct {
	ID    JobID  `json:"id,omitempty"`
	SLUID SLUID  `json:"sluid,omitempty"`
	Node  string `json:"node,omitempty"` // of the slurmd that runs the job; empty if Slurm was built for one per host
	Step  string `json:"step,omitempty"` // StepBatch, "extern", a number, "0+1" in a heterogeneous job
	// Daemon is true for Slurm's own processes in a job (slurmstepd, a hook), not the user's. cgroup v2 only.
	Daemon bool `json:"daemon,omitempty"`
	// Conflict means that the process's cgroups name different jobs; then no job is set.
	Conflict string `json:"conflict,omitempty"`
}

// Sharing answers whether GPUs may be given out in parts, with the evidence or why it is unknown. Why may quote files.
type Sharing struct {
	Shared Answer
	Why    string
}

type Answer string

const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

// Owner returns the job as a cgroup of any node names it.
func (j Job) Owner() Owner { return Owner{ID: j.ID, SLUID: j.SLUID} }

// OwnerHere returns the job as a cgroup of its own node names it.
func (j Job) OwnerHere() Owner { return Owner{ID: j.ID, SLUID: j.SLUID, Node: j.Node} }

// Owns reports whether a cgroup belongs to the job. Which of the two names it has depends on Slurm's version.
func (j Job) Owns(o Owner) bool {
	return !o.Elsewhere(j.Node) && (o.ID != 0 && o.ID == j.ID || o.SLUID != "" && o.SLUID == j.SLUID)
}

// The steps in which a job's own script or shell runs.
const (
	StepBatch       = "batch"
	StepInteractive = "interactive"
)

// Task is what a task hook can know about its task. It runs as the user, in an environment that the user wrote.
type Task struct {
	Node    string
	Owner   Owner  // from its own cgroup
	EnvID   JobID  // SLURM_JOB_ID: a hint (het jobs show the leader's)
	Step    string // as Owner.Step; from the cgroup, else from the environment; empty if unknown
	LocalID int    // SLURM_LOCALID: the task's number on this node; -1 if unknown
	Array   ArrayTask
	HetID   JobID // SLURM_HET_JOB_ID, for display
}

// ArrayTask is the name of an array task for display: "1234_7". A zero Master means no array.
type ArrayTask struct {
	Master JobID  `json:"master,omitempty"`
	Task   uint32 `json:"task"`
}

// Ref is a job as users write it: 1234, an array task 1234_7, a heterogeneous component 1234+1, or a run's SLUID.
type Ref struct {
	Text  string // as given
	SLUID SLUID
	ID    JobID  // the number before the sign; 0 with a SLUID
	Sign  string // "_", "+" or none
	Part  uint32 // the number after the sign
}

func ParseRef(s string) (Ref, error) {
	if ValidSLUID(s) {
		return Ref{Text: s, SLUID: SLUID(s)}, nil
	}
	number, sign, part := s, "", "0"
	if i := strings.IndexAny(s, "_+"); i >= 0 {
		number, sign, part = s[:i], s[i:i+1], s[i+1:]
	}
	id, ok := ParseJobID(number)
	n, partOK := decimal(part)
	if !ok || !partOK {
		return Ref{}, fmt.Errorf("parse job %+q: want a job id (1234), an array task (1234_7), "+
			"a component (1234+1) or a SLUID", s[:min(len(s), 64)])
	}
	return Ref{Text: s, ID: id, Sign: sign, Part: n}, nil
}

// ParseJobID parses a raw job id: decimal, no sign, no leading zero, 1 to 2^32-1.
func ParseJobID(s string) (JobID, bool) {
	n, ok := decimal(s)
	return JobID(n), ok && n != 0
}

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// Selects reports whether the reference is to this run of a job, which may be a task of an array. The id of an array or
// a heterogeneous job, which is also that of its first or last component, selects all of them.
func (r Ref) Selects(j Job, task ArrayTask) bool {
	switch {
	case r.SLUID != "":
		return j.SLUID == r.SLUID
	case r.Sign == "_":
		return task.Master == r.ID && task.Task == r.Part
	case r.Sign == "+":
		return j.HetJobID == r.ID && j.ID == r.ID+JobID(r.Part)
	}
	return j.ID == r.ID || task.Master == r.ID || j.HetJobID == r.ID
}

// ValidSLUID reports whether s has the form of a SLUID: "s" and 13 of 0-9 and A-Z without I, L, O and U.
func ValidSLUID(s string) bool {
	return len(s) == 14 && s[0] == 's' && strings.Trim(s[1:], digits+"ABCDEFGHJKMNPQRSTVWXYZ") == ""
}

// ValidNode reports whether s may be used as a node name in a path.
func ValidNode(s string) bool {
	if s == "" || len(s) > 255 || s[0] == '.' || s[0] == '-' || strings.Contains(s, "..") {
		return false
	}
	return only(s, "._-")
}

func only(s, signs string) bool { return strings.Trim(s, letters+digits+signs) == "" }

// decimal parses an unsigned number in its one plain form: digits only, no leading zero, below 2^32.
func decimal(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || s[0] == '0' && len(s) > 1 {
		return 0, false // not the highest number, which strconv returns for one too large
	}
	return uint32(n), true
}

type Version [3]int

// Versions that Bookend was tested with. Older ones do not pass how a job ended; newer ones are unknown.
var (
	Oldest = Version{22, 5}
	Newest = Version{26, 5}
)

// First versions that do what Bookend depends on. Hooks get no version and test what is there; doctor asks slurmd.
var (
	TellsStart = Version{23, 2} // hooks get the start of a run, which distinguishes runs of one job id
	// ConfiglessHooks: slurmctld sends hooks without a path, and `scontrol reconfigure` has all of it read again.
	ConfiglessHooks = Version{23, 11}
	// SeveralHooks: all lines of Prolog= and Epilog= count. PrologFlags=RunInJob puts hooks into the job's own cgroup.
	SeveralHooks = Version{24, 5}
	// TaskHookFails: a missing task hook, as in a container, fails the job's tasks. `slurmd -G` starts the cgroup
	// plugin, which lifts the limits of its cgroup, and accepts CgroupPlugin=disabled, at which earlier ones exit.
	TaskHookFails = Version{24, 11}
	HookTimeouts  = Version{25, 5} // PrologTimeout= and EpilogTimeout= in addition to PrologEpilogTimeout=
	// TellsRun: hooks get the SLUID of a run, and the name of sbatch's default output; %r and %S in it are known, and
	// %N is the name of the node, not of the host. slurmctld also sends task hooks.
	TellsRun, ConfiglessTaskHooks = Version{25, 11}, Version{25, 11}
	DeferBatchAllocates           = Version{26, 5} // PrologFlags=DeferBatch implies Alloc
)

// Has reports whether a version has a feature that another version introduced. The last number is ignored.
func (v Version) Has(since Version) bool { return slices.Compare(v[:2], since[:2]) >= 0 }

func (v Version) String() string { return fmt.Sprintf("%s.%d", v.Series(), v[2]) }

func (v Version) Series() string { return fmt.Sprintf("%d.%02d", v[0], v[1]) }

// ParseVersion parses "slurm 22.05.8" or "slurm-wlm 24.11.5".
func ParseVersion(text string) (v Version, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "slurm") {
		return v, false
	}
	number, _, _ := strings.Cut(fields[1], "-")
	n, err := fmt.Sscanf(strings.ReplaceAll(number, ".", " "), "%d %d %d", &v[0], &v[1], &v[2])
	return v, n >= 2 && (err == nil || n == 2)
}

// maxNames bounds what one element of a list expands to: more than any cluster has nodes.
const maxNames = 1 << 17

// Elements splits a list such as "n[1-2,4],m3" or "gpu:a:4(S:0,1),shard:8" at the commas outside brackets.
func Elements(list string) []string {
	depth := 0
	return strings.FieldsFunc(list, func(c rune) bool {
		switch c {
		case '[', '(':
			depth++
		case ']', ')':
			depth = max(0, depth-1)
		}
		return c == ',' && depth == 0
	})
}

// Expand expands one element of a list, "rack[0-1]n[08-10]". ok is false if it is malformed or far too long.
func Expand(element string) (names []string, ok bool) {
	text, rest, bracket := strings.Cut(element, "[")
	ranges, after, closed := strings.Cut(rest, "]")
	switch {
	case strings.Contains(text, "]"):
		return nil, false
	case !bracket:
		return []string{element}, true
	}
	numbers, ok := expandRanges(ranges)
	ends, more := Expand(after)
	if !ok || !closed || !more || len(numbers)*len(ends) > maxNames {
		return nil, false
	}
	for _, number := range numbers {
		for _, end := range ends {
			names = append(names, text+number+end)
		}
	}
	return names, true
}

// maxDigits bounds a number in brackets: dates and serial numbers have fewer digits.
const maxDigits = 18

// expandRanges expands "001-010,020": numbers of at least as many digits as the lower end has.
func expandRanges(ranges string) (numbers []string, ok bool) {
	for part := range strings.SplitSeq(ranges, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		low, err1 := strconv.ParseUint(from, 10, 63)
		high, err2 := strconv.ParseUint(to, 10, 63)
		if err1 != nil || err2 != nil || len(from) > maxDigits || low > high || high-low >= maxNames {
			return nil, false
		}
		for n := low; n <= high; n++ {
			numbers = append(numbers, fmt.Sprintf("%0*d", len(from), n))
		}
	}
	return numbers, len(numbers) <= maxNames
}

// FirstHost returns the node that runs the job's script; empty if its node list is not known.
func (j Job) FirstHost() string { return FirstHost(j.NodeList) }

// FirstHost returns the first node of a node list, which runs a batch job's script; "" if the list cannot be read.
func FirstHost(list string) string {
	elements := Elements(list)
	if len(elements) == 0 {
		return ""
	}
	names, ok := Expand(elements[0])
	if !ok || !ValidNode(names[0]) {
		return ""
	}
	return names[0]
}

// Reasons returns why others may use the GPUs, or why that is unknown; both are empty if the job has them alone.
func (a *Sharing) Reasons() (why, unknown string) {
	switch {
	case a == nil:
	case a.Shared == Yes:
		why = a.Why
	case a.Shared == Unknown:
		unknown = a.Why
	}
	return why, unknown
}

// GPUMemory is gres/gpumem of a list of TRES, in bytes: a number with a unit of 1024, as "36266M".
func GPUMemory(tres string) uint64 {
	for field := range strings.SplitSeq(tres, ",") {
		text, of := strings.CutPrefix(field, "gres/gpumem=")
		if !of {
			continue
		}
		number := strings.TrimRight(text, "KMGTP")
		n, err := strconv.ParseFloat(number, 64)
		power := strings.Index("KMGTP", cmp.Or(strings.TrimPrefix(text, number), " ")) + 1
		if err == nil && n >= 0 && n < 1<<30 {
			return uint64(n * float64(uint64(1)<<(10*power)))
		}
	}
	return 0
}
