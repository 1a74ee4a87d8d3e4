package node

import (
	"cmp"
	"errors"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Output is where a job's output goes, and a search of it for messages about memory, which goes on meanwhile.
type Output struct {
	Place joblog.Place
	wait  func() (found judge.JobOutput, hangs bool, faults []record.Finding)
}

// Await returns the case with what was found, or why nothing was searched. It takes at most as long as an append may.
// hangs means that the output is on a file system that did not answer.
func (o Output) Await(c judge.Case) (_ judge.Case, hangs bool) {
	found, hangs, faults := o.wait()
	c.Output, c.Faults = found, slices.Concat(c.Faults, faults)
	return c, hangs
}

// outputOfJob starts to search the job's output for messages about memory, as its user. seen is what the recorder saw.
func outputOfJob(a *Access, c judge.Case, seen slurm.OutputFiles) (o Output, faults []record.Finding) {
	raw, err := a.Store.Users.ReadDrop(a.Job)
	// Only a failure of the system is reported, not what the user did to the file.
	hindered := []error{syscall.EIO, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EACCES, syscall.EAGAIN}
	if slices.ContainsFunc(hindered, func(by error) bool { return errors.Is(err, by) }) {
		faults = append(faults, record.Saw(catalog.Output, err.Error(), "what the job's task hooks left is read"))
	}
	o.Place = joblog.PlaceOf(a.Job, raw, seen)
	all, exit := o.Place.Streams(), a.Job.Exit
	request := joblog.TailRequest{UID: a.Job.UID, GID: a.Job.GID, Within: time.Duration(a.Times.Append),
		Back: !exit.Known || exit.Raw != 0 || exit.Derived != 0}
	for _, w := range all {
		if w.Path != "" {
			request.Targets = append(request.Targets, w.Target)
		}
	}
	found := judge.JobOutput{AddressSpace: record.LimitOf(o.Place.Drop.AddressSpace), Unknown: unsearchable(a, c)}
	if found.Unknown == "" && len(request.Targets) == 0 {
		found = outputOf(found, all, joblog.TailReply{}, false)
	}
	if found.Unknown != "" {
		o.wait = func() (judge.JobOutput, bool, []record.Finding) { return found, false, nil }
		return o, faults
	}
	var trouble error
	answer := child.Async(func() (reply joblog.TailReply, err error) {
		reply, trouble, err = Visit(a, joblog.SearchAsUser, request, a.Reserve())
		return reply, err
	})
	o.wait = func() (judge.JobOutput, bool, []record.Finding) {
		reply, err := answer()
		faults, hangs := Fault(trouble), false
		if err = cmp.Or(err, reply.Check(len(request.Targets))); err != nil {
			found.Unknown, hangs = unsearched(err)
			return found, hangs, append(faults, defect(a.Env, err)...)
		}
		return outputOf(found, all, reply, a.Job.Restarts > 0), false, faults
	}
	return o, faults
}

// unsearchable returns why the job's output is not searched, empty if it is.
func unsearchable(a *Access, c judge.Case) string {
	switch {
	case !a.Config.JobLog.Read:
		return "job_log.read is off"
	case c.Past.Turn == judge.Repeated:
		return "its epilog has run before"
	case a.Env.EUID != 0:
		return "the hook is not root's, and so cannot become the job's user"
	case a.Job.UID == 0:
		return "the job is root's"
	}
	return ""
}

// outputOf adds what the search of the outputs has found, or why nothing was searched.
func outputOf(h judge.JobOutput, all []joblog.Stream, r joblog.TailReply, requeued bool) judge.JobOutput {
	h.Outputs, h.Messages = r.Join(all, requeued)
	h.Cancelled = r.Cancelled
	words, none := joblog.Unread(h.Outputs)
	if none {
		h.Unknown = words
	} else {
		h.Part = words
	}
	return h
}

// unsearched returns why there is no result. A hang is the fault of the user's file system.
func unsearched(err error) (why string, hangs bool) {
	var failed *child.Error
	switch {
	case errors.Is(err, errStuckVisit):
		return errStuckVisit.Error(), true
	case errors.As(err, &failed) && (failed.Result.Outcome == child.Abandoned || failed.Result.Outcome == child.Hung):
		return "the file system that it lies on does not answer", true
	}
	return err.Error(), false
}

// batchOutputs finds the files of a batch step as root, which alone may see what slurmstepd has open. Threat: a process
// may end meanwhile, and its PID be another's: what is found is valid only if the step is still there.
var batchOutputs = child.NewOperation("batch-outputs", func(r procscan.JobRequest) (slurm.OutputFiles, error) {
	step := r.FindBatchStep()
	found := slurm.OutputFiles{
		Output: joblog.LocateOf(r.Proc, step.Script.PID, unix.Stdout, r.UID),
		Errors: joblog.LocateOf(r.Proc, step.Daemon.PID, unix.Stderr, r.UID),
	}
	if step.Script.PID == 0 || r.FindBatchStep() != step {
		return slurm.OutputFiles{}, nil
	}
	return found, nil
})

// BatchOutputs returns the files that a running job's batch step writes to. None is found on another node than the
// job's first, before its script runs, and if it does not write to files of the job's user.
func (a *Access) BatchOutputs(run record.Run) slurm.OutputFiles {
	job := run.Job
	if !job.Batch || job.UID == 0 || a.Env.EUID != 0 || job.FirstHost() != job.Node {
		return slurm.OutputFiles{}
	}
	as := &Access{Env: a.Env, Config: a.Config, Times: a.Times, Deadline: a.Deadline, Job: job, Store: a.Store}
	owner := slurm.Owner{ID: job.ID, SLUID: job.SLUID, Node: job.Node}
	request := procscan.JobRequest{Proc: a.Config.Paths.Proc, UID: job.UID, Owner: owner, Since: run.Start.At}
	found, _, _ := Visit(as, batchOutputs, request, 0) // a stuck child is on record; a later hook has the same trouble
	return found
}
