package stage

import (
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/report"
	"bookend/internal/scontrol"
)

// reasonTime bounds each call of scontrol, of which there are two: with slurmctld up one takes 10 ms.
const reasonTime = time.Second

// giveReason drains the node itself, with the reason, where the site wants the hook to do it: slurmctld keeps a
// reason that is there before the hook's exit code arrives.
func (h *hook) giveReason() {
	if h.verdict.Exit == 0 || h.cfg.Drain.ReasonBy != config.ReasonByHook {
		return
	}
	for i, f := range h.found {
		if i >= len(h.verdict.Judged) || f.Code != h.verdict.Code || h.verdict.Judged[i].Action != config.Drain {
			continue
		}
		cmd := scontrol.Command{
			Path: h.cfg.Slurm.Scontrol, Conf: h.env.Getenv("SLURM_CONF"), Root: h.env.EUID == 0,
			Timeout: h.left(reasonTime, time.Duration(h.times.Outputs)),
		}
		if err := cmd.Drain(h.job.Node, string(report.Reason(f, h.job.ID, h.phase))); err != nil {
			h.add(finding.Finding{Code: code.ReasonFailed, Observed: err.Error(), Expected: "the drain reason is written"})
		}
		return
	}
}
