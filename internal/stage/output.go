package stage

import (
	"errors"
	"slices"
	"time"

	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/operation"
	"bookend/internal/session"
	"bookend/internal/slurm"
)

// output is where a job writes: the user's claims. Drop is what its task hooks left, nil for no record or one that is
// not of its form.
type output struct {
	job   slurm.Job
	drop  *joblog.Drop
	hangs *bool // it lies on a file system that did not answer
}

func outputOf(d *session.Driver) output {
	return output{job: d.Job, drop: readDrop(d), hangs: new(bool)}
}

func readDrop(d *session.Driver) *joblog.Drop {
	if d.Store == nil {
		return nil
	}
	raw, err := d.Store.ReadDrop(d.Job)
	if err != nil {
		return nil
	}
	drop, err := joblog.ParseDrop(raw)
	if err != nil {
		return nil
	}
	return &drop
}

// addressSpace is the limit that a task hook of the job left word of: the user's claim.
func (o output) addressSpace() gpu.Figure {
	if o.drop == nil || o.drop.AddressSpace == 0 {
		return gpu.Unknown("no task hook of the job told its limit of address space")
	}
	return gpu.Bytes(o.drop.AddressSpace)
}

// listen begins to look through the job's outputs for messages about memory, as the user, beside what the hook does
// meanwhile. The function that it returns waits for what was found, at most as long as an append and its turn may take,
// or says why nobody looked; it is called once.
func (o output) listen(d *session.Driver, again bool) (listened func() judge.Heard) {
	nothing := judge.Heard{AddressSpace: o.addressSpace()}
	if nothing.Unknown = notToBeRead(d, again); nothing.Unknown != "" {
		return func() judge.Heard { return nothing }
	}
	exit := o.job.Exit
	all, request := writtenBy(o.job, o.drop), operation.TailRequest{
		UID: o.job.UID, GID: o.job.GID, User: o.job.User, Within: time.Duration(d.Times.Append),
		Back: !exit.Known || exit.Raw != 0 || exit.Derived != 0,
	}
	for _, w := range all {
		if w.Path != "" {
			request.Targets = append(request.Targets, w.target)
		}
	}
	if len(request.Targets) == 0 {
		return func() judge.Heard { return heard(nothing, all, operation.TailReply{}) }
	}
	visit := d.Visit(d.Reserve())
	wait := operation.Aside(func() (operation.TailReply, error) { return operation.Tail.Visited(visit, request) })
	return func() judge.Heard {
		reply, err := wait()
		collect(d, visit)
		if err == nil {
			err = reply.Check(len(request.Targets))
		}
		if err != nil {
			nothing.Unknown = o.fault(d, err)
			return nothing
		}
		if o.job.Restarts > 0 {
			requeued(reply)
		}
		return heard(nothing, all, reply)
	}
}

// collect tells what went wrong with the record of a visit that is over.
func collect(d *session.Driver, v *operation.Visit) {
	for _, err := range v.Troubles {
		d.Try(err)
	}
	v.Troubles = nil
}

// requeued leaves out of account what stands before an end report: it is an earlier run's, and no part of this one's
// output.
func requeued(r operation.TailReply) {
	for i := range r.Files {
		if f := &r.Files[i]; f.Earlier {
			f.Size, f.Earlier = f.Read, false
		}
	}
}

// notToBeRead is why the job's outputs are not looked through.
func notToBeRead(d *session.Driver, again bool) string {
	switch {
	case !d.Config.JobLog.Read:
		return "job_log.read is off"
	case again:
		return "its epilog has run before"
	case d.EUID != 0:
		return "the hook is not root's, and so cannot become the job's user"
	case d.Job.UID == 0:
		return "the job is root's"
	}
	return ""
}

// heard joins what is known of the outputs with what was found in those that have a place, in the same order. A file
// that has two paths is one output.
func heard(h judge.Heard, all []written, r operation.TailReply) judge.Heard {
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
			if f.Same {
				continue
			}
			o.Size, o.Read, o.Why = f.Size, f.Read, f.Why()
		}
		h.Outputs = append(h.Outputs, o)
	}
	words, none := ledger.Unread(h.Outputs)
	if none {
		h.Unknown = words
	} else {
		h.Part = words
	}
	return h
}

// fault words why nothing came back. A child that hangs is not the driver's: it hangs where the user keeps files, and
// the append, which would meet the same, is spared.
func (o output) fault(d *session.Driver, err error) string {
	if d.Defect(err) {
		return err.Error()
	}
	if errors.Is(err, operation.ErrStuckVisit) {
		*o.hangs = true
		return operation.ErrStuckVisit.Error()
	}
	var failed *operation.Error
	if errors.As(err, &failed) && (failed.Result.Outcome == child.Abandoned || failed.Result.Outcome == child.Hung) {
		*o.hangs = true
		return "the file system that it lies on does not answer"
	}
	return err.Error()
}

// append adds the end report to the job's own output, as the user. A job without such a file is normal.
func (r *record) append(d *session.Driver, o output) {
	start := r.Past.Run.Start
	untold := start != nil && start.Report != ""
	if len(r.text) == 0 && !untold || d.EUID != 0 || d.Job.UID == 0 {
		return
	}
	target, noTaskHook := o.target()
	if len(r.text) == 0 && !noTaskHook { // its task hook has told the start
		return
	}
	if target.Path == "" {
		r.jobLog = "no file"
		return
	}
	if *o.hangs {
		r.notAppended("the file system of the job's output does not answer")
		return
	}
	text := quote(joined(r.text))
	if noTaskHook && untold { // none was there to print it
		text = quote(start.Report) + text
	}
	req := operation.AppendRequest{UID: d.Job.UID, GID: d.Job.GID, User: d.Job.User, Target: target, Text: "\n" + text}
	visit := d.Visit(time.Duration(d.Times.Outputs))
	reply, err := operation.Append.Visited(visit, req)
	collect(d, visit)
	r.late(d.Take()...)
	if err == nil {
		err = reply.Check()
	}
	switch {
	case err != nil:
		r.notAppended(err.Error())
	case reply.Refused != "":
		r.jobLog = reply.Refused
	default:
		r.jobLog = "appended"
	}
}

func (r *record) notAppended(why string) {
	r.jobLog = "failed"
	r.late(finding.Saw(code.Output, why, "the job's output takes the end report"))
}

// target is the file that takes the end report: the one that the TaskEpilog recorded, to which its stderr went. That is
// the job's output, unless the job keeps its errors apart; then, and without a TaskEpilog, it is what SLURM_JOB_STDOUT
// expands to.
func (o output) target() (t joblog.Target, noTaskHook bool) {
	facts, drop := factsOf(o.job, o.drop), o.drop
	if drop == nil {
		drop, noTaskHook = new(joblog.Drop), true
	}
	if drop.Target.Path != "" && o.job.Stderr == "" {
		return drop.Target, false
	}
	if out := expanded(ledger.ScriptOutput, outputPattern(o.job, drop.Array), facts); out.Path != "" {
		return out.target, noTaskHook
	}
	return drop.Target, noTaskHook
}
