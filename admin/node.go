package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/metrics"
	"bookend/internal/node"
	"bookend/internal/nodefiles"
	"bookend/internal/observe"
	"bookend/internal/record"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
	"bookend/internal/view"
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

// status writes the overview of the node. If the records cannot be opened, it writes the rest and returns the error.
func (a *app) status(recordsAlone bool) error {
	cfg, problem := node.LoadConfig(a.env)
	all, unread := read(a.env, cfg.Paths, a.node)
	fresh := missing(unread)
	if a.env.EUID != 0 || fresh && a.node != "" {
		return unread
	}
	s := a.condition(cfg, problem, all, cmp.Or(all.node, nodeOf(a.env, cfg.Paths, a.node)))
	switch {
	case fresh:
		fmt.Fprintln(a.env.Stderr, unread)
		unread = nil
	case unread != nil && len(s.Troubles)+len(s.Hooks) == 0:
		return unread
	}
	if !recordsAlone {
		now := a.glance(cfg, all, driverTime)
		s.Slurm = a.slurmNode(cfg, all, s.Node)
		s.Driver = &view.DriverStatus{Answers: now.Problem == "" || len(now.Snapshot.Readings) > 0,
			Release: now.Snapshot.Driver.Version, Seconds: now.Took.Round(time.Millisecond).Seconds(),
			Problem: now.Problem}
		s.GPUs = view.NewGPUs(a.scene(cfg, all, now))
	}
	s = view.NewStatus(s, all.runs)
	err := cmp.Or(unread, a.write(s, unread == nil && !s.Sound()))
	if err == nil && a.check && s.Driver != nil && !s.Driver.Answers {
		return ending{code: exitUntold}
	}
	return err
}

// condition returns a node's status from its records, counters and files, and from checks of what the hooks need.
func (a *app) condition(cfg config.Config, problem string, all records, name string) view.Status {
	s := view.Status{Node: name, Mode: cfg.Mode, At: a.env.Clock.Wall()}
	for _, d := range all.damaged {
		s.Damaged = append(s.Damaged, fmt.Sprintf("%s: %s", d.Path, d.Why))
	}
	s.AddTrouble(catalog.BadConfig, problem)
	s.AddTrouble(catalog.BackendRefused, "")
	for _, v := range nodefiles.Present(cfg.Paths.Sys) {
		program, options := cfg.BackendOf(v.Name, false)
		if t := backend.Check(backend.Params{Path: program, Root: true}, options); t != nil {
			s.AddTrouble(t.Code, "the backend cannot be started: "+t.Detail)
		}
	}
	if all.store != nil {
		s.AddTrouble(catalog.Stuck, stuck(a.env, cfg, all))
		a.remembered(&s, all.store)
	}
	counts, err := metrics.Read(cfg.Paths.Var)
	addUnread(&s, "what the hooks have counted", err)
	s.AddCounts(counts.Troubles)
	s.Hooks = counts.Last
	return s
}

// remembered adds what the hooks have recorded about the node itself.
func (a *app) remembered(s *view.Status, store *state.Store) {
	damaged, err := store.Damaged()
	addUnread(s, "which records are damaged", err)
	for _, d := range damaged {
		s.Damaged = append(s.Damaged, fmt.Sprintf("%s: job %d may still run: what is on a GPU does not drain the "+
			"node until a health check has seen that GPU without memory and processes", d.File, d.Job))
	}
	memory, err := store.Drain()
	addUnread(s, "what is remembered of the node's drain", err)
	s.Drain = string(memory.Words())
	check, err := store.LastCheck()
	addUnread(s, "what the last health check saw", err)
	if check != nil {
		s.AddCheck(*check)
	}
	unwritten, err := store.DiskTroubles()
	addUnread(s, "what could not be written to disk", err)
	for _, t := range unwritten {
		s.AddTrouble(t.Code, t.Words())
	}
	if kept := store.RecorderState(); kept.At != 0 && store.HasRecorder() {
		s.Recorder = &view.Recorder{At: a.env.Clock.Booted().Add(kept.At), Jobs: len(kept.Runs),
			Problem: kept.Problem}
	}
}

// addUnread adds an error in reading one part of the status.
func addUnread(s *view.Status, what string, err error) {
	if err != nil {
		s.AddTrouble("", fmt.Sprintf("%s cannot be read: %v", what, err))
	}
}

// stuck describes a child that could not be killed and is still in the driver; "" if there is none.
func stuck(env child.Env, cfg config.Config, all records) string {
	s, err := all.store.Stuck(nil, state.AliveIn(cfg.Paths.Proc))
	if err != nil || s == nil {
		return ""
	}
	return s.Words(env.Clock.Booted().Add(s.Since).Format(time.DateTime))
}

const (
	driverTime = 3 * time.Second
	// slurmTime is how long "bookend status" waits for Slurm. If slurmctld is down, scontrol would wait 10 s.
	slurmTime = 2 * time.Second
	// quietTime is how long to wait for a probe on the GPU to end. One takes up to 0.5 s.
	quietTime = 2 * time.Second
)

// glance samples all GPUs. Unexplained memory may belong to a probe: then it samples again while probes are locked out.
func (a *app) glance(cfg config.Config, all records, limit time.Duration) observe.Glance {
	now := a.look(cfg, all, limit)
	if all.store == nil || now.Problem != "" {
		return now
	}
	var odd []gpu.ID
	for _, r := range now.Snapshot.Readings {
		bytes, _ := record.Unexplained(r, cfg.Thresholds.Limits(), record.Baseline{})
		if bytes >= uint64(cfg.Thresholds.Report) {
			odd = append(odd, r.Device.ID)
		}
	}
	if len(odd) == 0 {
		return now
	}
	_, release := all.store.Quiet(odd, quietTime)
	defer release()
	return a.look(cfg, all, limit)
}

// look samples the GPUs through the driver, unless a child is stuck in it. A child that gets stuck now is recorded.
func (a *app) look(cfg config.Config, all records, limit time.Duration) observe.Glance {
	if all.store != nil {
		if why := stuck(a.env, cfg, all); why != "" {
			return observe.Glance{Problem: why}
		}
	}
	now := observe.Look(a.env, cfg, limit)
	if now.Stuck != nil && all.store != nil {
		if err := all.store.SetStuck(*now.Stuck, state.AliveIn(cfg.Paths.Proc)); err != nil {
			fmt.Fprintf(a.env.Stderr, "bookend: %v\n", err)
		}
	}
	return now
}

func (a *app) scene(cfg config.Config, all records, now observe.Glance) view.Readings {
	s := view.Readings{Now: now.Snapshot, Who: now.Who, At: a.env.Clock.Booted().Add, Runs: all.runs,
		Epoch: nodefiles.ReadEpoch(cfg.Paths.Proc, cfg.Paths.Sys), Limits: cfg.Thresholds.Limits()}
	if all.store != nil {
		s.Baselines, _ = all.store.Baselines() // "bookend baseline" reports unreadable ones
		maps.DeleteFunc(s.Baselines, func(_ gpu.ID, b record.Baseline) bool { return !b.Epoch.Same(s.Epoch) })
	}
	return s
}

func (a *app) slurmNode(cfg config.Config, all records, node string) *view.SlurmNode {
	conf := a.env.Getenv("SLURM_CONF")
	if conf == "" && all.store != nil {
		if memory, _ := all.store.Drain(); memory.Written != nil {
			conf = memory.Written.Conf
		}
	}
	until := a.env.Clock.Boot() + slurmTime
	left := func() time.Duration { return until - a.env.Clock.Boot() }
	now, err := slurmcmd.Scontrol{Path: cfg.Slurm.Scontrol, Conf: conf, Root: a.env.EUID == 0, Time: left}.Node(node)
	if err != nil {
		return &view.SlurmNode{Problem: err.Error()}
	}
	return &view.SlurmNode{State: strings.Join(now.Flags, "+"), Drained: now.Drained(), Reason: now.Reason,
		By: now.By, Since: now.At}
}

func (a *app) snapshotCommand() *cobra.Command {
	var archive string
	cmd := &cobra.Command{
		Use: "snapshot", Short: "show each GPU's memory and processes now, from the driver",
		Long: `Asks the driver about every GPU of the node, and reads the processes on them from /proc.
It shows their owners.

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
	if a.env.EUID != 0 {
		return denied("nvidia-smi shows what you have on GPUs")
	}
	cfg := a.config()
	all, _ := read(a.env, cfg.Paths, "") // errors are ignored: there may be no records yet, or those of several nodes
	now := a.glance(cfg, all, time.Duration(cfg.Deadlines.Epilog.Driver))
	var problem error
	if now.Problem != "" {
		problem = fmt.Errorf("ask driver: %.200q", now.Problem)
	}
	return cmp.Or(problem, a.write(view.NewSnapshot(a.scene(cfg, all, now), now.Problem), false))
}

func missing(err error) bool {
	e, is := errors.AsType[ending](err)
	return is && e.code == exitNotFound
}
