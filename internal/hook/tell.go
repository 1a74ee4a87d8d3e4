package hook

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/leftover"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// tell leaves the end report for the job's user: in the node's state, in the job's output, there with the start report
// if no task hook printed that, and in the user's spool. It returns for the log what became of the last two.
func tell(a *node.Access, c judge.Case, p joblog.Place, hangs bool, end record.End, of func() (joblog.Account, error)) (
	log, spool string, faults []record.Finding,
) {
	if end.Report != "" {
		faults = node.Fault(a.Store.Users.ChangeReport(a.Job, func(kept *state.Report) { kept.End = end.Report }))
	}
	quote := joblog.Quote(end.Report)
	if start := c.Past.Run.Start; start != nil && !p.Left {
		quote = joblog.Quote(start.Report) + quote
	}
	if a.Env.EUID != 0 || a.Job.UID == 0 {
		return "", "", faults
	}
	who, _ := of()
	req := joblog.AppendRequest{UID: a.Job.UID, GID: a.Job.GID, Groups: who.Groups, Text: "\n" + quote}
	if quote != "" {
		req.Target = p.Target()
	}
	if a.Config.Spool != "" {
		own := spooled(c, named(completed(c), p), p.Drop.Name, end)
		own.Cluster = a.Env.Getenv(leftover.ClusterVariable)
		req.Spool = joblog.NewSpoolRequest(a.Config.Spool, who.Home, own, time.Duration(a.Times.Append)/2)
	}
	log, spool, more := leave(a, hangs, req)
	if a.Config.Spool != "" && req.Spool == nil {
		spool = "not written"
	}
	switch {
	case quote == "":
		log = ""
	case p.Unnamed():
		const why = "the name of its file cannot be told without task hooks, and no file was seen while it ran"
		log, more = joblog.UnknownFile, append(more, record.Unsure(catalog.Output, why))
	case req.Target.Path == "":
		log = "no file" // as of srun: that is normal
	}
	return log, spool, slices.Concat(faults, more)
}

// account begins to ask for what writing as the job's user takes, unless nothing can be written. The wait is for once.
func account(a *node.Access) (wait func() (joblog.Account, error)) {
	ask := func() (joblog.Account, error) { return joblog.AskAccount(a.Job.UID, a.Job.GID, a.Config.Spool), nil }
	silent := a.Config.JobLog.Show == "none" || !a.Job.Batch && a.Job.Stdout == ""
	if a.Env.EUID != 0 || a.Job.UID == 0 || silent && a.Config.Spool == "" {
		return func() (who joblog.Account, err error) { return who, nil }
	}
	return child.Async(ask)
}

// soFar returns what the user of a running job reads about it, and a reason to leave its node.
func soFar(a *node.Access, run record.Run, seen record.Recording, now record.Side, shared bool) (text, why string) {
	scene := report.Scene{Run: run, Cards: run.Devices, Now: now, Show: a.Config.JobLog.Show, Recording: &seen,
		Ended: now.Snapshot.At, Shared: shared}
	return report.Running(scene), report.VetRunning(scene)
}

// spooled is what the user's spool has of the run. After a requeue an epilog counts that restart already, a start not.
func spooled(c judge.Case, run record.Run, name string, end record.End) joblog.Spooled {
	s := joblog.Spooled{Node: run.Job.Node, Job: run.JobName(), User: run.Job.User, ID: run.Job.ID,
		SLUID: run.Job.SLUID, Restart: run.Job.Restarts, Exit: run.Job.Exit, At: end.Wall,
		Found: end.Verdict.Code != "" || end.Diagnosis != nil, End: end.Report, Used: usage(run, end)}
	if start := run.Start; start != nil {
		s.Restart = c.Past.Run.Job.Restarts
		s.Start, s.Clean = start.Report, start.Report == "" && start.Verdict.Code == ""
	}
	unread := func(o record.Output) bool { return o.Why != "" } // the last 64 KiB of a long one would have the line
	s.Used.Name, s.Used.End = name, "unknown"
	switch exit := s.Exit; { // of a job that was cancelled it is 0: the script's output says so
	case exit.Known && exit.Raw|exit.Derived != 0, c.Output.Cancelled, s.Restart != run.Job.Restarts:
		s.Used.End = "failed"
	case exit.Known && run.Start != nil && run.Job.Batch && c.Output.Unknown == "" &&
		!slices.ContainsFunc(c.Output.Outputs, unread):
		s.Used.End = joblog.Ended
	}
	return s
}

// usage is what the recorder saw of a run.
func usage(run record.Run, end record.End) joblog.Usage {
	start, seen := cmp.Or(run.Start, &record.End{}), cmp.Or(end.Recording, &record.Recording{})
	u := joblog.Usage{RanOut: len(end.Diagnosis.OutOfMemory()) > 0, Seconds: (end.Over() - start.At).Seconds(),
		Every: seen.Every.Seconds()}
	for _, element := range slurm.Elements(run.Job.NodeList) {
		nodes, _ := slurm.Expand(element)
		u.Nodes += len(nodes)
	}
	astray := len(seen.Elsewhere)+len(run.Numbering.Perhaps) > 0 || run.Unplaced()
	switch {
	case run.Start == nil:
		u.Seconds, u.Unmeasured = 0, "no record of the start"
	case !seen.Close(start.At, end.Over()) || !seen.Measures(start.At, end.Over()):
		u.Unmeasured = "the samples do not cover the whole run"
	case seen.Samples < max(30, int(u.Seconds/u.Every/2)): // a program can have come and gone between them
		u.Unmeasured = "there are too few samples"
	case astray:
		u.Unmeasured = "it may have used other GPUs"
	}
	for _, d := range run.Devices {
		now, _ := end.Snapshot.Reading(d.Device.ID)
		i := slices.IndexFunc(seen.GPUs, func(g record.GPURecording) bool { return g.ID == d.Device.ID })
		used := joblog.Used{Model: now.Device.Name, Total: now.Memory.Total.Bytes}
		if i < 0 || seen.GPUs[i].Samples == 0 || now.Memory.Unjudged != "" {
			u.Unmeasured = cmp.Or(u.Unmeasured, "the use of a GPU was not sampled")
		} else {
			used.Peak, used.Busy = seen.GPUs[i].Peak.Bytes, seen.GPUs[i].Busy.Mean()
			used.Shared = share(run, now.Device.Parent != "" || now.Parts, seen.GPUs[i])
		}
		if astray {
			used.Model, used.Total = "", 0
		}
		u.GPUs = append(u.GPUs, used)
	}
	return u
}

// smallest returns the GPU of a run that has the least memory, with which its task hook compares earlier runs: none if
// that is not wanted, not certain, or would make another process hang on the user's files.
func smallest(a *node.Access, run record.Run) (model string, bytes uint64) {
	if !a.Config.JobLog.Peaks || run.Unplaced() || len(run.Numbering.Perhaps) > 0 {
		return "", 0
	}
	if stuck, _ := a.Store.Stuck(&a.Job.UID, child.AliveIn(a.Config.Paths.Proc)); stuck != nil {
		return "", 0
	}
	for i, d := range run.Devices {
		now, _ := run.Start.Snapshot.Reading(d.Device.ID)
		total := now.Memory.Total.Bytes
		if now.Memory.Unjudged != "" || now.Parts {
			return "", 0
		}
		if i == 0 || total < bytes {
			model, bytes = now.Device.Name, total
		}
	}
	return model, bytes
}

// share names the part of a GPU that a run had, empty if no other job was seen on it.
func share(run record.Run, mig bool, g record.GPURecording) string {
	other := func(p record.RecordedProcess) bool {
		another := p.UID != run.Job.UID && !p.Apart && p.Service == "" && p.Most > record.MaxBaseline
		return !run.Owns(p.Owner) && (p.Owner.Found() || another)
	}
	before := uint64(0)
	if run.Start != nil {
		reading, _ := run.Start.Snapshot.Reading(g.ID)
		before = reading.Memory.Used.Bytes
	}
	switch {
	case mig:
		return "MIG"
	case run.Job.MPSPercent != "":
		return "MPS"
	case slices.ContainsFunc(g.Processes, other):
		return "other jobs"
	case before > record.MaxBaseline: // left over, or an earlier job's that has yet to end
		return "leftover memory"
	}
	return ""
}

// leave writes to the job's output and to the spool as the job's user. hangs: the output's file system did not answer.
func leave(a *node.Access, hangs bool, req joblog.AppendRequest) (log, spool string, faults []record.Finding) {
	if req.Target.Path == "" && req.Spool == nil {
		return "", "", nil
	}
	var reply joblog.AppendReply
	err := errors.New("the file system of the job's output does not answer")
	if !hangs {
		var trouble error
		reply, trouble, err = node.Visit(a, joblog.AppendAsUser, req, time.Duration(a.Times.Outputs))
		faults = node.Fault(trouble)
		if stays, _ := errors.AsType[*child.Error](err); stays != nil && stays.Answered {
			err = nil // the spool's file system does not answer: the child has said what it could
		}
		err = cmp.Or(err, reply.Check())
	}
	switch {
	case req.Spool != nil && err != nil:
		spool = "not written"
	case req.Spool != nil:
		spool = cmp.Or(reply.Spool, "written")
	}
	if err != nil && req.Target.Path != "" {
		failed := record.Saw(catalog.Output, err.Error(), "the job's output takes the end report")
		return "failed", spool, append(faults, failed)
	}
	return cmp.Or(reply.Refused, "appended"), spool, faults
}
