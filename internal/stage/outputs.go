package stage

import (
	"fmt"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/slurm"
)

// outputs are best effort and independent of each other: none changes the verdict, which is final by now.
func (h *hook) outputs() {
	lines := h.logLines()
	req := diskRequest{
		Run: h.cfg.Paths.Run, Var: h.cfg.Paths.Var, Node: h.job.Node, Now: h.env.Clock.Wall(), Boot: h.env.Clock.Boot(),
		Textfile: h.cfg.Metrics.Textfile, Counted: h.counted(), Program: program(h.phase), PID: h.env.PID, LogAs: h.cfg.Log,
	}
	if h.cfg.Log.File {
		req.Log, req.LogDir = lines, h.cfg.Paths.Log
	}
	if h.phase != slurm.Prolog && h.store != nil {
		req.Archive, req.Drop, req.Sweep = true, slurm.Owner{ID: h.job.ID, SLUID: h.job.SLUID}, h.phase == slurm.HealthCheck
	}
	req.Within = h.left(time.Duration(h.times.Outputs), 0)
	reply, err := ask[diskReply](opDisk, req, req.Within)
	if err != nil { // the log has no word of this run, nor have the metrics
		reply.Troubles = append(reply.Troubles, diskTrouble{Code: code.LogFailed, Text: err.Error(), Say: true})
	}
	for _, t := range reply.Troubles {
		fmt.Fprintf(h.env.Stderr, "bookend: %s\n", t.Text) // slurmd's log is all that is left
		if t.Say {
			h.syslog(t.entry(h.entry(config.Warning, "")))
		}
	}
}
