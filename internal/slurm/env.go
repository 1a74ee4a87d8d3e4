package slurm

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Bounds on values taken from a hook's environment, in bytes.
const (
	maxName = 256  // partition, user
	maxPath = 4096 // PATH_MAX, with its final NUL
	maxList = 4096 // node list
)

// maxAccount is the highest user or group id: setresuid takes the next one as "leave as it is", which is root.
const maxAccount = math.MaxUint32 - 1

// FromEnv reads the job from the environment that slurmd builds from scratch for a prolog or an epilog.
//
// Threat: root uses a value as a path, a user id or a guard: those have one strict form, any other is an error. Values
// that users choose (paths, names) are raw and only bounded. A GPU list that cannot be read is not an error: GPUProblem
// has the reason. Under PrologFlags=RunInJob Slurm always passes exit code 0; the caller can check its own cgroup.
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
		Exclusive:  exclusive(getenv),
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

// exclusive reports whether no other job may be on the job's nodes. Since 26.05 the older variable is "NO" for every
// job that does not ask to share; before, it was so only for a job or a partition that is exclusive.
func exclusive(getenv func(string) string) bool {
	if value := getenv("SLURM_JOB_EXCLUSIVE"); value != "" {
		return value == "NODE"
	}
	return getenv("SLURM_JOB_OVERSUBSCRIBE") == "NO"
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

// path drops a path that is too long for any system call: if cut, it would name another file.
func (e *reader) path(name string) string {
	if value := e.getenv(name); len(value) < maxPath {
		return value
	}
	return ""
}

// start returns the zero time if Slurm does not pass it.
func (e *reader) start() (start time.Time) {
	if seconds, ok := decimal(e.getenv("SLURM_JOB_START_TIME")); ok && seconds > 0 && seconds < noValue {
		start = time.Unix(int64(seconds), 0).UTC()
	}
	return start
}

// noValue is Slurm's NO_VAL, "not set"; INFINITE is the next number.
const noValue = 1<<32 - 2

// exit reads both exit statuses, in the format of wait(2): 16 bits.
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

// Bounds on the elements of a GPU list. The longest id is an old driver's "MIG-GPU-<uuid>/gi/ci".
const (
	maxID    = 128
	maxIndex = 1<<16 - 1
)

// HasGPUs reports from the environment alone whether a job has GPUs on this node: most have none. A list that cannot be
// read counts as GPUs. Task hooks have the user's environment: in jobs of srun alone it has no SLURM_JOB_GPUS.
func HasGPUs(getenv func(string) string) bool {
	if gpuValue(getenv, "SLURM_JOB_GPUS") != "" {
		return true
	}
	context := Context(getenv("SLURM_SCRIPT_CONTEXT"))
	return (context == TaskProlog || context == TaskEpilog) && gpuValue(getenv, "SLURM_STEP_GPUS") != ""
}

// gpuValue returns a list. The words that Slurm has used for an empty list count as none.
func gpuValue(getenv func(string) string, name string) string {
	value := getenv(name)
	if value == "NoDevFiles" || value == "(null)" {
		return ""
	}
	return value
}

// gpusFromEnv reads both lists of a root hook. If one has a problem it returns neither: half a list would hide a GPU.
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

// devices parses a comma-separated list of indexes or ids ("GPU-…", "MIG-GPU-…/1/0"), without ranges or duplicates.
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

// TaskFromEnv reads what a task hook can know about its task. The environment is the user's: only Owner is proven, and
// a value without its expected form is left unset. There is no error: a task hook never fails a job.
func TaskFromEnv(getenv func(string) string, ownCgroup string) Task {
	e := reader{getenv: getenv}
	task := Task{Owner: OwnerOfCgroup(ownCgroup), EnvID: e.jobID("SLURM_JOB_ID"), HetID: e.jobID("SLURM_HET_JOB_ID")}
	if node := getenv("SLURMD_NODENAME"); ValidNode(node) {
		task.Node = node
	}
	master, ok := ParseJobID(getenv("SLURM_ARRAY_JOB_ID"))
	if member, is := decimal(getenv("SLURM_ARRAY_TASK_ID")); ok && is {
		task.Array = ArrayTask{Master: master, Task: member}
	}
	task.Step = task.Owner.Step
	if task.Step == "" {
		task.Step = e.step()
	}
	task.LocalID = e.localID(task.Step)
	return task
}

// Job returns the task's job by its own cgroup. Only if that names none it uses the environment, which in het jobs has
// the leader's id. If the cgroup names only the run, the environment's id is added: a process that has left the cgroup
// is found by that or not at all. The kernel decides whether the job is the user's, when its files are opened.
func (t Task) Job() Owner {
	job := t.Owner
	if !job.Found() {
		return Owner{ID: t.EnvID}
	}
	job.ID = cmp.Or(job.ID, t.EnvID)
	return job
}

// step reads SLURM_STEP_ID. Old batch scripts have none; slurm.h numbers the special steps down from 2^32.
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

// localID returns 0 for a script or shell, which is one task whatever the environment contains, and -1 if unknown.
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
