package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
	"bookend/internal/backend"
	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/inventory"
	"bookend/internal/metrics"
	"bookend/internal/operation"
	"bookend/internal/routine"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
	"bookend/internal/stage"
	"bookend/internal/state"
	"bookend/internal/wire"
)

func (a *app) statusCommand() *cobra.Command {
	var records bool
	cmd := &cobra.Command{
		Use: "status", Short: "show the node at a glance: driver, GPUs, jobs, findings, errors",
		Long: `Shows the node's mode, whether the driver and Slurm answer, each GPU with its memory,
job and processes, errors with what to do about them, and the last jobs. The driver
has 3 s and Slurm 2 s to answer; if one does not, the rest is shown.`,
		Args: none, RunE: func(*cobra.Command, []string) error { return a.status(records) },
	}
	cmd.Flags().BoolVar(&records, "records", false, "use records only: do not ask the driver or Slurm")
	a.checks(cmd, "exit 1 if something is wrong, 5 if the driver did not answer")
	return a.perNode(a.inJSON(cmd))
}

// status writes the node at a glance: from the records, the counts, Slurm's files, a look at what hooks need, and what
// driver and Slurm answer. Where the records cannot be opened it says all the rest, and ends with why.
func (a *app) status(recordsAlone bool) error {
	cfg, problem := stage.LoadConfig(a.env)
	all, unread := read(a.env, cfg.Paths, a.node)
	fresh := errors.As(unread, new(notFound))
	if a.env.EUID != 0 || fresh && a.node != "" {
		return unread
	}
	n := a.condition(cfg, problem, all, unread)
	switch {
	case fresh:
		fmt.Fprintln(a.env.Stderr, unread)
		unread = nil
	case unread != nil && len(n.Now)+len(n.Met) == 0:
		return unread
	}
	if !recordsAlone {
		a.ask(&n, cfg, all)
	}
	s := n.Status()
	err := a.write(s, unread == nil && !s.Sound())
	switch {
	case unread != nil || err != nil:
		return errors.Join(unread, err)
	case a.check && n.Driver != nil && (n.Driver.Answers == nil || !*n.Driver.Answers):
		return answered(exitUntold)
	}
	return nil
}

// condition is the node as records, counts, files and a look at what hooks need show it.
func (a *app) condition(cfg config.Config, problem string, all records, unread error) answer.Node {
	name := all.node
	if unread != nil {
		name = nodeOf(a.env, cfg.Paths, a.node)
	}
	n := answer.Node{
		Name: name, Mode: cfg.Mode, At: a.env.Clock.Wall(), Runs: all.runs, Damaged: all.damaged,
		Well: map[code.Code]bool{},
	}
	look(&n, code.BadConfig, problem)
	n.Well[code.BackendRefused] = true
	for _, v := range inventory.Present(cfg.Paths.Sys) {
		program, options := cfg.BackendOf(v.Name, wire.Snapshot)
		if t := backend.Check(backend.Params{Path: program, Root: true}, options); t != nil {
			look(&n, t.Code, "the backend cannot be started: "+t.Detail)
			n.Well[code.BackendRefused] = false
		}
	}
	var err error
	if all.store != nil {
		look(&n, code.Stuck, stuck(a.env, cfg, all))
		n.Drain, err = all.store.Drain()
		unreadable(&n, "what is remembered of the node's drain", err)
		n.Check, err = all.store.LastCheck()
		unreadable(&n, "what the last health check saw", err)
		n.Recorder = recorder(a.env.Clock, all.store)
	}
	look(&n, "", unseen(operation.Readers{Config: cfg, Clock: a.env.Clock}, all))
	look(&n, "", untold(a.env, cfg, name))
	counts, err := metrics.Read(cfg.Paths.Var)
	unreadable(&n, "what the hooks have counted", err)
	n.Met, n.Last = counts.Troubles, counts.Last
	return n
}

// recorder is the one at work on a node, nil for none.
func recorder(clock routine.Clock, store *state.Store) *answer.Recorder {
	kept := store.Recorded()
	if kept.At == 0 || !store.HasRecorder() {
		return nil
	}
	at := clock.Wall().Add(kept.At - clock.Boot())
	return &answer.Recorder{At: &at, Jobs: len(kept.Runs), Problem: kept.Problem}
}

func unreadable(n *answer.Node, what string, err error) {
	if err != nil {
		look(n, "", fmt.Sprintf("%s cannot be read: %v", what, err))
	}
}

// look notes a trouble, or that there is none of its kind.
func look(n *answer.Node, c code.Code, trouble string) {
	switch {
	case trouble != "":
		n.Now = append(n.Now, answer.Symptom{Code: c, Text: trouble})
	case c != "":
		n.Well[c] = true
	}
}

func stuck(env operation.Env, cfg config.Config, all records) string {
	s, err := all.store.Stuck()
	if err != nil || s == nil || !child.Alive(cfg.Paths.Proc, s.PID, s.StartTicks) {
		return ""
	}
	since := env.Clock.Wall().Add(s.Since - env.Clock.Boot())
	return operation.StuckText(*s, since.Format("2006-01-02 15:04:05"))
}

// unseen is the trouble of jobs that use GPUs while no hook has run for them; empty where all are on record, on any of
// this host's nodes.
func unseen(readers operation.Readers, all records) string {
	cfg := readers.Config
	nodes, err := state.Nodes(cfg.Paths.Run, cfg.Paths.Var)
	if err != nil {
		return "" // said already
	}
	runs := all.runs
	for _, node := range nodes {
		if store, err := state.Open(cfg.Paths.Run, node); err == nil && node != all.node {
			others, _ := store.Runs()
			runs = append(runs, others...)
		}
	}
	for _, job := range operation.JobsOnCards(readers) {
		known := false
		for _, r := range runs {
			known = known || job.SLUID != "" && r.Job.SLUID == job.SLUID || job.ID != 0 && r.Job.ID == job.ID
		}
		if !known {
			return fmt.Sprintf("job %s uses a GPU and no hook has run for it: it began before Bookend was installed, "+
				"or Prolog and Epilog are not set in slurm.conf", job.Name())
		}
	}
	return ""
}

const driverTime = 3 * time.Second

func (a *app) ask(n *answer.Node, cfg config.Config, all records) {
	n.Slurm = a.slurmNode(cfg, n.Drain, n.Name)
	d := answer.Driver{Unknown: answer.Unknown{}}
	n.Driver = &d
	var now stage.Glance
	if why := a.unaskable(n, cfg, all); why != "" {
		d.Unknown["answers"] = why
	} else {
		now = a.glance(cfg, all)
		answers := now.Problem == "" || len(now.Snapshot.Readings) > 0
		d.Answers, d.Release, d.Seconds = &answers, now.Snapshot.Driver.Version,
			now.Took.Round(time.Millisecond).Seconds()
		if now.Problem != "" {
			d.Unknown["release"] = now.Problem
		}
	}
	epoch := inventory.ReadEpoch(cfg.Paths.Proc, cfg.Paths.Sys)
	n.Cards = answer.NewCards(answer.Scene{
		Now: now.Snapshot, Who: now.Who, At: a.env.Clock.Booted().Add, Runs: all.runs, Epoch: epoch,
		Baselines: known(all, epoch), Limits: finding.LimitsOf(cfg.Thresholds),
	})
}

// unaskable says why the driver is not to be asked; empty where it is.
func (a *app) unaskable(n *answer.Node, cfg config.Config, all records) string {
	if all.store != nil && stuck(a.env, cfg, all) != "" {
		return "a child of an earlier look is still in it"
	}
	for _, t := range n.Now {
		if t.Code == code.BackendMissing || t.Code == code.BackendRefused { // with which none can be started
			return t.Text
		}
	}
	return ""
}

// glance looks at all cards; a child that could not be killed is recorded, so that nobody starts another. What looks
// unexplained may be a probe's: then it looks again with probes locked out.
func (a *app) glance(cfg config.Config, all records) stage.Glance {
	now := a.look(cfg, all)
	if all.store == nil || now.Problem != "" {
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

func known(all records, epoch gpu.Epoch) map[gpu.ID]finding.Baseline {
	if all.store == nil {
		return nil
	}
	cards, err := all.store.Baselines()
	if err != nil {
		return nil
	}
	maps.DeleteFunc(cards, func(_ gpu.ID, b finding.Baseline) bool { return !b.Epoch.Same(epoch) })
	return cards
}

// slurmTime is how long "bookend status" waits for Slurm: with slurmctld down scontrol itself would wait 10 to 20 s.
const slurmTime = 2 * time.Second

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
			n.Unknown[field] = clean(err.Error(), detailWidth)
		}
		return &n
	}
	state, drained := clean(strings.Join(now.Flags, "+"), detailWidth), now.Drained()
	reason, by := clean(now.Reason, detailWidth), clean(now.By, nameWidth)
	n.State, n.Drained, n.Reason, n.By = &state, &drained, &reason, by
	if !now.At.IsZero() {
		at := now.At.UTC()
		n.Since = &at
	}
	return &n
}

// detailWidth bounds what is quoted of Slurm's files and of errors.
const detailWidth = 300

// untold is the trouble of a node where nobody can tell whether GPUs are given out in shards; empty where one can.
func untold(env operation.Env, cfg config.Config, node string) string {
	answer := operation.NodeSharing(cfg.Slurm, env.Getenv("SLURM_CONF"), node, operation.SharingTime)
	if answer.Shared != slurmconf.Unknown {
		return ""
	}
	return "nothing on a GPU will drain or be tested, as whether GPUs are given out in shards is unknown: " +
		answer.Why + "; slurm.shards can say it"
}

func (a *app) snapshotCommand() *cobra.Command {
	var archive string
	cmd := &cobra.Command{
		Use: "snapshot", Short: "show each GPU's memory and processes now, from the driver",
		Long: `Asks the driver about every GPU of the node, and reads the processes on them from /proc.
Root sees their owners and each GPU's last test allocation. Other users see their own
processes, and only the number of others.

With --collect it writes the files that AMD's backend reads as an archive, for a bug report:
ids of GPUs are hashed, and there are no names of processes or users in it.`,
		Args: none, RunE: func(*cobra.Command, []string) error {
			if archive != "" {
				return a.collect(archive)
			}
			return a.snapshot()
		},
	}
	cmd.Flags().StringVar(&archive, "collect", "", "write what AMD's driver shows in files to `FILE` (tar)")
	return a.inJSON(cmd)
}

func (a *app) snapshot() error {
	cfg := a.config()
	s, who, problem := stage.Snapshot(a.env, cfg)
	if a.env.EUID != 0 {
		s, who = ownOnly(s, who, uint32(a.env.EUID))
	}
	var tests map[gpu.ID]health.TestRecord
	if problem == nil {
		tests = a.tests(cfg)
	}
	d := answer.NewSnapshot(s, who, a.env.Clock.Booted().Add, tests, inventory.ReadEpoch(cfg.Paths.Proc, cfg.Paths.Sys))
	if problem != nil {
		d.Problem = problem.Error()
	}
	return cmp.Or(problem, a.write(d, false))
}

// ownOnly leaves of who is on the cards what is a user's own: of the rest only that it is there, and its size.
func ownOnly(s gpu.Snapshot, who map[int]finding.Process, uid uint32) (gpu.Snapshot, map[int]finding.Process) {
	own := map[int]finding.Process{}
	s.Readings = slices.Clone(s.Readings)
	for i := range s.Readings {
		r := &s.Readings[i]
		r.Processes = slices.Clone(r.Processes)
		for j, p := range r.Processes {
			if owner, known := who[p.PID]; known && owner.UID == uid && !owner.Gone && owner.Why == "" {
				own[p.PID] = owner
			} else {
				r.Processes[j].PID = answer.Others
			}
		}
	}
	own[answer.Others] = finding.Process{Why: "another user's"}
	return s, own
}

func (a *app) tests(cfg config.Config) map[gpu.ID]health.TestRecord {
	all, err := read(a.env, cfg.Paths, "")
	if err != nil {
		return nil // no hook has run here yet, or they are root's
	}
	records, err := all.store.Probes()
	if err != nil {
		fmt.Fprintf(a.env.Stderr, "bookend: %v\n", err)
	}
	return records
}
