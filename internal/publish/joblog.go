package publish

import (
	"cmp"
	"errors"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/joblog"
	"bookend/internal/node"
	"bookend/internal/record"
)

// EndReport appends a job's end report, and its start's if no task hook printed that, to the job's own output, as its
// user. hangs means that the output's file system did not answer just now. It returns what became of it, empty if
// there was nothing to say, for the log. It is normal for a job to have no such file.
func EndReport(a *node.Access, p joblog.Place, hangs bool, start *record.End, text string) (
	became string, faults []record.Finding,
) {
	untold := start != nil && start.Report != "" && !p.Left // no task hook printed it
	if text == "" && !untold || a.Env.EUID != 0 || a.Job.UID == 0 {
		return "", nil
	}
	target := p.Target()
	if target.Path == "" {
		return "no file", nil
	}
	text = joblog.Quote(text)
	if untold {
		text = joblog.Quote(start.Report) + text
	}
	req := joblog.AppendRequest{UID: a.Job.UID, GID: a.Job.GID, Target: target, Text: "\n" + text}
	var reply joblog.AppendReply
	err := errors.New("the file system of the job's output does not answer")
	if !hangs {
		var trouble error
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
