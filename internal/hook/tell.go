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
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/report"
	"bookend/internal/state"
)

// tell leaves the end report for the job's user: in the node's state, in the job's output, there with the start report
// if no task hook printed that, and in the user's spool. It returns what became of it in the output and in the spool,
// for the log.
func tell(a *node.Access, c judge.Case, p joblog.Place, hangs bool, end record.End) (
	log, spool string, faults []record.Finding,
) {
	if end.Report != "" {
		faults = node.Fault(a.Store.Users.ChangeReport(a.Job, func(told *state.Report) { told.End = end.Report }))
	}
	said := joblog.Quote(end.Report)
	if start := c.Past.Run.Start; start != nil && !p.Left {
		said = joblog.Quote(start.Report) + said
	}
	if a.Env.EUID != 0 || a.Job.UID == 0 {
		return "", "", faults
	}
	req := joblog.AppendRequest{UID: a.Job.UID, GID: a.Job.GID, Text: "\n" + said}
	if said != "" {
		req.Target = p.Target()
	}
	if a.Config.Spool != "" {
		req.Spool = joblog.NewSpoolRequest(a.Config.Spool, spooled(c, named(completed(c), p), end),
			time.Duration(a.Times.Append)/2)
	}
	log, spool, more := leave(a, hangs, req)
	if a.Config.Spool != "" && req.Spool == nil {
		spool = "not written"
	}
	switch {
	case said == "":
		log = ""
	case p.Unnamed():
		const why = "the name of its file cannot be told without task hooks, and no file was seen while it ran"
		log, more = joblog.UnknownFile, append(more, record.Unsure(catalog.Output, why))
	case req.Target.Path == "":
		log = "no file" // as of srun: that is normal
	}
	return log, spool, slices.Concat(faults, more)
}

// soFar returns what the user of a running job reads about it, and a reason to leave its node.
func soFar(a *node.Access, run record.Run, seen record.Recording, now record.Side, shared bool) (text, why string) {
	scene := report.Scene{
		Run: run, Cards: run.Devices, Now: now, Show: a.Config.JobLog.Show, Recording: &seen,
		Ended: now.Snapshot.At, Shared: shared,
	}
	return report.Running(scene), report.VetRunning(scene)
}

// spooled is what the user's spool has of the run. An epilog after a requeue counts that restart already: the start's
// count is the run's.
func spooled(c judge.Case, run record.Run, end record.End) joblog.Spooled {
	s := joblog.Spooled{Node: run.Job.Node, Job: run.JobName(), User: run.Job.User, ID: run.Job.ID,
		SLUID: run.Job.SLUID, Restart: run.Job.Restarts, Exit: run.Job.Exit, At: end.Wall,
		Found: end.Verdict.Code != "" || end.Diagnosis != nil, End: end.Report}
	if start := run.Start; start != nil {
		s.Restart = c.Past.Run.Job.Restarts
		s.Start, s.Clean = start.Report, start.Report == "" && start.Verdict.Code == ""
	}
	return s
}

// leave writes to the job's output and to the spool as the job's user. hangs means that the output's file system did
// not answer just now.
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
