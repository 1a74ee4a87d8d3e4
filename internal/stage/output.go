package stage

import (
	"cmp"
	"errors"
	"slices"
	"syscall"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

type output struct {
	job   slurm.Job
	drop  joblog.Drop // what the job's task hooks left
	told  bool        // they left one that is valid
	hangs bool        // the job's output is on a file system that did not answer
}

func (r *work) output() *output {
	o := &output{job: r.Job}
	raw, err := r.Store.ReadDrop(r.Job)
	// Only a failure of the system is reported, not what the user did to the file.
	hindered := []error{syscall.EIO, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EACCES, syscall.EAGAIN}
	if slices.ContainsFunc(hindered, func(by error) bool { return errors.Is(err, by) }) {
		r.Add(record.Saw(catalog.Output, err.Error(), "what the job's task hooks left is read"))
	}
	if err == nil {
		o.drop, err = joblog.ParseDrop(raw)
	}
	o.told = err == nil
	if !o.told {
		o.drop = joblog.Drop{}
	}
	return o
}

// addressSpace returns the limit that a task hook of the job recorded: the user's claim.
func (o *output) addressSpace() gpu.Figure {
	if o.drop.AddressSpace == 0 {
		return gpu.Unknown("no task hook of the job told its limit of address space")
	}
	return gpu.Bytes(o.drop.AddressSpace)
}

// listen starts to search the job's outputs for messages about memory, as the user. Call the returned function once: it
// waits for the result, at most as long as an append may take, or says why nothing was searched.
func (r *work) listen(o *output) (listened func() judge.JobOutput) {
	nothing := judge.JobOutput{AddressSpace: o.addressSpace()}
	switch {
	case !r.Config.JobLog.Read:
		nothing.Unknown = "job_log.read is off"
	case r.Past.Again:
		nothing.Unknown = "its epilog has run before"
	case r.EUID != 0:
		nothing.Unknown = "the hook is not root's, and so cannot become the job's user"
	case r.Job.UID == 0:
		nothing.Unknown = "the job is root's"
	}
	exit := o.job.Exit
	all, request := o.writtenBy(), joblog.TailRequest{
		UID: o.job.UID, GID: o.job.GID, Within: time.Duration(r.Times.Append),
		Back: !exit.Known || exit.Raw != 0 || exit.Derived != 0,
	}
	for _, w := range all {
		if w.Path != "" {
			request.Targets = append(request.Targets, w.target)
		}
	}
	if nothing.Unknown == "" && len(request.Targets) == 0 {
		nothing = outputOf(nothing, all, joblog.TailReply{}, false)
	}
	if nothing.Unknown != "" {
		return func() judge.JobOutput { return nothing }
	}
	v := &visit{hook: r.Driver, reserve: r.Reserve()}
	wait := child.Async(func() (joblog.TailReply, error) { return visited(v, joblog.SearchAsUser, request) })
	return func() judge.JobOutput {
		reply, err := wait()
		r.Try(v.trouble)
		if err = cmp.Or(err, reply.Check(len(request.Targets))); err != nil {
			nothing.Unknown = r.unheard(o, err)
			return nothing
		}
		return outputOf(nothing, all, reply, o.job.Restarts > 0)
	}
}

// outputOf joins the outputs with the search's results: one, in the same order, for each output that has a path. In a
// requeued job's output, what precedes an end report is an earlier run's, and not part of this one's output.
func outputOf(h judge.JobOutput, all []written, r joblog.TailReply, requeued bool) judge.JobOutput {
	h.Messages, h.Cancelled = slices.Clone(r.Messages), r.Cancelled
	file := 0
	for _, w := range all {
		o := w.Output
		if o.Path != "" {
			f := r.Files[file]
			for i, m := range r.Messages {
				if m.File == file {
					h.Messages[i].File = len(h.Outputs)
				}
			}
			file++
			if requeued && f.Earlier {
				f.Size, f.Earlier = f.Read, false
			}
			o.Size, o.Read, o.Why = f.Size, f.Read, f.Why()
		}
		h.Outputs = append(h.Outputs, o)
	}
	words, none := record.Unread(h.Outputs)
	if none {
		h.Unknown = words
	} else {
		h.Part = words
	}
	return h
}

// unheard returns why there is no result. A hang is the fault of the user's file system: the append is then skipped.
func (r *work) unheard(o *output, err error) string {
	var failed *child.Error
	switch {
	case r.Defect(err):
	case errors.Is(err, errStuckVisit):
		o.hangs = true
		return errStuckVisit.Error()
	case errors.As(err, &failed) && (failed.Result.Outcome == child.Abandoned || failed.Result.Outcome == child.Hung):
		o.hangs = true
		return "the file system that it lies on does not answer"
	}
	return err.Error()
}

// append adds the end report to the job's own output, as the user. It is normal for a job to have no such file.
func (r *work) append(o *output) {
	start := r.Past.Run.Start
	untold := start != nil && start.Report != "" && !o.told // no task hook printed it
	if len(r.text) == 0 && !untold || r.EUID != 0 || r.Job.UID == 0 {
		return
	}
	target := o.target()
	if target.Path == "" {
		r.jobLog = "no file"
		return
	}
	text := quote(joined(r.text))
	if untold {
		text = quote(start.Report) + text
	}
	req := joblog.AppendRequest{UID: r.Job.UID, GID: r.Job.GID, Target: target, Text: "\n" + text}
	var reply joblog.AppendReply
	err := errors.New("the file system of the job's output does not answer")
	if !o.hangs {
		v := &visit{hook: r.Driver, reserve: time.Duration(r.Times.Outputs)}
		reply, err = visited(v, joblog.AppendAsUser, req)
		r.Try(v.trouble)
		r.late(r.Take()...)
		err = cmp.Or(err, reply.Check())
	}
	r.jobLog = cmp.Or(reply.Refused, "appended")
	if err != nil {
		r.jobLog = "failed"
		r.late(record.Saw(catalog.Output, err.Error(), "the job's output takes the end report"))
	}
}

// target returns the file for the end report: the one that the TaskEpilog recorded, to which its stderr went. If the
// job has its errors in another file, or there was no TaskEpilog, it is what SLURM_JOB_STDOUT expands to.
func (o *output) target() joblog.Target {
	recorded := o.drop.Target
	if recorded.Path != "" && o.job.Stderr == "" {
		return recorded
	}
	if out := o.expanded(record.ScriptOutput, o.pattern()); out.Path != "" {
		return out.target
	}
	return recorded
}

// written is one of a job's outputs, and its path: the user's claim. One whose path is not known has a Why.
type written struct {
	record.Output
	target joblog.Target
}

// Why the path of an output is not known.
const (
	ofSrun      = "goes to srun's own terminal, a pipe, or files that cannot be told from here"
	onFirstNode = "is written on the job's first node"
	unnamed     = "its name cannot be told from here: "
)

// writtenBy returns a job's outputs, as far as they are known: its script's output, and errors if these are apart, and
// what its steps write to. A task hook's own errors went to the file that it recorded.
func (o *output) writtenBy() (all []written) {
	drop, recorded := o.drop, o.drop.Target.Path != ""
	switch {
	case recorded && o.job.Stderr == "":
		all = append(all, at(record.ScriptOutput, drop.Target))
	case o.job.Batch || o.job.Stdout != "" || recorded:
		all = append(all, o.expanded(record.ScriptOutput, o.pattern()))
		if recorded {
			all = add(all, at(record.ScriptErrors, drop.Target))
		} else if o.job.Stderr != "" {
			all = add(all, o.expanded(record.ScriptErrors, o.job.Stderr))
		}
	}
	for _, t := range drop.Steps {
		all = add(all, at(record.StepOutput, t))
	}
	if drop.Elsewhere || len(all) == 0 {
		all = append(all, unplaced(record.StepOutput, ofSrun))
	}
	return all
}

func at(kind record.OutputKind, t joblog.Target) written {
	return written{record.NewOutput(kind, t.Path), t}
}

func unplaced(kind record.OutputKind, why string) written {
	return written{Output: record.Output{Kind: kind, Why: why}}
}

func add(all []written, w written) []written {
	if w.Path != "" && slices.ContainsFunc(all, func(o written) bool { return o.target.Path == w.target.Path }) {
		return all
	}
	return append(all, w)
}

func (o *output) expanded(kind record.OutputKind, pattern string) written {
	if slurm.FirstHost(o.job.NodeList) != o.job.Node {
		return unplaced(kind, onFirstNode)
	}
	drop := &o.drop
	if !o.told {
		drop = nil
	}
	path, err := joblog.Expand(pattern, o.job, drop)
	if err != nil {
		const most = 60 // bytes of a pattern that are shown
		return unplaced(kind, unnamed+pattern[:min(len(pattern), most)])
	}
	return at(kind, joblog.Target{Path: path})
}

// pattern returns the pattern of the job's output file. Slurm may not give it for sbatch's default (slurm.TellsRun).
func (o *output) pattern() string {
	switch {
	case o.job.Stdout != "" || !o.job.Batch:
		return o.job.Stdout
	case o.drop.Array.Master != 0:
		return "slurm-%A_%a.out"
	}
	return "slurm-%j.out"
}
