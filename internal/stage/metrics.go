package stage

import (
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/metrics"
	"bookend/internal/runlog"
	"bookend/internal/slurm"
)

// counted is this run as the metrics count it.
func (h *hook) counted() metrics.Run {
	r := metrics.Run{
		Check:   h.checked,
		Version: h.env.Version, Hook: metrics.Prolog, Job: h.job.ID, At: h.env.Clock.Wall(), Action: h.verdict.Action, Held: h.verdict.Held != "",
	}
	switch h.phase {
	case slurm.Epilog:
		r.Hook = metrics.Epilog
	case slurm.HealthCheck:
		r.Hook = metrics.HealthCheck
	}
	for i, f := range h.found {
		counted := metrics.Finding{Code: f.Code, Own: h.isOwn(i)}
		if counted.Own {
			counted.Detail = detail(f)
		}
		r.Findings = append(r.Findings, counted)
	}
	return r
}

// isOwn reports a trouble of Bookend itself or of the driver as a whole. What policy ignores or only notes is none: at
// some sites it is how things are.
func (h *hook) isOwn(i int) bool {
	entry, _ := code.Lookup(h.found[i].Code)
	if entry.Scope != code.Own && entry.Scope != code.Driver {
		return false
	}
	if i >= len(h.verdict.Judged) { // found after the verdict
		return entry.Severity != code.Note
	}
	action := h.verdict.Judged[i].Action
	return action == config.Warn || action == config.Drain
}

// diskTrouble is what went wrong at the disk: by then the verdict and the job's record are final.
type diskTrouble struct {
	Code code.Code `json:"code"`
	Text string    `json:"text"`
	// Say: it has not been said within the hour.
	Say bool `json:"say,omitempty"`
}

// entry is the line of the log that says so.
func (t diskTrouble) entry(like runlog.Entry) runlog.Entry {
	like.Message = worded(finding.Finding{Code: t.Code, Observed: t.Text})
	return like
}
