package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/internal/view"
)

func showCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show JOBID", Short: "show a job's start and end: memory, processes, findings, why it ran out of memory",
		Long: `Shows what Bookend recorded at the start and the end of a job, for each run of it on this
node. JOBID is a job id (1234), a task of an array (1234_7), a component of a
heterogeneous job (1234+1) or a SLUID. The id of an array means all of its tasks here.

Users other than root get the reports of their own job, while Bookend keeps them.`,
		Example: "  bookend show 1234\n  bookend show 1234_7 --json",
	}
	a.checks(cmd, "exit 1 if something was found")
	return ofJob(a, cmd, show)
}

func whyCommand(a *app) *cobra.Command {
	return ofJob(a, &cobra.Command{
		Use: "why JOBID", Short: "say why a job ran out of GPU memory, or what it has used so far",
		Long: `Says what Bookend told, or would tell, the job's user: why it ran out of GPU memory, its
peak, and which of its GPUs it did not use. The job's own user needs no root, while
Bookend keeps the report. bookend show has the evidence of every cause, for root.`,
		Example: "  bookend why 1234",
	}, why)
}

// ofJob makes a command take a job: root gets all records of the node, users get the reports of their own job. show
// returns the document of a job's runs, and whether something was found.
func ofJob(a *app, cmd *cobra.Command, show func(ref slurm.Ref, runs []record.Run, all records) (view.Document, bool),
) *cobra.Command {
	cmd.Args = operands(1, 1, "JOBID")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ref, err := slurm.ParseRef(args[0])
		switch {
		case err != nil:
			return misused(cmd, err.Error())
		case a.env.EUID != 0 && a.check:
			return denied("--exit-code is about what was found, which is in root's records")
		case a.env.EUID != 0:
			return ownReport(a, ref)
		}
		all, err := a.records()
		if err != nil {
			return err
		}
		if n := len(all.damaged); n > 0 {
			a.warn(fmt.Sprintf("damaged records on this node: %d (bookend history names them)", n))
		}
		runs := record.Newest(view.Filter{Job: &ref}.Pick(all.runs))
		if len(runs) == 0 {
			return notFound("no record of job %s on node %s", ref.Text, all.node)
		}
		slices.Reverse(runs)
		slices.SortStableFunc(runs, func(x, y record.Run) int { return cmp.Compare(x.Job.ID, y.Job.ID) })
		return a.write(show(ref, runs, all))
	}
	return a.perNode(a.inJSON(cmd))
}

func why(ref slurm.Ref, runs []record.Run, all records) (view.Document, bool) {
	var start, end string
	last := record.Newest(runs)[0]
	if last.Start != nil {
		start = last.Start.Report
	}
	if last.Closed() {
		end = last.Last().Report
	} else if r, err := all.store.Users.Report(last.Job.UID, last.Owner()); err == nil {
		end = r.Running
	}
	return view.NewOwnReport(all.node, ref.Text, start == "", start, end), false
}

func show(ref slurm.Ref, runs []record.Run, all records) (view.Document, bool) {
	return view.NewShow(all.node, ref.Text, runs, all.runs, state.Recorded.Peek(all.store).Runs), found(runs)
}

func found(runs []record.Run) bool { return len(view.Filter{Found: true}.Pick(runs)) > 0 }

// ownReport shows the reports of a user's own job. It opens them as that user, so the kernel checks the permission.
func ownReport(a *app, ref slurm.Ref) error {
	paths := a.config().Paths
	node := nodeOf(a.env, paths, a.node)
	if ref.Sign != "" {
		return denied("without it jobs are known by their own id alone; squeue -j %s -O JobArrayID,JobID shows it "+
			"while the job runs", ref.Text)
	}
	// Threat: none: the file is opened as the calling user, and only the job's own user can read it.
	r, err := state.Users{Run: paths.Run, Node: node}.Report(uint32(a.env.EUID), slurm.Owner{ID: ref.ID, SLUID: ref.SLUID})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		// Both errors have one text, so that it does not reveal whether another user's job ran here.
		return denied("job %s has no report for you on node %s: it is not yours, was on another node, or its report "+
			"is not kept any more; your job's output has what Bookend said", ref.Text, node)
	case err != nil:
		return fmt.Errorf("read the report of job %s: %w", ref.Text, err)
	}
	return a.write(view.NewOwnReport(node, ref.Text, r.Clean, r.Text, cmp.Or(r.End, r.Running)), false)
}

type asked struct {
	gpu, user, code, since, until string
	found, offenders              bool
	limit                         int
}

const moments = `WHEN is a time ago (90m, 2h, 3d, 2w), a date (2026-11-21) or a date and time
(2026-11-21T08:00).`

func historyCommand(a *app) *cobra.Command {
	var q asked
	cmd := &cobra.Command{
		Use: "history", Short: "list recorded jobs by GPU, user, finding and time",
		Long: `Lists the recorded runs of jobs on this node, the newest first: those in memory and
those on disk (90 days). With several filters, a run must match all of them.

--repeat-offenders lists GPUs with the same finding in two runs or more, with the number
of jobs and users. If several users have it, the cause is the GPU or the node; if it is
always the same user, the cause is most likely that user's program.

` + moments,
		Example: "  bookend history --gpu 0 --since 3d\n  bookend history --code ORPHAN --user alice\n  bookend " +
			"history --repeat-offenders --since 4w",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return history(a, cmd, q) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&q.gpu, "gpu", "", "`GPU` by Slurm's number, UUID or PCI bus id, or as nvidiaN")
	f.StringVar(&q.user, "user", "", "`USER` by name or uid")
	f.StringVar(&q.code, "code", "", "runs with the finding `CODE` (BKD-ORPHAN, or orphan)")
	f.StringVar(&q.since, "since", "", "runs that ended after `WHEN`")
	f.StringVar(&q.until, "until", "", "runs that started before `WHEN`")
	f.BoolVar(&q.found, "found", false, "only runs with findings that the policy does not ignore")
	f.BoolVar(&q.offenders, "repeat-offenders", false, "GPUs with repeated findings, instead of runs")
	f.IntVar(&q.limit, "limit", 20, "at most `N` runs; 0: all")
	a.checks(cmd, "exit 1 if a run with findings, or a repeat offender, is listed")
	return a.perNode(a.inJSON(cmd))
}

func history(a *app, cmd *cobra.Command, q asked) error {
	filter, err := q.filter(a.env.Clock.Wall())
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
	picked := record.Newest(filter.Pick(all.runs))
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

func (q asked) filter(now time.Time) (view.Filter, error) {
	f := view.Filter{GPU: q.gpu, User: q.user, Found: q.found}
	if q.limit < 0 {
		return f, fmt.Errorf("--limit: want 0 or more, not %d", q.limit)
	}
	if q.code != "" {
		c, ok := catalog.Parse(q.code)
		if !ok {
			return f, fmt.Errorf("--code: no such finding: %q", q.code)
		}
		f.Code = c
	}
	if bus, err := gpu.ParseBusID(q.gpu); err == nil {
		f.GPU = string(bus)
	}
	var err error
	f.Since, f.Until, err = period(q.since, q.until, now)
	return f, err
}

var ages = map[byte]time.Duration{
	's': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour,
}

// dates are the accepted date formats, in this host's time zone unless one is given.
var dates = []string{
	"2006-01-02", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.RFC3339,
}

const longestAge = 36500 // in days: a hundred years

// moment parses a date, or how long ago something was. An empty text gives the zero time.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range dates {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	last := len(text) - 1
	unit, known := ages[text[last]]
	n, err := strconv.ParseUint(text[:last], 10, 32)
	if !known || err != nil || n > uint64(longestAge*24*time.Hour/unit) {
		return time.Time{}, fmt.Errorf("%q is no moment: want how long ago (90m, 2h, 3d, 2w) or a date (2026-11-21, "+
			"2026-11-21T08:00)", text)
	}
	return now.Add(-time.Duration(n) * unit), nil
}

func period(since, until string, now time.Time) (time.Time, time.Time, error) {
	from, errSince := moment(since, now)
	to, errUntil := moment(until, now)
	switch {
	case errSince != nil:
		return from, to, fmt.Errorf("--since: %w", errSince)
	case errUntil != nil:
		return from, to, fmt.Errorf("--until: %w", errUntil)
	case !from.IsZero() && !to.IsZero() && to.Before(from):
		return from, to, fmt.Errorf("--until %s is before --since %s", until, since)
	}
	return from, to, nil
}
