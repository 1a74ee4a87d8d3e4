package stage

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/operation"
	"bookend/internal/session"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// HealthCheck is bookend-healthcheck: a root hook of no job, which looks at all of the node's GPUs. It ends with 0
// unless it could not check the node at all.
func HealthCheck(env Env) (exit int) {
	if code, done := preamble(env, "bookend-healthcheck"); done {
		return code
	}
	return rootHook(env, slurm.HealthCheck, check)
}

// check does the work. It returns false where there is nothing to say: no GPU on this node, or another check at work.
func check(d *session.Driver, r *record) (worth bool) {
	problem, found := d.Configure()
	r.Config, r.Faults = d.Config, found
	if !hasGPUs(d) {
		return false
	}
	if problem != "" {
		fmt.Fprintf(d.Stderr, "bookend: %s\n", problem)
	}
	if why := nameNode(d); why != "" {
		fmt.Fprintf(d.Stderr, "bookend: %s\n", why)
		r.Faults = append(r.Faults, finding.Saw(code.BadEnv, why, "SLURMD_NODENAME, or one node on this host"))
		r.judge(d)
		return true
	}
	r.Job, r.Faults = d.Job, append(r.Faults, d.OpenState()...)
	if !alone(d) {
		return false
	}
	c, keepers := r.examine(d)
	r.settleDrain(d, c)
	r.add(d, d.Take()...)
	r.keep(d, c.Last, keepers)
	r.gauges = r.gauge(d, keepers)
	return true
}

// examine looks, judges what it saw, and keeps what later hooks want to know.
func (r *record) examine(d *session.Driver) (c judge.Check, keepers *ledger.Keepers) {
	c.Last = lastCheck(d)
	heard := d.Listen(lastMark(c.Last))
	r.lookAround(d)
	r.Seen.Kernel = heard()
	r.Node = readNode(d)
	c.Case = r.Case
	if unclean := c.Unclean(); len(unclean) > 0 {
		residue := d.LookCloser(c, unclean)
		residue.Node = *again(d, *r.Node)
		c.Residue, c.Seen.Looks = &residue, d.Looks()
	}
	c.Faults = session.Once(append(c.Faults, d.Take()...), nil)
	r.Case = c.Case
	r.Judgement = judge.JudgeCheck(c)
	d.Reach(r.Exit)
	r.sight(d)
	r.settleRuns(d, c)
	keepers = countKeepers(d, c)
	r.add(d, session.Once(d.Take(), r.Found)...)
	return c, keepers
}

// lookAround asks the driver once for every GPU of the node, and reads who is on them.
func (r *record) lookAround(d *session.Driver) {
	defer d.Leave()
	if !d.Meet() {
		return
	}
	i := d.Inventory(ledger.Run{})
	r.Seen.Epoch = i.Epoch
	if len(i.Cards) == 0 {
		return
	}
	r.Past.Baselines = baselines(d, i)
	r.Seen = d.Glance(i)
}

// presentTime is for two listings, of which none asks a device.
const presentTime = time.Second

// hasGPUs reports whether there is anything to check: a GPU on the bus or a driver, or records of jobs that had one.
// Where nobody can tell there is. On a node without GPUs the health check leaves no trace.
func hasGPUs(d *session.Driver) bool {
	if d.Config.NVIDIA.DriverProc == "" {
		return true // the backend alone can tell
	}
	request := operation.MachineRequest{Sys: d.Config.Paths.Sys, DriverProc: d.Config.NVIDIA.DriverProc}
	present, err := operation.Present.Ask(request, d.Left(presentTime, d.Reserve()))
	if present || err != nil {
		return true
	}
	nodes, err := state.Nodes(d.Config.Paths.Run, "")
	return len(nodes) > 0 || err != nil
}

// nameNode finds out which node this is, or says why not. slurmd tells its health check; a timer or NHC may not.
func nameNode(h *session.Driver) (why string) {
	name := h.Getenv("SLURMD_NODENAME")
	if name == "" {
		name, why = guessNode(h)
	}
	if why == "" && !slurm.ValidNode(name) {
		why = fmt.Sprintf("%.64q is not a node's name", name)
	}
	if why == "" {
		h.Job.Node, h.Job.Context = name, h.Phase
	}
	return why
}

// guessNode takes the host's name, unless the hooks of this host know it by another.
func guessNode(h *session.Driver) (name, why string) {
	nodes, err := state.Nodes(h.Config.Paths.Run, "")
	host, hostErr := session.ReadOwn(filepath.Join(h.Config.Paths.Proc, "sys/kernel/hostname"))
	host, _, _ = strings.Cut(strings.TrimSpace(host), ".")
	switch {
	case err != nil:
		return "", fmt.Sprintf("SLURMD_NODENAME is not set, and the records do not tell: %v", err)
	case slices.Contains(nodes, host), len(nodes) == 0 && hostErr == nil:
		return host, ""
	case len(nodes) == 1:
		return nodes[0], ""
	}
	return "", fmt.Sprintf("SLURMD_NODENAME is not set, and this host may be any of %d nodes", len(nodes))
}

// alone makes this the node's one health check at work. A second one, from a timer beside Slurm's, ends at once.
func alone(d *session.Driver) bool {
	if d.Store == nil {
		return true
	}
	_, err := d.Store.BeOnlyCheck()
	if errors.Is(err, state.ErrLocked) {
		return false
	}
	d.Try(err)
	return true
}

// lastCheck is what the check before this one kept. It sees to it that this one leaves a word whatever happens.
func lastCheck(d *session.Driver) *ledger.Check {
	if d.Store == nil {
		return nil
	}
	last, err := d.Store.LastCheck()
	d.Try(err)
	store := d.Store
	d.Unfinished(func(e ledger.End) {
		stopped := onwards(last)
		stopped.At, stopped.Wall, stopped.Findings, stopped.Verdict = e.At, e.Wall, e.Findings, e.Verdict
		stopped.Stopped = true
		_ = store.PutLastCheck(stopped)
	})
	return last
}

// onwards begins with what the last check knew of the GPUs' condition and the kernel's log, for a check that could not
// look.
func onwards(last *ledger.Check) (now ledger.Check) {
	if last != nil {
		now.Health, now.Kernel, now.Boot, now.Keepers = last.Health, last.Kernel, last.Boot, last.Keepers
	}
	return now
}

// lastMark is where in the kernel's log the last check ended, nil where nobody knows.
func lastMark(last *ledger.Check) *gpu.KernelMark {
	if last == nil {
		return nil
	}
	return last.Kernel
}

// keep puts on record what this check saw and made of it.
func (r *record) keep(d *session.Driver, last *ledger.Check, keepers *ledger.Keepers) {
	if d.Store == nil {
		return
	}
	now := onwards(last)
	now.At, now.Wall, now.Findings, now.Verdict = d.Start, d.Clock.Wall(), r.Found, r.Verdict
	now.Took, now.Epoch = d.Clock.Boot()-d.Start, r.Seen.Epoch
	now.Snapshot, now.Cards = r.Seen.Side.Snapshot, r.Seen.Cards
	now.Unexplained, now.Leaked, now.Keepers = r.Unexplained(), r.Leaked(), keepers
	if len(r.Seen.Health) > 0 {
		now.Health = ledger.Accounts(r.Seen.Health, now.Wall)
	}
	if log := r.Seen.Kernel; log != nil && log.Unknown == "" {
		now.Kernel, now.Boot = &log.Last, log.Epoch.Boot
	}
	d.Finish()
	d.Try(d.Store.PutLastCheck(now))
	r.add(d, d.Take()...)
}

// sight keeps who was on the GPUs, for hooks to come.
func (r *record) sight(d *session.Driver) {
	side, epoch := r.Seen.Side, r.Seen.Epoch
	if d.Store == nil || side.Snapshot.At == 0 || !epoch.Same(epoch) {
		return
	}
	d.Try(d.Store.PutSighted(r.Node.Sighted.With(epoch, side.Snapshot, side.Processes)))
}

// settleRuns closes runs whose epilog never came. That judges nothing.
func (r *record) settleRuns(d *session.Driver, c judge.Check) {
	if d.Store == nil || r.Seen.Epoch.Boot == "" {
		return
	}
	exclusive := false
	unended := ledger.Unended(c.Latest().Runs, ledger.Node{
		Epoch: r.Seen.Epoch, Shared: d.Config.Slurm.SharedPartitions, Exclusive: func() bool {
			// Slurm's files say for certain that no GPU of this node is given out in parts.
			exclusive = exclusive || nodeSharing(d).Shared == slurmconf.No
			return exclusive
		},
	})
	for _, u := range unended {
		end := ledger.End{At: d.Clock.Boot(), Wall: d.Clock.Wall(), Unseen: u.Why, Presumed: u.Presumed}
		if u.Over > 0 {
			end.At = u.Over
		}
		d.Try(d.Store.Close(u.Run, end))
	}
}

// keepersAge is how long the count of such processes stands: they are daemons, and all of /proc is searched for them.
const keepersAge = time.Hour

// countKeepers counts the processes outside of jobs that keep the driver open, once an hour.
func countKeepers(d *session.Driver, c judge.Check) *ledger.Keepers {
	var known *ledger.Keepers
	if c.Last != nil && c.Last.Epoch.Same(c.Seen.Epoch) {
		known = c.Last.Keepers
	}
	if len(c.Seen.Cards) == 0 || known != nil && d.Start-known.At < keepersAge {
		return known
	}
	if c.Residue != nil && c.Residue.Side.Scan != nil { // of memory that was found just now
		return c.Keepers(*c.Residue.Side.Scan, d.Start)
	}
	if scan := d.Holders(); scan != nil {
		return c.Keepers(*scan, d.Start)
	}
	return nil
}

// gauge is what metrics show of the GPUs until the next check.
func (r *record) gauge(d *session.Driver, keepers *ledger.Keepers) *metrics.Check {
	m := &metrics.Check{Took: d.Clock.Boot() - d.Start}
	if keepers != nil && keepers.Unknown == "" {
		m.Keepers = &keepers.Count
	}
	unexplained, leaked := r.Unexplained(), r.Leaked()
	for _, card := range r.Seen.Cards {
		id := card.Device.ID
		reading, ok := r.Seen.Side.Snapshot.Reading(id)
		if !ok {
			continue
		}
		g := metrics.Card{GPU: card.Index, UUID: id, Used: reading.Memory.Used, Leaked: gpu.Bytes(leaked[id])}
		g.Unexplained = gpu.Unknown("not told")
		if bytes, told := unexplained[id]; told {
			g.Unexplained = gpu.Bytes(bytes)
		}
		m.Cards = append(m.Cards, g)
	}
	return m
}
