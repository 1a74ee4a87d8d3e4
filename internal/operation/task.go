package operation

import (
	"errors"
	"slices"

	"bookend/internal/holders"
	"bookend/internal/joblog"
	"bookend/internal/slurm"
)

// LocateRequest asks where a task's output goes. Others are the numbers that the task may have whose output it is; Task
// is the one of which it is asked.
type LocateRequest struct {
	Proc   string `json:"proc"`
	PID    int    `json:"pid"`
	FD     int    `json:"fd"`
	Others []int  `json:"others,omitempty"`
	Task   int    `json:"task"`
}

// Located is a task's output; Lost: the step writes one file a task, and this task's was not found.
type Located struct {
	Target joblog.Target `json:"target"`
	Own    joblog.Target `json:"own"`
	Lost   bool          `json:"lost,omitempty"`
}

// Locate asks the file system of the job's output, which may hang.
var Locate = Operation[LocateRequest, Located]{"locate", locate}

func locate(r LocateRequest) (Located, error) {
	t, err := joblog.Locate(r.Proc, r.PID, r.FD)
	if err != nil {
		return Located{}, err
	}
	found := Located{Target: t}
	for _, other := range r.Others {
		own, named, err := joblog.OfTask(t, other, r.Task)
		if err == nil && own.Path != "" {
			return Located{Target: t, Own: own}, nil
		}
		found.Lost = found.Lost || named
	}
	return found, nil
}

// LaunchersRequest asks for the srun processes of a job.
type LaunchersRequest struct {
	Proc  string      `json:"proc"`
	UID   uint32      `json:"uid"`
	Owner slurm.Owner `json:"owner"`
}

// Launched is what srun processes write to. Apart: the tasks of one write their output to files that nobody here can
// name.
type Launched struct {
	Files []joblog.Target `json:"files,omitempty"`
	Apart bool            `json:"apart,omitempty"`
}

// Launchers finds what the job's srun processes on this node write to: the output of the steps that have no file a
// task.
var Launchers = Operation[LaunchersRequest, Launched]{"launchers", findLaunchers}

func findLaunchers(r LaunchersRequest) (found Launched, err error) {
	pids, err := holders.JobOf(r.UID, r.Owner).Named(r.Proc, "srun")
	for _, pid := range pids {
		written, _ := joblog.Written(r.Proc, pid) // one that has ended writes nothing more
		found.Files = append(found.Files, written...)
		found.Apart = found.Apart || joblog.Apart(r.Proc, pid, written)
	}
	slices.SortFunc(found.Files, joblog.Target.Compare)
	found.Files = slices.Compact(found.Files)
	return found, err
}

// OpenRequest asks which of a job's processes have a GPU open.
type OpenRequest struct {
	Proc  string      `json:"proc"`
	Dev   string      `json:"dev"`
	UID   uint32      `json:"uid"`
	Owner slurm.Owner `json:"owner"`
}

// OpenDevices looks for them, as the user.
var OpenDevices = Operation[OpenRequest, []holders.Open]{"open", findOpen}

func findOpen(r OpenRequest) ([]holders.Open, error) {
	open, err := holders.JobOf(r.UID, r.Owner).OpenDevices(r.Proc, r.Dev)
	if errors.Is(err, holders.ErrPartial) {
		return open, nil // what was found is worth saying
	}
	return open, err
}
