package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/page"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/view"
)

// historyAsk is what the command line asks of "bookend history".
type historyAsk struct {
	filter                    filter
	code, cause, since, until string
	offenders                 bool
	limit                     int
}

const moments = `WHEN is a time ago (90m, 2h, 3d, 2w), a date (2026-11-21), or one with a time (2026-11-21T08:00).`

func historyCommand(a *app) *cobra.Command {
	var q historyAsk
	cmd := &cobra.Command{
		Use: "history", Short: "list recorded jobs by GPU, user, finding and time",
		Long: `Lists the recorded runs of jobs on this node, the newest first: those in memory and
those on disk (90 days). With several filters, a run must match all of them.

--repeat-offenders lists GPUs with the same finding in two runs or more. If several users
met it, look at the GPU and the node; if always the same user, at that user's program.

` + moments,
		Example: "  bookend history --gpu 0 --since 3d\n  bookend history --code ORPHAN --user alice\n  bookend " +
			"history --repeat-offenders --since 4w",
		Args: none, RunE: func(cmd *cobra.Command, _ []string) error { return history(a, cmd, q) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&q.filter.gpu, "gpu", "", "`GPU` by Slurm's number, UUID or PCI bus id, or as nvidiaN")
	f.StringVar(&q.filter.user, "user", "", "`USER` by name or uid")
	f.StringVar(&q.code, "code", "", "runs with the finding `CODE` (BKD-ORPHAN, or orphan)")
	f.StringVar(&q.since, "since", "", "runs that ended after `WHEN`")
	f.StringVar(&q.until, "until", "", "runs that started before `WHEN`")
	f.BoolVar(&q.filter.ranOut, "oom", false, "only runs whose output says that memory ran out")
	f.StringVar(&q.cause, "cause", "", "only runs whose memory ran out by the cause `NAME`: own, pool...; ? lists all")
	f.BoolVar(&q.filter.found, "found", false, "only runs with findings that the policy does not ignore")
	f.BoolVar(&q.offenders, "repeat-offenders", false, "GPUs with repeated findings, instead of runs")
	f.IntVar(&q.limit, "limit", 20, "at most `N` runs; 0: all")
	cmd.Flags().BoolVar(&a.check, "exit-code", false, "exit 1 if a run with findings, or a repeat offender, is listed")
	return a.perNode(a.inJSON(cmd))
}

func history(a *app, cmd *cobra.Command, q historyAsk) error {
	f, err := q.complete(a.env.Clock.Wall())
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
	picked := record.Newest(f.pick(all.runs))
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

// complete returns the filter with what needs to be parsed.
func (q historyAsk) complete(now time.Time) (filter, error) {
	f := q.filter
	if q.limit < 0 {
		return f, fmt.Errorf("--limit: want 0 or more, not %d", q.limit)
	}
	if q.code != "" {
		c, ok := catalog.Parse(q.code)
		if !ok {
			return f, fmt.Errorf("--code: no such finding: %q", q.code)
		}
		f.code = c
	}
	if q.cause != "" {
		known := append(record.Causes(), record.CauseUnknown)
		f.cause, f.ranOut = record.CauseName(q.cause), true
		if !slices.Contains(known, f.cause) {
			return f, fmt.Errorf("--cause: no such cause: %q; one of %q", q.cause, known)
		}
	}
	if bus, err := gpu.ParseBusID(f.gpu); err == nil {
		f.gpu = string(bus)
	}
	var err error
	f.since, f.until, err = page.Period(q.since, q.until, now)
	return f, err
}

// filter selects runs; the zero filter selects all.
type filter struct {
	gpu          string // Slurm's index, a UUID, a bus ID, or nvidiaN
	job          *slurm.Ref
	user         string           // user name or UID
	code         catalog.Code     // the run has a finding with this code
	since, until time.Time        // the run overlaps this period; zero means unbounded
	found        bool             // the run has a finding that policy does not hide
	ranOut       bool             // the job's output says that memory ran out
	cause        record.CauseName // by this cause; empty for any
}

// pick returns the runs that match the filter, in their order.
func (f filter) pick(runs []record.Run) []record.Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r record.Run) bool { return !f.matches(r) })
}

func (f filter) matches(r record.Run) bool {
	switch {
	case f.job != nil && !refersTo(*f.job, r):
	case f.user != "" && f.user != r.Job.User && f.user != fmt.Sprint(r.Job.UID):
	case f.gpu != "" && !slices.ContainsFunc(r.Devices, f.isGPU):
	case (f.code != "" || f.found) && !slices.ContainsFunc(r.AllEnds(), f.hasFinding):
	case f.ranOut && !slices.ContainsFunc(r.AllEnds(), f.hasCause):
	case !f.since.IsZero() && r.Closed() && r.Last().Wall.Before(f.since): // a running job is present now
	case !f.until.IsZero() && r.First().Wall.After(f.until):
	default:
		return true
	}
	return false
}

func (f filter) hasFinding(e *record.End) bool {
	for i, found := range e.Findings {
		if (f.code == "" || found.Code == f.code) && (!f.found || e.Verdict.Tells(i)) {
			return true
		}
	}
	return false
}

func (f filter) hasCause(e *record.End) bool {
	causes := e.Diagnosis.OutOfMemory()
	return len(causes) > 0 && (f.cause == "" || slices.Contains(causes, f.cause))
}

func refersTo(ref slurm.Ref, r record.Run) bool {
	switch {
	case ref.SLUID != "":
		return r.Job.SLUID == ref.SLUID
	case ref.Sign == "_":
		return r.Display.Array.Master == ref.ID && r.Display.Array.Task == ref.Part
	case ref.Sign == "+":
		return r.Job.HetJobID == ref.ID && r.Job.ID == ref.ID+slurm.JobID(ref.Part)
	}
	// An array's or heterogeneous job's ID, which is also that of its first or last component, selects all of them.
	return r.Job.ID == ref.ID || r.Display.Array.Master == ref.ID || r.Job.HetJobID == ref.ID
}

// isGPU reports whether the filter's GPU is this one: by Slurm's index, UUID, bus ID or nvidiaN.
func (f filter) isGPU(a record.Assigned) bool {
	if n, err := strconv.Atoi(f.gpu); err == nil {
		return n == a.Index
	}
	return a.Device.Named(f.gpu) || strings.EqualFold(f.gpu, string(a.Device.Parent))
}
