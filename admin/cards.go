package main

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/answer"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/inventory"
	"bookend/internal/stage"
)

// driverTime is how long "bookend status" waits for the driver.
const driverTime = 3 * time.Second

// ask adds what driver and Slurm say now.
func (a *app) ask(n *answer.Node, cfg config.Config, all records) {
	n.Slurm = a.slurmNode(cfg, n.Drain, n.Name)
	d := answer.Driver{Unknown: answer.Unknown{}}
	n.Driver = &d
	var now stage.Glance
	if why := a.unaskable(n, cfg, all); why != "" {
		d.Unknown["answers"] = why
	} else {
		now = a.glance(cfg, all)
		answers := now.Why == "" || len(now.Snapshot.Readings) > 0
		d.Answers, d.Release, d.Seconds = &answers, now.Snapshot.Driver.Version,
			now.Took.Round(time.Millisecond).Seconds()
		if now.Why != "" {
			d.Unknown["release"] = fmt.Sprintf("%s%s %s", now.Code, now.Fault, now.Why)
		}
	}
	epoch := inventory.ReadEpoch(cfg.Paths.Proc, cfg.Paths.Sys)
	n.Cards = answer.NewCards(answer.Scene{
		Now: now.Snapshot, Who: now.Who, At: a.env.Clock.Booted().Add, Runs: all.runs, Epoch: epoch,
		Baselines: known(all, epoch), Limits: finding.LimitsOf(cfg.Thresholds),
	})
}

// backendTroubles are those with which no backend can be started.
var backendTroubles = []code.Code{code.BackendMissing, code.BackendRefused}

// unaskable says why the driver is not to be asked; empty where it is.
func (a *app) unaskable(n *answer.Node, cfg config.Config, all records) string {
	if all.store != nil {
		if why := stuck(a.env, cfg, all); why != "" {
			return "a child of an earlier look is still in it"
		}
	}
	for _, t := range n.Now {
		if slices.Contains(backendTroubles, t.Code) {
			return t.Text
		}
	}
	return ""
}

// glance looks at all cards; a child that could not be killed is recorded, so that nobody starts another. What looks
// unexplained may be a probe's: then it looks again with probes locked out.
func (a *app) glance(cfg config.Config, all records) stage.Glance {
	now := a.look(cfg, all)
	if all.store == nil || now.Why != "" {
		return now
	}
	var odd []gpu.ID
	for _, r := range now.Snapshot.Readings {
		limits := finding.LimitsOf(cfg.Thresholds)
		if bytes, _ := finding.Unexplained(r, limits, finding.Baseline{}); bytes >= uint64(cfg.Thresholds.Report) {
			odd = append(odd, r.Device.ID)
		}
	}
	if len(odd) == 0 {
		return now
	}
	_, release := all.store.Quiet(odd, quietTime)
	defer release()
	return a.look(cfg, all)
}

func (a *app) look(cfg config.Config, all records) stage.Glance {
	now := stage.Look(a.env, cfg, driverTime)
	if now.Stuck != nil && all.store != nil {
		if err := all.store.SetStuck(*now.Stuck); err != nil {
			fmt.Fprintf(a.env.Stderr, "bookend: %v\n", err)
		}
	}
	return now
}

// known are the baselines that hold now.
func known(all records, epoch gpu.Epoch) map[gpu.ID]finding.Baseline {
	out := map[gpu.ID]finding.Baseline{}
	if all.store == nil {
		return out
	}
	cards, err := all.store.Baselines()
	if err != nil {
		return out
	}
	for id, b := range cards {
		if b.Epoch.Same(epoch) {
			out[id] = b
		}
	}
	return out
}
