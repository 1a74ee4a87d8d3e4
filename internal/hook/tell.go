package hook

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/state"
)

// tell leaves the end report for the job's user: in the node's state, and in the job's output, there with the start
// report if no task hook printed that.
func tell(a *node.Access, c judge.Case, p joblog.Place, hangs bool, text string) (string, []record.Finding) {
	var faults []record.Finding
	if text != "" {
		faults = node.Fault(a.Store.Users.ChangeReport(a.Job, func(told *state.Report) { told.End = text }))
	}
	said := joblog.Quote(text)
	if start := c.Past.Run.Start; start != nil && !p.Left {
		said = joblog.Quote(start.Report) + said
	}
	became, more := appendReport(a, p, hangs, said)
	return became, slices.Concat(faults, more)
}

// appendReport appends a report to the job's own output, as its user. hangs means that the output's file system did not
// answer just now. It returns what became of it, empty if there was nothing to say, for the log. It is normal for a job
// to have no such file.
func appendReport(a *node.Access, p joblog.Place, hangs bool, text string) (became string, faults []record.Finding) {
	target := p.Target()
	switch {
	case text == "" || a.Env.EUID != 0 || a.Job.UID == 0:
		return "", nil
	case p.Unnamed():
		return joblog.UnknownFile, nil
	case target.Path == "":
		return "no file", nil
	}
	var reply joblog.AppendReply
	err := errors.New("the file system of the job's output does not answer")
	if !hangs {
		var trouble error
		req := joblog.AppendRequest{UID: a.Job.UID, GID: a.Job.GID, Target: target, Text: "\n" + text}
		reply, trouble, err = node.Visit(a, joblog.AppendAsUser, req, time.Duration(a.Times.Outputs))
		faults = node.Fault(trouble)
		err = cmp.Or(err, reply.Check())
	}
	if err != nil {
		failed := record.Saw(catalog.Output, err.Error(), "the job's output takes the end report")
		return "failed", append(faults, failed)
	}
	return cmp.Or(reply.Refused, "appended"), faults
}
