package stage

import (
	"errors"
	"os"
	"slices"
	"strings"
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

// written is one of the outputs of a job, and where it lies: the user's claim. One whose place is not known has a Why.
type written struct {
	ledger.Output
	target joblog.Target
}

// Why it is not known where an output lies.
const (
	ofSrun      = "goes to srun's own terminal, a pipe, or files that cannot be told from here"
	onFirstNode = "is written on the job's first node"
	unnamed     = "its name cannot be told from here: "
)

// writtenBy are the outputs of a job, as far as they are known: its script's output, and errors where it keeps them
// apart, and what its steps write to. Drop is nil where no task hook left a record.
func writtenBy(job slurm.Job, drop *joblog.Drop) []written {
	facts := factsOf(job, drop)
	if drop == nil {
		drop = new(joblog.Drop)
	}
	var all []written
	if job.Batch || job.Stdout != "" || drop.Target.Path != "" {
		all = ofScript(*drop, facts)
	}
	for _, t := range drop.Steps {
		all = add(all, at(ledger.StepOutput, t))
	}
	if drop.Elsewhere || len(all) == 0 {
		all = append(all, written{Output: ledger.Output{Kind: ledger.StepOutput, Why: ofSrun}})
	}
	if drop.More > 0 {
		more := ledger.Output{Kind: ledger.StepOutput, Why: "more files than a record holds"}
		all = append(all, written{Output: more})
	}
	return all
}

// ofScript are the output and the errors of a batch script. A task hook's own errors went to the file that it recorded.
func ofScript(drop joblog.Drop, facts joblog.Facts) []written {
	recorded := drop.Target.Path != ""
	if facts.Job.Stderr == "" && recorded {
		return []written{at(ledger.ScriptOutput, drop.Target)}
	}
	all := []written{expanded(ledger.ScriptOutput, outputPattern(facts.Job, drop.Array), facts)}
	switch {
	case facts.Job.Stderr == "":
		return all
	case recorded:
		return add(all, at(ledger.ScriptErrors, drop.Target))
	}
	return add(all, expanded(ledger.ScriptErrors, facts.Job.Stderr, facts))
}

func at(kind ledger.OutputKind, t joblog.Target) written {
	return written{ledger.NewOutput(kind, t.Path), t}
}

// add adds an output unless its file is known already.
func add(all []written, w written) []written {
	if w.Path != "" && slices.ContainsFunc(all, func(o written) bool { return o.target.Path == w.target.Path }) {
		return all
	}
	return append(all, w)
}

// expanded is the output that a pattern of the batch script's names.
func expanded(kind ledger.OutputKind, pattern string, facts joblog.Facts) written {
	if slurm.FirstHost(facts.Job.NodeList) != facts.Job.Node {
		return written{Output: ledger.Output{Kind: kind, Why: onFirstNode}}
	}
	path, err := joblog.Expand(pattern, facts)
	if err != nil {
		return written{Output: ledger.Output{Kind: kind, Why: unnamed + pattern[:min(len(pattern), maxPattern)]}}
	}
	return at(kind, joblog.Target{Path: path})
}

// maxPattern is how much of a pattern is shown that cannot be expanded, in bytes.
const maxPattern = 60

// factsOf are what a job's patterns are expanded with; drop is nil where no task hook left a record.
func factsOf(job slurm.Job, drop *joblog.Drop) joblog.Facts {
	f := joblog.Facts{Job: job}
	if name, err := os.Hostname(); err == nil {
		f.Host, _, _ = strings.Cut(name, ".")
	}
	if drop != nil {
		f.Told, f.Array, f.Name = true, drop.Array, drop.Name
	}
	return f
}

// outputPattern is what the job's output is named by. Slurm may not say it for sbatch's default
// (slurm.TellsRun).
func outputPattern(job slurm.Job, array slurm.ArrayTask) string {
	switch {
	case job.Stdout != "" || !job.Batch:
		return job.Stdout
	case array.Master != 0:
		return "slurm-%A_%a.out"
	}
	return "slurm-%j.out"
}
