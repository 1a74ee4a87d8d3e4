package slurm

import "math"

// TaskFromEnv reads what a task hook knows of itself, from its environment and the text of its own
// /proc/self/cgroup. The environment is the user's, so nothing here is proven but Owner; what has not the form it
// should have is left unset. There is no error: a task hook never fails a job.
func TaskFromEnv(getenv func(string) string, ownCgroup string) Task {
	e := reader{getenv: getenv}
	task := Task{
		Context: e.context(TaskProlog, TaskEpilog),
		Owner:   OwnerOfCgroup(ownCgroup),
		EnvID:   e.optionalJobID("SLURM_JOB_ID", "SLURM_JOBID"),
		HasGPUs: HasGPUs(getenv),
		HetID:   e.optionalJobID("SLURM_HET_JOB_ID", "SLURM_PACK_JOB_ID"),
		Array:   e.arrayTask(),
	}
	if node := getenv("SLURMD_NODENAME"); ValidNode(node) {
		task.Node = node
	}
	task.Step = task.Owner.Step
	if task.Step == "" {
		task.Step = e.step()
	}
	task.LocalID = e.localID(task.Step)
	return task
}

// Job is the task's job by its own cgroup, else by the environment: without cgroups, and in het jobs, which show the
// leader's id there. A cgroup that names the run alone (26.05) is joined by the environment's id: a process that has left
// the cgroup is known by that id or not at all. Whether it is the user's job the kernel decides, when its files are opened.
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

// step reads SLURM_STEP_ID. It is not set for the batch script up to 25.11 and -5 there in 26.05; the other
// numbers are the same special steps as slurm.h counts them down from 2^32.
func (e *reader) step() string {
	_, value := e.either("SLURM_STEP_ID", "SLURM_STEPID")
	switch value {
	case "", "-5", "4294967291":
		return StepBatch
	case "-6", "4294967290":
		return StepInteractive
	}
	if n, ok := decimal(value); ok && n < 4294967290 {
		return value
	}
	return ""
}

// localID is 0 for a script or shell, which is one task, whatever the environment says.
func (e *reader) localID(step string) int {
	if step == StepBatch || step == StepInteractive {
		return 0
	}
	return e.small("SLURM_LOCALID", -1)
}

func (e *reader) small(name string, otherwise int) int {
	n, ok := decimal(e.getenv(name))
	if !ok || n > math.MaxInt32 {
		return otherwise
	}
	return int(n)
}

func (e *reader) arrayTask() ArrayTask {
	master, ok := ParseJobID(e.getenv("SLURM_ARRAY_JOB_ID"))
	if !ok {
		return ArrayTask{}
	}
	task, ok := decimal(e.getenv("SLURM_ARRAY_TASK_ID"))
	if !ok {
		return ArrayTask{}
	}
	return ArrayTask{Master: master, Task: task}
}
