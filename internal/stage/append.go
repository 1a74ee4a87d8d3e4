package stage

import (
	"fmt"
	"time"

	"bookend/internal/asuser"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/joblog"
	"bookend/internal/ledger"
)

// appendRequest crosses the pipe of opAppend. The target is the user's claim.
type appendRequest struct {
	UID    uint32        `json:"uid"`
	GID    uint32        `json:"gid"`
	User   string        `json:"user"`
	Target joblog.Target `json:"target"`
	Text   string        `json:"text"`
}

// appendReply is untrusted: it was written by a process that the user may have got at.
type appendReply struct {
	Refused string `json:"refused,omitempty"`
}

// check refuses what no child of ours answers.
func (r appendReply) check() error {
	if r.Refused != "" && !joblog.IsReason(r.Refused) {
		return fmt.Errorf("refused for %.40q", r.Refused)
	}
	return nil
}

// serveAppend starts as root and gives that up, for good, before it opens anything of the user's.
var serveAppend = served(func(r appendRequest) (appendReply, error) {
	if err := asuser.Become(r.UID, r.GID, asuser.Groups(r.UID, r.GID, r.User)); err != nil {
		return appendReply{}, err
	}
	if err := joblog.Append(r.Target, r.UID, []byte(r.Text)); err != nil {
		return appendReply{Refused: joblog.Reason(err)}, nil
	}
	return appendReply{}, nil
})

// append adds the end report to the job's own output, as the user. A job without such a file is normal.
func (h *hook) append(run ledger.Run) {
	if !h.wanted(h.cfg.JobLog.End) || h.env.EUID != 0 || h.job.UID == 0 {
		return
	}
	target, alone := h.target()
	if target.Path == "" {
		h.jobLog = "no file"
		return
	}
	if h.outputHangs {
		h.notAppended("the file system of the job's output does not answer")
		return
	}
	text := "\n" + quote(joined(h.text))
	if alone && run.Start != nil {
		text = "\n" + quote(run.Start.Report) + quote(joined(h.text)) // no task hook was there to print it
	}
	req := appendRequest{UID: h.job.UID, GID: h.job.GID, User: h.job.User, Target: target, Text: text}
	visit := h.newVisit(time.Duration(h.times.Outputs))
	reply, err := visited[appendReply](visit, opAppend, req)
	h.collect(visit)
	if err == nil {
		err = reply.check()
	}
	switch {
	case err != nil:
		h.notAppended(err.Error())
	case reply.Refused != "":
		h.jobLog = reply.Refused
	default:
		h.jobLog = "appended"
	}
}

func (h *hook) notAppended(why string) {
	h.jobLog = "failed"
	h.add(finding.Finding{Code: code.Output, Observed: why, Expected: "the job's output takes the end report"})
}

// target is the file that takes the end report: the one that the TaskEpilog recorded, to which its stderr went. That is the
// job's output, unless the job keeps its errors apart; then, and without a TaskEpilog, it is what SLURM_JOB_STDOUT
// expands to.
func (h *hook) target() (t joblog.Target, noTaskHook bool) {
	drop := h.readDrop()
	facts := factsOf(h.job, drop)
	if drop == nil {
		drop, noTaskHook = new(joblog.Drop), true
	}
	if drop.Target.Path != "" && h.job.Stderr == "" {
		return drop.Target, false
	}
	if out := expanded(ledger.ScriptOutput, outputPattern(h.job, drop.Array), facts); out.Path != "" {
		return out.target, noTaskHook
	}
	return drop.Target, noTaskHook
}

// readDrop returns what a task hook of the job left, nil for no record or one that is not of its form.
func (h *hook) readDrop() *joblog.Drop {
	if h.store == nil {
		return nil
	}
	raw, err := h.store.ReadDrop(h.job)
	if err != nil {
		return nil
	}
	drop, err := joblog.ParseDrop(raw)
	if err != nil {
		return nil
	}
	return &drop
}

func (h *hook) wanted(v config.Verbosity) bool {
	switch v {
	case config.Never:
		return false
	case config.Unclean:
		return !h.report().Clean()
	}
	return true
}
