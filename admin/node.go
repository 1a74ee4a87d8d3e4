package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/condition"
	"bookend/internal/config"
	"bookend/internal/doctor"
	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/maintenance"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
	"bookend/internal/view"
)

// records are all runs of a node: first those in /run, then the history on disk.
type records struct {
	env     child.Env
	cfg     config.Config
	node    string
	store   *state.Store // nil if there are no records, or if they cannot be opened
	runs    []record.Run
	damaged []state.Damage
}

// open reads a node's records. If it fails, what it returns can still be used to ask the driver.
func (a *app) open(cfg config.Config) (records, error) {
	r := records{env: a.env, cfg: cfg}
	if a.env.EUID != 0 {
		return r, denied("only root can read the records of all jobs; for a job of your own: bookend why JOBID")
	}
	nodes, err := state.Nodes(cfg.Paths.Run, cfg.Paths.Var)
	if err != nil && len(nodes) == 0 { // if some were found, the errors are listed as damage
		return r, err
	}
	if len(nodes) == 0 && a.node == "" {
		return r, notFound("no records in %q, which is expected before the first GPU job", cfg.Paths.Run)
	}
	r.node, err = oneOf(nodes, a.node, cfg.Paths.Run)
	if err == nil {
		r.store, err = state.Open(cfg.Paths.Run, r.node)
	}
	if err != nil {
		return r, err
	}
	defer a.busy("bookend: reading the records; a report of 100,000 jobs takes some 15 s")()
	r.runs, r.damaged = r.store.Runs()
	known := map[string]bool{}
	for _, run := range r.runs {
		known[run.Name()] = true
	}
	old, damaged := state.History(cfg.Paths.Var, r.node)
	r.runs = append(r.runs, slices.DeleteFunc(old, func(run record.Run) bool { return known[run.Name()] })...)
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

func (r records) epoch() gpu.Epoch { return node.ReadEpoch(r.cfg.Paths) }

const (
	driverTime = 3 * time.Second
	// slurmTime is how long "bookend status" waits for Slurm. If slurmctld is down, scontrol would wait 10 s.
	slurmTime = 2 * time.Second
	// quietTime is how long to wait for a probe on the GPU to end. One takes up to 0.5 s.
	quietTime = 2 * time.Second
)

// sample samples all GPUs. Unexplained memory may belong to a probe: then it samples again while probes are locked out.
func (r records) sample(limit time.Duration) node.Glance {
	now := r.askDriver(limit, false)
	if r.store == nil || now.Problem != "" {
		return now
	}
	var odd []gpu.ID
	for _, reading := range now.Snapshot.Readings {
		rest := record.Unexplained(reading, record.NewLimits(r.cfg.Thresholds.Bytes()), record.Baseline{})
		if rest.Bytes >= uint64(r.cfg.Thresholds.Report) {
			odd = append(odd, reading.Device.ID)
		}
	}
	if len(odd) == 0 {
		return now
	}
	_, release := r.store.Turns.Quiet(odd, quietTime)
	defer release()
	return r.askDriver(limit, false)
}

// askDriver samples the GPUs once, unless a child is stuck in the driver. A child that gets stuck now is recorded.
func (r records) askDriver(limit time.Duration, identity bool) node.Glance {
	return maintenance.SampleAll(r.access(), limit, identity)
}

func (r records) access() *node.Access {
	a := node.With(r.env, "", r.cfg, r.env.Clock.Boot())
	a.Store, a.Job.Node = r.store, r.node
	return a
}

// stuck describes a child that could not be killed and is still in the driver; "" if there is none.
func (r records) stuck() string {
	s := node.PeekStuck(r.cfg.Paths, r.node)
	if s == nil {
		return ""
	}
	return s.Words(r.env.Clock.Booted().Add(s.Since).Format(time.DateTime))
}

func statusCommand(a *app) *cobra.Command {
	var recordsAlone bool
	cmd := &cobra.Command{Use: "status",
		Args: none, RunE: func(*cobra.Command, []string) error { return status(a, recordsAlone) }}
	cmd.Flags().BoolVar(&recordsAlone, "records", false, "use records only: do not ask the driver or Slurm")
	cmd.Flags().BoolVar(&a.check, "exit-code", false, "exit 1 if something is wrong, 5 if the driver did not answer")
	return a.perNode(a.inJSON(cmd))
}

// status writes the overview of the node. If the records cannot be opened, it writes the rest and returns the error.
func status(a *app, recordsAlone bool) error {
	cfg, problem := node.LoadConfig(a.env)
	all, unread := a.open(cfg)
	e, _ := errors.AsType[ending](unread)
	fresh := e.code == exitNotFound
	if a.env.EUID != 0 || fresh && a.node != "" {
		return unread
	}
	all.node = cmp.Or(all.node, nodeOf(a.env, cfg.Paths, a.node))
	s := all.status(problem)
	switch {
	case fresh:
		fmt.Fprintln(a.env.Stderr, unread)
		unread = nil
	case unread != nil && len(s.Troubles)+len(s.Hooks) == 0:
		return unread
	}
	var now node.Glance
	if !recordsAlone {
		now = all.sample(driverTime)
		s.Slurm = all.slurmNode()
		s.Driver = &view.DriverStatus{Answers: now.Problem == "" || len(now.Snapshot.Readings) > 0,
			Release: now.Snapshot.Driver.Version, Seconds: now.Took.Round(time.Millisecond).Seconds(),
			Problem: now.Problem}
		s.GPUs = view.NewGPUs(all.readings(now))
	}
	s.Struck = condition.StruckBy(all.runs, now.Snapshot, cfg.Strikes.Faults, time.Duration(cfg.Strikes.Within), s.At)
	s = view.NewStatus(s, all.runs)
	err := cmp.Or(unread, a.write(s, unread == nil && !s.Sound()))
	if err == nil && a.check && s.Driver != nil && !s.Driver.Answers {
		return ending{code: exitUntold}
	}
	return err
}

// status returns a node's status from its records, counters and files, and from checks of what the hooks need.
func (r records) status(problem string) view.Status {
	s := view.Status{Node: r.node, Mode: string(r.cfg.Mode), At: r.env.Clock.Wall(), Damaged: r.damage(),
		Unlogged: joblog.Unlogged(r.runs)}
	s.AddTrouble(catalog.BadConfig, problem)
	s.AddTrouble(catalog.BackendRefused, "")
	for _, b := range doctor.Backends(r.cfg, false) {
		if b.Trouble != nil {
			s.AddTrouble(b.Trouble.Code, "the backend cannot be started: "+b.Trouble.Detail)
		}
	}
	if r.store != nil {
		s.AddTrouble(catalog.Stuck, r.stuck())
		s.AddTrouble(catalog.XidFatal, condition.DescribeStanding(state.Standing.Peek(r.store), r.epoch()))
		r.addRemembered(&s)
	}
	s.AddCounts(r.cfg.Paths.Var)
	return s
}

// damage describes the records that cannot be used.
func (r records) damage() []string {
	var texts []string
	for _, d := range r.damaged {
		texts = append(texts, fmt.Sprintf("%s: %s", d.Path, d.Why))
	}
	return texts
}

func (r records) addRemembered(s *view.Status) {
	damaged, err := r.store.Damaged()
	s.AddUnread("which records are damaged", err)
	for _, d := range damaged {
		s.Damaged = append(s.Damaged, fmt.Sprintf("%s: job %d may still run: what is on a GPU does not drain the "+
			"node until a health check has seen that GPU without memory and processes", d.File, d.Job))
	}
	memory, err := r.store.Drain()
	s.AddUnread("what is remembered of the node's drain", err)
	s.Drain = string(memory.Words())
	quarantines, err := maintenance.Quarantines(r.access(), s.At)
	s.AddUnread("which GPUs are to be in quarantine", err)
	for _, text := range quarantines {
		s.AddTrouble("", text)
	}
	resets, _ := maintenance.Attempts(r.access()) // bookend reset reports an unreadable one
	s.AddTrouble("", condition.Unfinished(resets, r.epoch().Boot))
	s.AddTrouble(catalog.Reset, condition.Unrepaired(resets, s.At))
	s.AddTrouble(catalog.Diagnosed, maintenance.Diagnosed(r.access()))
	check, err := state.LastCheck.Load(r.store)
	s.AddUnread("what the last health check saw", err)
	if check != nil {
		s.AddCheck(*check)
	}
	unwritten, err := state.DiskTroubles.Load(r.store)
	s.AddUnread("what could not be written to disk", err)
	for _, t := range unwritten {
		s.AddTrouble(t.Code, t.Words())
	}
	if kept := state.Recorded.Peek(r.store); kept.At != 0 && r.store.Turns.HasRecorder() {
		s.Recorder = &view.Recorder{At: r.env.Clock.Booted().Add(kept.At), Jobs: len(kept.Runs), Problem: kept.Problem}
	}
}

// readings joins a sample with what the records contain about the GPUs.
func (r records) readings(now node.Glance) view.Readings {
	s := view.Readings{Now: now.Snapshot, Who: now.Who, At: r.env.Clock.Booted().Add, Runs: r.runs,
		Epoch: r.epoch(), Limits: record.NewLimits(r.cfg.Thresholds.Bytes())}
	if r.store != nil {
		s.Baselines, _ = state.Baselines.Load(r.store) // "bookend baseline" reports unreadable ones
		maps.DeleteFunc(s.Baselines, func(_ gpu.ID, b record.Baseline) bool { return !b.Epoch.Same(s.Epoch) })
	}
	return s
}

// scontrol returns access to Slurm with so much time for each call, with the configuration that hooks got.
func (r records) scontrol(limit time.Duration) slurmcmd.Scontrol {
	c := (&app{env: r.env}).slurm(r.cfg, limit)
	if c.Conf == "" && r.store != nil {
		if memory, _ := r.store.Drain(); memory.Written != nil {
			c.Conf = memory.Written.Conf
		}
	}
	return c
}

func (r records) slurmNode() *view.SlurmNode {
	now, err := r.scontrol(slurmTime).Node(r.node)
	if err != nil {
		return &view.SlurmNode{Problem: err.Error()}
	}
	return &view.SlurmNode{State: strings.Join(now.Flags, "+"), Drained: now.Drained(), Reason: now.Reason,
		By: now.By, Since: now.At}
}

func snapshotCommand(a *app) *cobra.Command {
	var archive string
	cmd := &cobra.Command{
		Use: "snapshot", Args: none, RunE: func(*cobra.Command, []string) error {
			if archive != "" {
				return doctor.Collect(a.say, a.config().Paths, archive)
			}
			return snapshot(a)
		},
	}
	cmd.Flags().StringVar(&archive, "collect", "", "write what AMD's driver shows in files to `FILE` (tar)")
	return a.inJSON(cmd)
}

func snapshot(a *app) error {
	if a.env.EUID != 0 {
		return denied("use nvidia-smi for your own processes on GPUs")
	}
	all, _ := a.records() // errors are ignored: there may be no records yet, or those of several nodes
	now := all.sample(time.Duration(all.cfg.Deadlines.Epilog.Driver))
	var problem error
	if now.Problem != "" {
		problem = fmt.Errorf("ask driver: %.200q", now.Problem)
	}
	return cmp.Or(problem, a.write(view.NewSnapshot(all.readings(now), now.Problem), false))
}
