package slurm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Bounds on what is taken over from a hook's environment, in bytes.
const (
	maxName = 256  // cluster, partition, user
	maxPath = 4096 // PATH_MAX, with its final NUL
	maxList = 4096 // node list
)

// maxAccount is the highest user or group id. The next number is none: setresuid takes it as "leave as it is", which is
// root.
const maxAccount = math.MaxUint32 - 1

// FromEnv reads the job from the environment that slurmd builds from scratch for a prolog or an epilog.
//
// The threat is a value that root uses as a path, a user id or a guard and that is not what it seems: those have
// one strict form, and any other is an error. What users choose (paths, names) is raw and only bounded. A GPU
// list that cannot be read is no error: GPUProblem says why, the job is still known.
//
// Under PrologFlags=RunInJob Slurm always reports an exit code of 0; the caller, who knows its own cgroup, then
// replaces Exit by an unknown one.
func FromEnv(getenv func(string) string) (Job, error) {
	const account = "a user or group id"
	e := reader{getenv: getenv}
	job := Job{
		Context:   e.context(Prolog, Epilog),
		ID:        JobID(e.number("SLURM_JOB_ID", "a job id", 1, math.MaxUint32)),
		SLUID:     SLUID(e.optional("SLURM_JOB_SLUID", "a SLUID", ValidSLUID)),
		HetJobID:  e.jobID("SLURM_HET_JOB_ID"),
		Node:      e.required("SLURMD_NODENAME", "a node name", ValidNode),
		Cluster:   e.text(maxName, "SLURM_CLUSTER_NAME"),
		Partition: e.text(maxName, "SLURM_JOB_PARTITION"),
		User:      e.text(maxName, "SLURM_JOB_USER"),
		UID:       e.number("SLURM_JOB_UID", account, 0, maxAccount),
		GID:       e.number("SLURM_JOB_GID", account, 0, maxAccount),
		NodeList:  e.text(maxList, "SLURM_JOB_NODELIST", "SLURM_NODELIST"),
		WorkDir:   e.path("SLURM_JOB_WORK_DIR"),
		Batch:     e.path("SLURM_JOB_STDIN") != "",
		Stdout:    e.path("SLURM_JOB_STDOUT"),
		Stderr:    e.path("SLURM_JOB_STDERR"),

		MPSPercent: e.text(maxName, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
		Start:      e.start(),
	}
	if getenv(restartCount) != "" { // any other form is an error: the number guards drains
		job.Restarts = int(e.number(restartCount, "a number", 0, math.MaxUint32))
	}
	job.Exit = e.exit(job.Context)
	job.GPUIndexes, job.Visible, job.GPUProblem = gpusFromEnv(getenv)
	if e.first != nil {
		return Job{}, e.first
	}
	return job, nil
}

const restartCount = "SLURM_JOB_RESTART_COUNT"

// reader reads variables and keeps the first that is not as it must be.
type reader struct {
	getenv func(string) string
	first  error
}

// required reads a variable that must be set, in the form that valid knows.
func (e *reader) required(variable, form string, valid func(string) bool) string {
	value := e.getenv(variable)
	if valid(value) {
		return value
	}
	problem := fmt.Errorf("read job from environment: %s=%+q is not %s", variable, value[:min(len(value), 64)], form)
	if value == "" {
		problem = fmt.Errorf("read job from environment: %s is not set", variable)
	}
	e.first = cmp.Or(e.first, problem)
	return ""
}

// optional reads a variable that may be missing.
func (e *reader) optional(variable, form string, valid func(string) bool) string {
	return e.required(variable, form, func(s string) bool { return s == "" || valid(s) })
}

// number reads a number in the given bounds.
func (e *reader) number(variable, form string, least, most uint32) (n uint32) {
	e.required(variable, form, func(s string) bool {
		var ok bool
		n, ok = decimal(s)
		return ok && n >= least && n <= most
	})
	return n
}

func (e *reader) context(want ...Context) Context {
	return Context(e.required("SLURM_SCRIPT_CONTEXT", fmt.Sprintf("one of %q", want), func(s string) bool {
		return slices.Contains(want, Context(s))
	}))
}

// jobID reads an id that is for display only: 0 if it is not set or not an id.
func (e *reader) jobID(variable string) JobID {
	id, _ := ParseJobID(e.getenv(variable))
	return id
}

func (e *reader) text(limit int, names ...string) string {
	for _, name := range names {
		if value := e.getenv(name); value != "" {
			return value[:min(len(value), limit)]
		}
	}
	return ""
}

// path drops a path that no system call would take: cut, it would name another file.
func (e *reader) path(name string) string {
	if value := e.getenv(name); len(value) < maxPath {
		return value
	}
	return ""
}

// start is the zero time if Slurm does not say.
func (e *reader) start() time.Time {
	seconds, ok := decimal(e.getenv("SLURM_JOB_START_TIME"))
	if !ok || seconds == 0 || seconds >= noValue {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0).UTC()
}

// noValue is Slurm's NO_VAL, "not set"; INFINITE is one more.
const noValue = 1<<32 - 2

// exit reads both statuses, as wait(2) gives them: 16 bits.
func (e *reader) exit(context Context) ExitStatus {
	if context != Epilog {
		return ExitStatus{Why: "the job has not ended"}
	}
	var status [2]int
	for i, name := range []string{"SLURM_JOB_EXIT_CODE", "SLURM_JOB_DERIVED_EC"} {
		value := e.getenv(name)
		n, ok := decimal(value)
		switch {
		case value == "":
			return ExitStatus{Why: name + " is not set"}
		case !ok || n > 0xffff:
			return ExitStatus{Why: name + " is not a wait status"}
		}
		status[i] = int(n)
	}
	return ExitStatus{Known: true, Raw: status[0], Derived: status[1]}
}
