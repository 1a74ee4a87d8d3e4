package stage

import (
	"strings"
	"time"

	"bookend/internal/diagnosis"
	"bookend/internal/drain"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/report"
	"bookend/internal/session"
)

// record is the one product of a hook. Each step adds its part; a judgement is made again when there is more to judge.
type record struct {
	judge.Case
	judge.Judgement
	heard  judge.Heard
	why    *diagnosis.Diagnosis // nil where nobody wants to know
	text   []report.Safe        // for the job's owner
	jobLog string               // what became of the end report, for the log
	drain  *drain.Decision      // about the node, where there is news
	gauges *metrics.Check       // of a health check; nil for a job's hooks
}

// end is the record as one end of the job's run.
func (r *record) end(d *session.Driver) ledger.End {
	e := r.Case.End(r.Judgement)
	e.Wall, e.Report, e.Diagnosis = d.Clock.Wall(), joined(r.text), r.why
	e.Messages, e.Outputs = r.heard.Messages, r.heard.Outputs
	e.Health = ledger.Accounts(r.Seen.Health, r.began())
	if e.At == 0 {
		e.At = d.Clock.Boot()
	}
	e.SlurmConf = slurmConf(d.Hook)
	return e
}

// began is the start's wall time, zero where there is no record of it.
func (r *record) began() time.Time {
	if r.Past.Run.Start == nil {
		return time.Time{}
	}
	return r.Past.Run.Start.Wall
}

// slurmConf is what a hook that asks for a drain leaves for the health check, which looks after it.
func slurmConf(h *session.Hook) string {
	const most = 4 << 10 // PATH_MAX
	conf := h.Getenv("SLURM_CONF")
	if h.Reached() == 0 || len(conf) >= most {
		return ""
	}
	return conf
}

// report is the record as its job's owner is to read it.
func (r *record) report() report.Scene {
	return report.Scene{
		Node: r.Job.Node, Job: r.Job, Cards: r.Subjects(r.Judgement), Now: r.Seen.Side, Before: r.Past.Before,
		Findings: r.Findings(), Verdict: r.Verdict(), Why: r.why,
		Show: r.Config.JobLog.Show, Privacy: r.Config.JobLog.Privacy,
		Help: strings.Trim(r.Config.HelpURL+", "+r.Config.Contact, ", "),
	}
}

func joined(lines []report.Safe) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(string(l) + "\n")
	}
	return b.String()
}
