// Package slurm turns what Slurm tells a hook into values: the job from the environment, and a job named by
// a cgroup path. Everything here parses strings that users can influence; nothing here touches the system.
package slurm

import "time"

// JobID is Slurm's raw numeric job id (array tasks and het components have ids of their own).
type JobID uint32

// SLUID is the id of one run of a job (TellsRun): "s" and 13 characters of Crockford's base 32.
type SLUID string

// Context is the hook Slurm is running, from SLURM_SCRIPT_CONTEXT.
type Context string

// The four contexts.
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
	Cluster   string  `json:"cluster,omitempty"`
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

// The steps in which a job's own script or shell runs.
const (
	StepBatch       = "batch"
	StepInteractive = "interactive"
)

// Task is what a task hook knows of itself: it runs as the user, in an environment the user wrote.
type Task struct {
	Context Context
	Node    string
	Owner   Owner // from the own cgroup
	EnvID   JobID // SLURM_JOB_ID: a hint (het jobs show the leader's)
	HasGPUs bool
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
