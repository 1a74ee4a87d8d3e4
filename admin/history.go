package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// usualLimit is how many runs a list has unless it is told otherwise.
const usualLimit = 20

// asked is what "bookend history" was asked for.
type asked struct {
	gpu, job, user, code, since, until string
	failed, found, lemons, check       bool
	limit                              int
}

// moments is how --since and --until are written.
const moments = `WHEN is a time ago (90m, 2h, 3d, 2w), a date (2026-11-21) or a date and time
(2026-11-21T08:00).`

func historyCommand(a *app) *cobra.Command {
	q := asked{}
	cmd := &cobra.Command{
		Use: "history", Short: "list recorded jobs by GPU, job, user, finding and time",
		Long: `Lists the recorded runs of jobs on this node, the newest first: those in memory and
those on disk (90 days). With several filters, a run must match all of them.

--repeat-offenders lists GPUs with the same finding in two runs or more, with the number
of jobs and users. If several users have it, the cause is the GPU or the node; if it is
always the same user, the cause is most likely that user's program.

` + moments,
		Example: "  bookend history --gpu 0 --since 3d\n  bookend history --code ORPHAN --user alice\n  bookend " +
			"history --repeat-offenders --since 4w",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.history(cmd, q) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&q.gpu, "gpu", "", "`GPU`: Slurm's number, a UUID, a PCI bus id, or nvidiaN")
	f.StringVar(&q.job, "job", "", "`JOBID`: as for bookend show")
	f.StringVar(&q.user, "user", "", "`USER`: a name or a uid")
	f.StringVar(&q.code, "code", "", "`CODE`: runs with this finding (BKD-ORPHAN, or orphan)")
	f.StringVar(&q.since, "since", "", "`WHEN`: runs that ended after it")
	f.StringVar(&q.until, "until", "", "`WHEN`: runs that started before it")
	f.BoolVar(&q.failed, "failed", false, "only jobs that failed")
	f.BoolVar(&q.found, "found", false, "only runs with findings that the policy does not ignore")
	f.BoolVar(&q.lemons, "repeat-offenders", false, "GPUs with repeated findings, instead of runs")
	f.BoolVar(&q.lemons, "lemons", false, "") // what earlier releases called it
	_ = f.MarkHidden("lemons")
	f.IntVar(&q.limit, "limit", usualLimit, "`N`: at most this many runs; 0: all")
	f.BoolVar(&q.check, "exit-code", false, "exit 1 if a run with findings, or a repeat offender, is listed")
	a.perNode(cmd)
	a.inJSON(cmd)
	return cmd
}

func (a *app) history(cmd *cobra.Command, q asked) error {
	filter, err := q.filter(a.env.Clock.Wall())
	if err != nil {
		return misused(cmd, err.Error())
	}
	all, err := read(a.env, a.config().Paths, a.node)
	if err != nil {
		return err
	}
	for _, d := range all.damaged {
		fmt.Fprintf(a.env.Stderr, "bookend: damaged record: %v\n", d)
	}
	picked := ledger.Newest(filter.Pick(all.runs))
	if q.lemons {
		return a.lemons(all.node, picked, q.check)
	}
	more := 0
	if q.limit > 0 && len(picked) > q.limit {
		picked, more = picked[:q.limit], len(picked)-q.limit
	}
	h := answer.NewHistory(all.node, picked, all.runs, more)
	err = a.write(func() any { return h }, func(w io.Writer) { h.Text(w) })
	if err == nil && q.check && len(answer.Filter{Found: true}.Pick(picked)) > 0 {
		return answered(exitTrouble)
	}
	return err
}

func (a *app) lemons(node string, runs []ledger.Run, check bool) error {
	l := answer.NewLemons(node, runs)
	err := a.write(func() any { return l }, func(w io.Writer) { l.Text(w) })
	if err == nil && check && len(l.Cards) > 0 {
		return answered(exitTrouble)
	}
	return err
}

// filter reads what was asked for.
func (q asked) filter(now time.Time) (f answer.Filter, err error) {
	f = answer.Filter{GPU: q.gpu, User: q.user, Failed: q.failed, Found: q.found}
	if q.limit < 0 {
		return f, fmt.Errorf("--limit: want 0 or more, not %d", q.limit)
	}
	if q.job != "" {
		ref, err := slurm.ParseRef(q.job)
		if err != nil {
			return f, err
		}
		f.Job = &ref
	}
	if q.code != "" {
		c, ok := answer.CodeOf(q.code)
		if !ok {
			return f, fmt.Errorf("--code: no such finding: %q", q.code)
		}
		f.Code = c
	}
	if bus, err := gpu.ParseBusID(q.gpu); err == nil {
		f.GPU = string(bus)
	}
	f.Since, f.Until, err = period(q.since, q.until, now)
	return f, err
}
