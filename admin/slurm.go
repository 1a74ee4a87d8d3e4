package main

import (
	"strings"
	"time"

	"bookend/internal/answer"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/report"
	"bookend/internal/slurmcmd"
)

// slurmTime is how long "bookend status" waits for Slurm: with slurmctld down scontrol itself would wait 10 to 20 s.
const slurmTime = 2 * time.Second

// slurmNode is what Slurm says of the node now.
func (a *app) slurmNode(cfg config.Config, memory drain.Memory, node string) *answer.SlurmNode {
	n := answer.SlurmNode{Unknown: answer.Unknown{}}
	conf := a.env.Getenv("SLURM_CONF")
	if conf == "" && memory.Written != nil {
		conf = memory.Written.Conf
	}
	until := a.env.Clock.Boot() + slurmTime
	left := func() time.Duration { return until - a.env.Clock.Boot() }
	now, err := slurmcmd.Scontrol{Path: cfg.Slurm.Scontrol, Conf: conf, Root: a.env.EUID == 0, Time: left}.Node(node)
	if err != nil {
		for _, field := range []string{"state", "drain", "reason"} {
			n.Unknown[field] = string(report.Clean(err.Error(), detailWidth))
		}
		return &n
	}
	state, drained := string(report.Clean(strings.Join(now.Flags, "+"), detailWidth)), now.Drained()
	reason, by := string(report.Clean(now.Reason, detailWidth)), string(report.Clean(now.By, nameWidth))
	n.State, n.Drained, n.Reason, n.By = &state, &drained, &reason, by
	if !now.At.IsZero() {
		at := now.At.UTC()
		n.Since = &at
	}
	return &n
}
