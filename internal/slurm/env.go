package slurm

import (
	"fmt"
	"time"
)

// Bounds on what is taken over from a hook's environment, in bytes.
const (
	maxName = 256  // cluster, partition, user
	maxPath = 4096 // PATH_MAX, with its final NUL
	maxList = 4096 // node list
)

// EnvError says which variable keeps a hook from knowing its job.
type EnvError struct {
	Variable string
	Value    string // bounded; empty when the variable is not set
	Problem  string
}

func (e *EnvError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("read job from environment: %s %s", e.Variable, e.Problem)
	}
	return fmt.Sprintf("read job from environment: %s=%+q %s", e.Variable, e.Value, e.Problem)
}

// Missing reports whether the variable was not set at all: the program was probably not started by Slurm.
func (e *EnvError) Missing() bool { return e.Value == "" }

// FromEnv reads the job from the environment that slurmd builds from scratch for a prolog or an epilog, Slurm
// 20.11 to 26.05. Its error is an *EnvError.
//
// The threat is a value that root uses as a path, a user id or a guard and that is not what it seems: those have
// one strict form, and any other is an error. What users choose (paths, names) is raw and only bounded. A GPU
// list that cannot be read is no error: GPUProblem says why, the job is still known.
//
// Under PrologFlags=RunInJob Slurm always reports an exit code of 0; the caller, who knows its own cgroup, then
// replaces Exit by an unknown one.
func FromEnv(getenv func(string) string) (Job, error) {
	e := reader{getenv: getenv}
	job := Job{
		Context:    e.context(Prolog, Epilog),
		ID:         e.jobID("SLURM_JOB_ID", "SLURM_JOBID"),
		SLUID:      e.sluid(),
		HetJobID:   e.optionalJobID("SLURM_HET_JOB_ID", "SLURM_PACK_JOB_ID"),
		Node:       e.node(),
		Cluster:    e.text(maxName, "SLURM_CLUSTER_NAME"),
		Partition:  e.text(maxName, "SLURM_JOB_PARTITION"),
		User:       e.text(maxName, "SLURM_JOB_USER"),
		UID:        e.account("SLURM_JOB_UID", "SLURM_UID"),
		GID:        e.account("SLURM_JOB_GID"),
		NodeList:   e.text(maxList, "SLURM_JOB_NODELIST", "SLURM_NODELIST"),
		Restarts:   e.restarts(),
		WorkDir:    e.path("SLURM_JOB_WORK_DIR"),
		Batch:      e.path("SLURM_JOB_STDIN") != "",
		Stdout:     e.path("SLURM_JOB_STDOUT"),
		Stderr:     e.path("SLURM_JOB_STDERR"),
		MPSPercent: e.text(maxName, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
		Start:      e.start(),
	}
	job.Exit = e.exit(job.Context)
	job.GPUIndexes, job.Visible, job.GPUProblem = gpusFromEnv(getenv)
	if err := e.error(); err != nil {
		return Job{}, err
	}
	return job, nil
}

// reader reads variables and keeps the first that is not as it must be.
type reader struct {
	getenv func(string) string
	first  *EnvError
}

func (e *reader) error() error {
	if e.first == nil {
		return nil
	}
	return e.first
}

func (e *reader) fail(variable, value, problem string) {
	if e.first != nil {
		return
	}
	if value == "" {
		problem = "is not set"
	}
	e.first = &EnvError{Variable: variable, Value: value[:min(len(value), 64)], Problem: problem}
}

// either returns the first of the variables that is set, by its new and its old name. Slurm sets both alike:
// two values that differ are nobody's.
func (e *reader) either(names ...string) (variable, value string) {
	variable = names[0]
	for _, name := range names {
		switch v := e.getenv(name); {
		case v == "":
		case value == "":
			variable, value = name, v
		case v != value:
			e.fail(name, v, "differs from "+variable)
		}
	}
	return variable, value
}

func (e *reader) context(want ...Context) Context {
	const variable = "SLURM_SCRIPT_CONTEXT"
	value := e.getenv(variable)
	for _, c := range want {
		if value == string(c) {
			return c
		}
	}
	e.fail(variable, value, fmt.Sprintf("is none of %q", want))
	return ""
}

func (e *reader) jobID(names ...string) JobID {
	variable, value := e.either(names...)
	id, ok := ParseJobID(value)
	if !ok {
		e.fail(variable, value, "is not a job id")
	}
	return id
}

// optionalJobID reads an id that is for display only: 0 when it is not set or not an id.
func (e *reader) optionalJobID(names ...string) JobID {
	for _, name := range names {
		if id, ok := ParseJobID(e.getenv(name)); ok {
			return id
		}
	}
	return 0
}

func (e *reader) sluid() SLUID {
	const variable = "SLURM_JOB_SLUID"
	value := e.getenv(variable)
	if value != "" && !ValidSLUID(value) {
		e.fail(variable, value, "is not a SLUID")
	}
	return SLUID(value)
}

func (e *reader) node() string {
	const variable = "SLURMD_NODENAME"
	value := e.getenv(variable)
	if !ValidNode(value) {
		e.fail(variable, value, "is not a node name")
	}
	return value
}

// account reads a user or group id. 2^32-1 is none: setresuid takes it as "leave as it is", which is root.
func (e *reader) account(names ...string) uint32 {
	variable, value := e.either(names...)
	n, ok := decimal(value)
	if !ok || n == 1<<32-1 {
		e.fail(variable, value, "is not a user or group id")
	}
	return n
}

// restarts is 0 on Slurm before 22.05, which does not say. Any other form is an error: the number guards drains.
func (e *reader) restarts() int {
	const variable = "SLURM_JOB_RESTART_COUNT"
	value := e.getenv(variable)
	if value == "" {
		return 0
	}
	n, ok := decimal(value)
	if !ok {
		e.fail(variable, value, "is not a number")
	}
	return int(n)
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

// start is the zero time where Slurm (before 23.02) does not say.
func (e *reader) start() time.Time {
	seconds, ok := decimal(e.getenv("SLURM_JOB_START_TIME"))
	if !ok || seconds == 0 || seconds >= noValue {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0).UTC()
}

// noValue is Slurm's NO_VAL, "not set"; INFINITE is one more.
const noValue = 1<<32 - 2

func (e *reader) exit(context Context) ExitStatus {
	if context != Epilog {
		return ExitStatus{Why: "the job has not ended"}
	}
	raw, why := e.waitStatus("SLURM_JOB_EXIT_CODE")
	if why != "" {
		return ExitStatus{Why: why}
	}
	derived, why := e.waitStatus("SLURM_JOB_DERIVED_EC")
	if why != "" {
		return ExitStatus{Why: why}
	}
	return ExitStatus{Known: true, Raw: raw, Derived: derived}
}

// waitStatus reads a status as wait(2) gives it: 16 bits.
func (e *reader) waitStatus(name string) (status int, why string) {
	value := e.getenv(name)
	if value == "" {
		return 0, name + " is not set (Slurm before 22.05, or the status was lost)"
	}
	n, ok := decimal(value)
	if !ok || n > 0xffff {
		return 0, name + " is not a wait status"
	}
	return int(n), ""
}
