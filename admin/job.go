package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/internal/view"
)

func (a *app) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show JOBID", Short: "show a job's start and end: memory, processes, findings, why it ran out of memory",
		Long: `Shows what Bookend recorded at the start and the end of a job, for each run of it on this
node. JOBID is a job id (1234), a task of an array (1234_7), a component of a
heterogeneous job (1234+1) or a SLUID. The id of an array means all of its tasks here.

Users other than root get the reports of their own job, while Bookend keeps them.`,
		Example: "  bookend show 1234\n  bookend show 1234_7 --json",
	}
	a.checks(cmd, "exit 1 if something was found")
	return a.ofJob(cmd, a.show)
}

func (a *app) whyCommand() *cobra.Command {
	return a.ofJob(&cobra.Command{
		Use: "why JOBID", Short: "say why a job ran out of GPU memory, or what it has used so far",
		Long: `Says what Bookend told, or would tell, the job's user: why it ran out of GPU memory, its
peak, and which of its GPUs it did not use. The job's own user needs no root, while
Bookend keeps the report. bookend show has the evidence of every cause, for root.`,
		Example: "  bookend why 1234",
	}, a.why)
}

// ofJob makes a command take a job: root gets all records of the node, users get the reports of their own job.
func (a *app) ofJob(cmd *cobra.Command, say func(ref slurm.Ref, runs []record.Run, all records) error) *cobra.Command {
	cmd.Args = operands(1, 1, "JOBID")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ref, err := slurm.ParseRef(args[0])
		switch {
		case err != nil:
			return misused(cmd, err.Error())
		case a.env.EUID != 0 && a.check:
			return denied("--exit-code is about what was found, which is in root's records")
		case a.env.EUID != 0:
			return a.own(ref)
		}
		all, err := read(a.env, a.config().Paths, a.node)
		if err != nil {
			return err
		}
		if n := len(all.damaged); n > 0 {
			fmt.Fprintf(a.env.Stderr, "bookend: damaged records on this node: %d (bookend history names them)\n", n)
		}
		runs := view.Filter{Job: &ref}.Pick(all.runs)
		if len(runs) == 0 {
			return notFound("no record of job %s on node %s", ref.Text, all.node)
		}
		runs = record.Newest(runs)
		slices.Reverse(runs)
		slices.SortStableFunc(runs, func(x, y record.Run) int { return cmp.Compare(x.Job.ID, y.Job.ID) })
		return say(ref, runs, all)
	}
	return a.perNode(a.inJSON(cmd))
}

func (a *app) why(ref slurm.Ref, runs []record.Run, all records) error {
	var start, end string
	last := record.Newest(runs)[0]
	if last.Start != nil {
		start = last.Start.Report
	}
	if last.Closed() {
		end = last.Last().Report
	} else if r, err := all.store.Report(last.Job); err == nil {
		end = r.Running
	}
	return a.write(view.NewOwnReport(all.node, ref.Text, start == "", start, end), false)
}

func (a *app) show(ref slurm.Ref, runs []record.Run, all records) error {
	return a.write(view.NewShow(all.node, ref.Text, runs, all.runs, all.store.RecorderState()), found(runs))
}

func found(runs []record.Run) bool { return len(view.Filter{Found: true}.Pick(runs)) > 0 }

// own shows the reports of a user's own job. It opens them as that user, so the kernel checks the permission.
func (a *app) own(ref slurm.Ref) error {
	paths := a.config().Paths
	node := nodeOf(a.env, paths, a.node)
	if ref.Sign != "" {
		return denied("without it jobs are known by their own id alone; squeue -j %s -O JobArrayID,JobID shows it "+
			"while the job runs", ref.Text)
	}
	// Threat: none: the file is opened as the calling user, and only the job's own user can read it.
	r, err := state.GetReport(paths.Run, node, uint32(a.env.EUID), slurm.Owner{ID: ref.ID, SLUID: ref.SLUID})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EACCES):
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

func (a *app) historyCommand() *cobra.Command {
	q := asked{}
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
		RunE: func(cmd *cobra.Command, _ []string) error { return a.history(cmd, q) },
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

func (q asked) filter(now time.Time) (f view.Filter, err error) {
	f = view.Filter{GPU: q.gpu, User: q.user, Found: q.found}
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

func period(since, until string, now time.Time) (from, to time.Time, err error) {
	if from, err = moment(since, now); err != nil {
		return from, to, fmt.Errorf("--since: %w", err)
	}
	if to, err = moment(until, now); err != nil {
		return from, to, fmt.Errorf("--until: %w", err)
	}
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		return from, to, fmt.Errorf("--until %s is before --since %s", until, since)
	}
	return from, to, nil
}

// records are all runs of a node: first those in /run, then the history on disk.
type records struct {
	node    string
	store   *state.Store
	runs    []record.Run
	damaged []state.Damage
}

func read(env child.Env, paths config.Paths, node string) (r records, err error) {
	if env.EUID != 0 {
		return r, denied("the records of a node's jobs are for root alone; bookend show JOBID shows a job of your own")
	}
	nodes, err := state.Nodes(paths.Run, paths.Var)
	if err != nil && len(nodes) == 0 { // if some were found, the errors are listed as damage
		return r, err
	}
	if len(nodes) == 0 && node == "" {
		return r, notFound("no records in %q, which is expected before the first GPU job", paths.Run)
	}
	r.node, err = oneOf(nodes, node, paths.Run)
	if err != nil {
		return r, err
	}
	r.store, err = state.Open(paths.Run, r.node)
	if err != nil {
		return records{}, err
	}
	r.runs, r.damaged = r.store.Runs()
	known := map[string]bool{}
	for _, run := range r.runs {
		known[run.Name()] = true
	}
	old, damaged := state.History(paths.Var, r.node)
	for _, run := range old {
		if !known[run.Name()] {
			r.runs = append(r.runs, run)
		}
	}
	r.damaged = append(r.damaged, damaged...)
	return r, nil
}

// oneOf returns the selected one of the nodes with records in a directory. If there are several, one must be named.
func oneOf(nodes []string, named, dir string) (string, error) {
	switch {
	case named == "" && len(nodes) == 1:
		return nodes[0], nil
	case named == "":
		return "", fmt.Errorf("records of several nodes in %q: name one of %q with --node", dir, nodes)
	case !slices.Contains(nodes, named):
		return "", notFound("no such node: %q; nodes with records in %q: %q", named, dir, nodes)
	}
	return named, nil
}

// nodeOf returns the named node, else the only one with records, else the one Slurm names in a job, else this host.
func nodeOf(env child.Env, paths config.Paths, named string) string {
	if named != "" {
		return named
	}
	if nodes, _ := state.Nodes(paths.Run, paths.Var); len(nodes) == 1 {
		return nodes[0]
	}
	if node := env.Getenv("SLURMD_NODENAME"); slurm.ValidNode(node) {
		return node
	}
	host, _ := os.Hostname()
	short, _, _ := strings.Cut(host, ".")
	return short
}
