package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/config"
	"bookend/internal/joblog"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/view"
)

// elsewhere answers a user whose job has no report on this host: by the user's spool, else by Slurm's accounting. It
// reports whether there was an answer.
func elsewhere(a *app, cfg config.Config, ref slurm.Ref) (answered bool, err error) {
	for _, s := range a.spooled(cfg, func(s joblog.Spooled) bool { return s.Is(ref) }) {
		answered, err = true, cmp.Or(err, a.write(spoolReport(s), false))
	}
	if answered {
		return true, err
	}
	job, unknown := a.slurm(cfg, 10*time.Second).Accounting(ref, a.env.EUID)
	if unknown != nil {
		return false, nil
	}
	known := view.NewOwnReport("", ref.Text, false, "", job.Text(ref), "")
	known.Source = "sacct"
	return true, a.write(known, false)
}

// slurm returns access to Slurm with so much time for each call.
func (a *app) slurm(cfg config.Config, limit time.Duration) slurmcmd.Scontrol {
	return slurmcmd.Scontrol{Path: cfg.Slurm.Scontrol, Conf: a.env.Getenv("SLURM_CONF"), Root: a.env.EUID == 0,
		Time: func() time.Duration { return limit }}
}

// lastFailed answers a user who names no job: by the spool's newest that failed or has findings, else by sacct's.
func lastFailed(a *app, cmd *cobra.Command) error {
	failed := func(s joblog.Spooled) bool { return s.Found || s.Exit.Known && s.Exit.Raw != 0 }
	var all []joblog.Spooled
	if a.env.EUID != 0 { // Threat: root must not open a user's files
		all = a.spooled(a.config(), failed)
	}
	if len(all) == 0 {
		ref, err := a.slurm(a.config(), 10*time.Second).LastFailed(a.env.EUID)
		if a.env.EUID == 0 || err != nil {
			return misused(cmd, "want JOBID: no job of yours that failed is known here")
		}
		return ownReport(a, ref)
	}
	return a.write(spoolReport(slices.MaxFunc(all, func(x, y joblog.Spooled) int { return x.At.Compare(y.At) })), false)
}

// spooled returns what the calling user's spool has of the runs that match, nothing where there is no spool.
func (a *app) spooled(cfg config.Config, match func(joblog.Spooled) bool) []joblog.Spooled {
	// Threat: none: these are the calling user's own settings, and the spool must be that user's.
	all, err := joblog.OwnSpool(cfg.Spool, a.env.Getenv("USER"), a.env.Getenv("HOME"), uint32(a.env.EUID), match)
	if err != nil {
		a.warn(err)
	}
	return all
}

func spoolReport(s joblog.Spooled) view.OwnReport {
	r := view.NewOwnReport(s.Node, s.Job, s.Clean, s.Start, s.End, "")
	r.Source = "spool"
	return r
}
