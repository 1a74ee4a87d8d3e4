package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"bookend/internal/page"
	"bookend/internal/record"
	"bookend/internal/view"
)

// historyAsk is what the command line asks of "bookend history".
type historyAsk struct {
	filter                    page.Filter
	code, cause, since, until string
	offenders                 bool
	limit                     int
}

func historyCommand(a *app) *cobra.Command {
	var q historyAsk
	cmd := &cobra.Command{Use: "history",
		Args: none, RunE: func(cmd *cobra.Command, _ []string) error { return history(a, cmd, q) }}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&q.filter.GPU, "gpu", "", "`GPU` by Slurm's number, UUID or PCI bus id, or as nvidiaN")
	f.StringVar(&q.filter.User, "user", "", "`USER` by name or uid")
	f.StringVar(&q.code, "code", "", "runs with the finding `CODE` (BKD-ORPHAN, or orphan)")
	f.StringVar(&q.since, "since", "", "runs that ended after `WHEN`")
	f.StringVar(&q.until, "until", "", "runs that started before `WHEN`")
	f.BoolVar(&q.filter.RanOut, "oom", false, "only runs whose output says that memory ran out")
	f.StringVar(&q.cause, "cause", "", "only runs whose memory ran out by the cause `NAME`: own, pool...; ? lists all")
	f.BoolVar(&q.filter.Found, "found", false, "only runs with findings that the policy does not ignore")
	f.BoolVar(&q.offenders, "repeat-offenders", false, "GPUs with repeated findings, instead of runs")
	f.IntVar(&q.limit, "limit", 20, "at most `N` runs; 0: all")
	cmd.Flags().BoolVar(&a.check, "exit-code", false, "exit 1 if a run with findings, or a repeat offender, is listed")
	return a.perNode(a.inJSON(cmd))
}

func history(a *app, cmd *cobra.Command, q historyAsk) error {
	f, err := q.filter.With(q.code, q.cause, q.since, q.until, a.env.Clock.Wall())
	if q.limit < 0 {
		err = fmt.Errorf("--limit: want 0 or more, not %d", q.limit)
	}
	if err != nil {
		return misused(cmd, err.Error())
	}
	all, err := a.records()
	if err != nil {
		return err
	}
	for _, d := range all.damaged {
		a.warn(fmt.Sprintf("damaged record: %v", d))
	}
	picked := record.Newest(f.Pick(all.runs))
	if q.offenders {
		l := view.NewOffenders(all.node, picked)
		return a.write(l, len(l.GPUs) > 0)
	}
	more := 0
	if q.limit > 0 && len(picked) > q.limit {
		picked, more = picked[:q.limit], len(picked)-q.limit
	}
	return a.write(view.NewHistory(all.node, picked, all.runs, more), found(picked))
}
