// Package slurm turns what Slurm tells a hook into values: the job from the environment, and a job named by
// a cgroup path. Everything here parses strings that users can influence; nothing here touches the system.
package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// JobID is Slurm's raw numeric job id (array tasks and het components have ids of their own).
type JobID uint32

// SLUID is the id of one run of a job (TellsRun): "s" and 13 characters of Crockford's base 32.
type SLUID string

// Context is the hook Slurm is running, from SLURM_SCRIPT_CONTEXT.
type Context string

const (
	Prolog     Context = "prolog_slurmd"
	Epilog     Context = "epilog_slurmd"
	TaskProlog Context = "prolog_task"
	TaskEpilog Context = "epilog_task"
)

// HealthCheck is no context of Slurm's, which tells its health check the node's name and nothing else.
const HealthCheck Context = "health_check"

// Job is what a hook's environment says of its job. Strings are raw: users choose many of them.
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
	Stderr    string  `json:"stderr,omitempty"`   // the same, set only where it is a file of its own (sbatch -e)
	// GPUIndexes are the values of SLURM_JOB_GPUS: Slurm's own device indexes, in order.
	GPUIndexes []int `json:"gpu_indexes,omitempty"`
	// Visible are the elements of CUDA_VISIBLE_DEVICES: global indexes or UUIDs.
	Visible []string `json:"visible,omitempty"`
	// GPUProblem says why Slurm's lists could not be read; then GPUIndexes and Visible are empty and the job's
	// GPUs are unknown, not none.
	GPUProblem string     `json:"gpu_problem,omitempty"`
	MPSPercent string     `json:"mps_percent,omitempty"` // CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: the job shares its GPU
	Exit       ExitStatus `json:"exit"`
	Start      time.Time  `json:"start,omitzero"` // SLURM_JOB_START_TIME (TellsStart)
}

// ExitStatus is how a job ended: raw wait(2) statuses. Only an epilog knows, and not always.
type ExitStatus struct {
	Known   bool   `json:"known"`
	Why     string `json:"why,omitempty"` // reason when it is not known
	Raw     int    `json:"raw"`           // SLURM_JOB_EXIT_CODE
	Derived int    `json:"derived"`       // SLURM_JOB_DERIVED_EC: highest of the steps
}

// Owner is the job a cgroup path belongs to: by id, by SLUID (CgroupByRun), or both unset for none.
type Owner struct {
	ID    JobID  `json:"id,omitempty"`
	SLUID SLUID  `json:"sluid,omitempty"`
	Step  string `json:"step,omitempty"` // StepBatch, "extern", a number, "0+1" in a heterogeneous job
	// Daemon is true for Slurm's own processes in a job (slurmstepd, a hook): not the user's. cgroup v2 only.
	Daemon bool `json:"daemon,omitempty"`
	// Conflict says that the process's cgroups name different jobs; then no job is named.
	Conflict string `json:"conflict,omitempty"`
}

// Owns reports a cgroup of the job. Which of the two names it has depends on Slurm's version.
func (j Job) Owns(o Owner) bool {
	return o.ID != 0 && o.ID == j.ID || o.SLUID != "" && o.SLUID == j.SLUID
}

// The steps in which a job's own script or shell runs.
const (
	StepBatch       = "batch"
	StepInteractive = "interactive"
)

// Task is what a task hook knows of itself: it runs as the user, in an environment the user wrote.
type Task struct {
	Node    string
	Owner   Owner  // from the own cgroup
	EnvID   JobID  // SLURM_JOB_ID: a hint (het jobs show the leader's)
	Step    string // as Owner.Step; from the cgroup, else from the environment; empty when unknown
	LocalID int    // SLURM_LOCALID: the task's number on this node; -1 when unknown
	Array   ArrayTask
	HetID   JobID // SLURM_HET_JOB_ID, for display
}

// ArrayTask is an array task's name for display: "1234_7". Zero Master means no array.
type ArrayTask struct {
	Master JobID  `json:"master,omitempty"`
	Task   uint32 `json:"task"`
}

// Ref is a job as people name it on a command line: by its id, as an array's task (1234_7), as a component of a
// heterogeneous job (1234+1), or by the SLUID of a run.
type Ref struct {
	Text  string // as it was given
	SLUID SLUID
	ID    JobID  // the one before the sign; 0 with a SLUID
	Sign  string // "_", "+" or none
	Part  uint32 // the number behind it
}

// ParseRef reads what people name a job by.
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

// ParseJobID reads a raw job id: decimal, no sign, no leading zero, 1 to 2^32-1.
func ParseJobID(s string) (JobID, bool) {
	n, ok := decimal(s)
	return JobID(n), ok && n != 0
}

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// ValidSLUID reports whether s has the form of a SLUID: "s" and 13 of 0-9 and A-Z without I, L, O and U.
func ValidSLUID(s string) bool {
	return len(s) == 14 && s[0] == 's' && strings.Trim(s[1:], digits+"ABCDEFGHJKMNPQRSTVWXYZ") == ""
}

// ValidNode reports whether s may be used as a node name in a path: letters, digits, ".", "_" and "-", at most
// 255 bytes (a file name), not beginning with "." or "-" and without "..".
func ValidNode(s string) bool {
	if s == "" || len(s) > 255 || s[0] == '.' || s[0] == '-' || strings.Contains(s, "..") {
		return false
	}
	return only(s, "._-")
}

// only reports whether s has nothing but letters, digits and the given signs.
func only(s, signs string) bool { return strings.Trim(s, letters+digits+signs) == "" }

// decimal reads an unsigned number in its one plain form: digits only, no leading zero, below 2^32.
func decimal(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || s[0] == '0' && len(s) > 1 {
		return 0, false // not the highest number, which strconv gives for one too large
	}
	return uint32(n), true
}
