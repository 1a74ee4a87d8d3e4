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
		EnvID:   e.jobID("SLURM_JOB_ID"),
		HasGPUs: HasGPUs(getenv),
		HetID:   e.jobID("SLURM_HET_JOB_ID"),
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
// leader's id there. A cgroup that names the run alone (CgroupByRun) is joined by the environment's id: a process
// that has left the cgroup is known by that id or not at all. Whether it is the user's job the kernel decides, when
// its files are opened.
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

// step reads SLURM_STEP_ID. The batch script of older versions has none; newer ones have a negative number there, as
// slurm.h counts the special steps down from 2^32.
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

func (e *reader) arrayTask() ArrayTask {
	master, ok := ParseJobID(e.getenv("SLURM_ARRAY_JOB_ID"))
	task, is := decimal(e.getenv("SLURM_ARRAY_TASK_ID"))
	if !ok || !is {
		return ArrayTask{}
	}
	return ArrayTask{Master: master, Task: task}
}
