package slurm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Bounds on what is taken over from a hook's environment, in bytes.
const (
	maxName = 256  // partition, user
	maxPath = 4096 // PATH_MAX, with its final NUL
	maxList = 4096 // node list
)

// maxAccount is the highest user or group id: setresuid takes the next for "leave as it is", which is root.
const maxAccount = math.MaxUint32 - 1

// FromEnv reads the job from the environment that slurmd builds from scratch for a prolog or an epilog.
//
// Threat: a value that root uses as a path, a user id or a guard: those have one strict form, any other is an error.
// What users choose (paths, names) is raw and only bounded. A GPU list that cannot be read is no error: GPUProblem
// says why. Under PrologFlags=RunInJob Slurm always reports an exit code of 0; the caller knows its own cgroup.
func FromEnv(getenv func(string) string) (Job, error) {
	const account = "a user or group id"
	e := reader{getenv: getenv}
	job := Job{
		Context: Context(e.required("SLURM_SCRIPT_CONTEXT", fmt.Sprintf("one of %q", rootHooks), func(s string) bool {
			return slices.Contains(rootHooks, Context(s))
		})),
		ID:        JobID(e.number("SLURM_JOB_ID", "a job id", 1, math.MaxUint32)),
		SLUID:     SLUID(e.required("SLURM_JOB_SLUID", "a SLUID", sluidOrNone)),
		HetJobID:  e.jobID("SLURM_HET_JOB_ID"),
		Node:      e.required("SLURMD_NODENAME", "a node name", ValidNode),
		Partition: e.text(maxName, "SLURM_JOB_PARTITION"),
		User:      e.text(maxName, "SLURM_JOB_USER"),
		UID:       e.number("SLURM_JOB_UID", account, 0, maxAccount),
		GID:       e.number("SLURM_JOB_GID", account, 0, maxAccount),
		NodeList:  cmp.Or(e.text(maxList, "SLURM_JOB_NODELIST"), e.text(maxList, "SLURM_NODELIST")),
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

var rootHooks = []Context{Prolog, Epilog}

func sluidOrNone(s string) bool { return s == "" || ValidSLUID(s) }

const restartCount = "SLURM_JOB_RESTART_COUNT"

type reader struct {
	getenv func(string) string
	first  error
}

func (e *reader) required(variable, form string, valid func(string) bool) string {
	value := e.getenv(variable)
	switch {
	case valid(value):
		return value
	case e.first != nil:
	case value == "":
		e.first = fmt.Errorf("read job from environment: %s is not set", variable)
	default:
		e.first = fmt.Errorf("read job from environment: %s=%+q is not %s", variable, value[:min(len(value), 64)], form)
	}
	return ""
}

func (e *reader) number(variable, form string, least, most uint32) (n uint32) {
	e.required(variable, form, func(s string) bool {
		var ok bool
		n, ok = decimal(s)
		return ok && n >= least && n <= most
	})
	return n
}

func (e *reader) jobID(variable string) JobID {
	id, _ := ParseJobID(e.getenv(variable))
	return id
}

func (e *reader) text(limit int, name string) string {
	value := e.getenv(name)
	return value[:min(len(value), limit)]
}

// path drops a path that no system call would take: cut, it would name another file.
func (e *reader) path(name string) string {
	if value := e.getenv(name); len(value) < maxPath {
		return value
	}
	return ""
}

// start is the zero time if Slurm does not say.
func (e *reader) start() (start time.Time) {
	if seconds, ok := decimal(e.getenv("SLURM_JOB_START_TIME")); ok && seconds > 0 && seconds < noValue {
		start = time.Unix(int64(seconds), 0).UTC()
	}
	return start
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

// Bounds on the elements of a GPU list: the longest id is an old driver's "MIG-GPU-<uuid>/gi/ci".
const (
	maxID    = 128
	maxIndex = 1<<16 - 1
)

// HasGPUs reports whether a job has GPUs on this node, from the environment alone: most have none. A list that is not
// read counts as GPUs. Task hooks have the user's environment: srun-only jobs have no SLURM_JOB_GPUS there.
func HasGPUs(getenv func(string) string) bool {
	if gpuValue(getenv, "SLURM_JOB_GPUS") != "" {
		return true
	}
	context := Context(getenv("SLURM_SCRIPT_CONTEXT"))
	return (context == TaskProlog || context == TaskEpilog) && gpuValue(getenv, "SLURM_STEP_GPUS") != ""
}

// gpuValue reads a list; the words Slurm has used for an empty one are none.
func gpuValue(getenv func(string) string, name string) string {
	value := getenv(name)
	if value == "NoDevFiles" || value == "(null)" {
		return ""
	}
	return value
}

// gpusFromEnv reads both lists of a root hook. With a problem neither is returned: half a list would hide a GPU.
func gpusFromEnv(getenv func(string) string) (indexes []int, ids []string, problem string) {
	numbers, err := devices(gpuValue(getenv, "SLURM_JOB_GPUS"), "a device index", func(s string) bool {
		n, ok := decimal(s)
		indexes = append(indexes, int(n))
		return ok && n <= maxIndex
	})
	if err != nil {
		return nil, nil, fmt.Sprintf("SLURM_JOB_GPUS cannot be read: %v", err)
	}
	if len(numbers) == 0 {
		return nil, nil, ""
	}
	ids, err = devices(gpuValue(getenv, "CUDA_VISIBLE_DEVICES"), "a device", func(s string) bool {
		return s != "" && len(s) <= maxID && only(s, "-/_:.")
	})
	if err != nil {
		return nil, nil, fmt.Sprintf("the list of visible devices cannot be read: %v", err)
	}
	return indexes, ids, ""
}

// devices reads a list of indexes or ids ("GPU-…", "MIG-GPU-…/1/0"): by commas, no ranges, nothing twice.
func devices(list, form string, valid func(string) bool) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	all := strings.Split(list, ",")
	for i, element := range all {
		switch shown := element[:min(len(element), maxID)]; {
		case !valid(element):
			return nil, fmt.Errorf("%+q is not %s", shown, form)
		case slices.Contains(all[:i], element):
			return nil, fmt.Errorf("%+q is listed twice", shown)
		}
	}
	return all, nil
}

// TaskFromEnv reads what a task hook knows of itself. The environment is the user's: nothing is proven but Owner, and
// what has not the form it should have is left unset. There is no error: a task hook never fails a job.
func TaskFromEnv(getenv func(string) string, ownCgroup string) Task {
	e := reader{getenv: getenv}
	task := Task{
		Owner: OwnerOfCgroup(ownCgroup), EnvID: e.jobID("SLURM_JOB_ID"), HetID: e.jobID("SLURM_HET_JOB_ID"),
	}
	if node := getenv("SLURMD_NODENAME"); ValidNode(node) {
		task.Node = node
	}
	master, ok := ParseJobID(getenv("SLURM_ARRAY_JOB_ID"))
	if member, is := decimal(getenv("SLURM_ARRAY_TASK_ID")); ok && is {
		task.Array = ArrayTask{Master: master, Task: member}
	}
	if task.Step = task.Owner.Step; task.Step == "" {
		task.Step = e.step()
	}
	task.LocalID = e.localID(task.Step)
	return task
}

// Job is the task's job by its own cgroup, else by the environment: without cgroups, and in het jobs, which show the
// leader's id there. A cgroup that names the run alone is joined by the environment's id: a process that has left it is
// known by that or not at all. Whether it is the user's job the kernel decides, when its files are opened.
func (t Task) Job() Owner {
	job := t.Owner
	if !job.Found() {
		return Owner{ID: t.EnvID}
	}
	if job.ID == 0 {
		job.ID = t.EnvID
	}
	return job
}

// step reads SLURM_STEP_ID. Old batch scripts have none; slurm.h counts the special steps down from 2^32.
func (e *reader) step() string {
	switch value := e.getenv("SLURM_STEP_ID"); value {
	case "", "-5", "4294967291":
		return StepBatch
	case "-6", "4294967290":
		return StepInteractive
	default:
		if n, ok := decimal(value); ok && n < 4294967290 {
			return value
		}
		return ""
	}
}

// localID is 0 for a script or shell, which is one task, whatever the environment says, and -1 if it is not known.
func (e *reader) localID(step string) int {
	if step == StepBatch || step == StepInteractive {
		return 0
	}
	n, ok := decimal(e.getenv("SLURM_LOCALID"))
	if !ok || n > math.MaxInt32 {
		return -1
	}
	return int(n)
}
