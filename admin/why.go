package main

import (
	"cmp"
	"slices"
	"strings"
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
	return true, a.write(view.NewOwnReport("sacct", "", ref.Text, false, "", job.Text(ref), ""), false)
}

// slurm returns access to Slurm with so much time for each call.
func (a *app) slurm(cfg config.Config, limit time.Duration) slurmcmd.Scontrol {
	return slurmcmd.Scontrol{Path: cfg.Slurm.Scontrol, Conf: a.env.Getenv("SLURM_CONF"), Root: a.env.EUID == 0,
		Time: func() time.Duration { return limit }}
}

// lastFailed answers a user who names no job: by the spool's newest that failed or has findings, else by sacct's.
func lastFailed(a *app, cmd *cobra.Command) error {
	failed := func(s joblog.Spooled) bool { return s.Found || s.Exit.Known && s.Exit.Raw != 0 }
	newest := func(x, y joblog.Spooled) int { return x.At.Compare(y.At) }
	none := misused(cmd, "want JOBID: no job of yours that failed is known here")
	if a.env.EUID == 0 { // Threat: root must not open a user's files
		return none
	}
	if all := a.spooled(a.config(), failed); len(all) > 0 {
		return a.write(spoolReport(slices.MaxFunc(all, newest)), false)
	}
	// Tasks of an array that never ran are one line.
	ended := func(s joblog.Spooled) bool { return s.Used.End == joblog.Ended || strings.Contains(s.Job, "[") }
	all := slices.DeleteFunc(a.accounted(a.config(), ""), ended)
	if len(all) == 0 {
		return none
	}
	ref, err := slurm.ParseRef(slices.MaxFunc(all, newest).Job)
	if err != nil {
		return none
	}
	return ownReport(a, ref)
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

// accounted returns what Slurm's accounting has of the user's jobs, none without slurmdbd.
func (a *app) accounted(cfg config.Config, name string) []joblog.Spooled {
	text, err := a.slurm(cfg, 10*time.Second).Recent(a.env.EUID, name)
	if err != nil { // the newest may be missing
		return nil
	}
	return joblog.Accounted(text)
}

func spoolReport(s joblog.Spooled) view.OwnReport {
	return view.NewOwnReport("spool", s.Node, s.Job, s.Clean, s.Start, s.End, "")
}

func peaksCommand(a *app) *cobra.Command {
	return a.inJSON(&cobra.Command{
		Use: "peaks", Args: operands(0, 1, "a job's NAME"), RunE: func(cmd *cobra.Command, args []string) error {
			if a.env.EUID == 0 { // Threat: root must not open a user's files
				return misused(cmd, "run it as the user whose jobs they are")
			}
			cfg, name := a.config(), append(args, "")[0]
			all := func(joblog.Spooled) bool { return true }
			p := joblog.NewPeaks(view.Version, "spool", name, a.spooled(cfg, all))
			if len(p.Runs) == 0 {
				p = joblog.NewPeaks(view.Version, "sacct", name, a.accounted(cfg, name))
			}
			if len(p.Runs) == 0 {
				return notFound("no GPU job of yours with this name is known here: %q", name)
			}
			return a.write(p, false)
		},
	})
}
