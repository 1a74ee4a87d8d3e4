package stage

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/nodefiles"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// check does the work of a health check. It returns false if there is nothing to report: no GPU, or another check runs.
func (r *work) check() (worth bool) {
	problem := r.Configure()
	if !r.hasGPUs() {
		return false
	}
	why := r.nameNode()
	for _, text := range []string{problem, why} {
		if text != "" {
			fmt.Fprintf(r.Stderr, "bookend: %s\n", text)
		}
	}
	if why != "" {
		r.Add(record.Saw(catalog.BadEnv, why, "SLURMD_NODENAME, or one node on this host"))
		r.judge()
		return true
	}
	if !r.OpenState() {
		r.judge()
		return true
	}
	_, err := r.Store.BeOnlyCheck() // a second one, from a timer as well as Slurm, ends at once
	if errors.Is(err, state.ErrLocked) {
		return false
	}
	r.Try(err)
	c := r.examine()
	r.settleDrain(c)
	r.add(r.Take()...)
	r.keep(c)
	return true
}

func (r *work) examine() (c judge.Check) {
	c.Last = r.lastCheck()
	var since *gpu.KernelMark // nil if it is not known where the last check's log ended
	if c.Last != nil {
		since = c.Last.Kernel
	}
	damaged, err := r.Store.Damaged()
	r.Try(err)
	heard := r.Listen(since)
	r.lookAround()
	c.Case = r.Case
	r.Try(r.Store.SeenClear(damaged, c.Clear(), ids(c.Given())))
	r.Seen.Kernel = heard()
	r.Node = r.readHost()
	c.Case = r.Case
	if unclean := c.Unclean(); len(unclean) > 0 {
		residue := r.LookCloser(unclean)
		residue.Node = *r.readHost()
		c.Residue, c.Seen.Looks = &residue, r.Seen.Looks
	}
	r.Faults = Once(append(r.Faults, r.Take()...), nil)
	c.Faults = r.Faults
	r.Judgement = judge.JudgeCheck(c)
	r.Reach(r.Verdict.Exit)
	r.settleRuns(c)
	r.examined()
	r.add(Once(r.Take(), r.Found)...)
	return c
}

// readHost reads the records of this node and of the other nodes on its host, which share its GPUs.
func (r *work) readHost() *judge.Node {
	all := r.readNode()
	names, err := state.Nodes(r.Config.Paths.Run, "")
	for _, name := range names {
		if err != nil || name == r.Job.Node {
			continue
		}
		var other *state.Store
		if other, err = state.Open(r.Config.Paths.Run, name); err == nil {
			node := r.readRuns(other)
			all.SameHost, all.Unread = append(all.SameHost, node), cmp.Or(all.Unread, node.Unread)
		}
	}
	if err != nil {
		all.Unread = cmp.Or(all.Unread, fmt.Sprintf("the records of this host's other nodes were not read: %v", err))
	}
	return all
}

// examined lets job ends skip most of the GPUs' condition for a while, if all of it was read and nothing found.
func (r *work) examined() {
	if r.Store == nil {
		return
	}
	at := r.Clock.Boot()
	if len(r.Found) > 0 || len(r.Seen.Health) == 0 || len(r.Seen.Health) < len(r.Seen.Side.Snapshot.Readings) {
		at = 0
	}
	r.Try(r.Store.SetExamined(at))
}

// lookAround asks the driver once for every GPU of the node, and reads which processes are on them.
func (r *work) lookAround() {
	if !r.answers() {
		return
	}
	_, start := r.numbering(record.Run{})
	r.Seen = r.Inventory(record.Run{}, start())
	if len(r.Seen.Cards) > 0 {
		r.Past.Baselines = r.baselines(r.Seen.Epoch)
		r.Glance()
	}
}

// hasGPUs reports whether there is a GPU on the bus, a driver, or a record of a job that had one; true if unknown.
func (r *work) hasGPUs() bool {
	if r.Config.NVIDIA.DriverProc == "" {
		return true // only the backend can tell
	}
	request := nodefiles.Request{Sys: r.Config.Paths.Sys, DriverProc: r.Config.NVIDIA.DriverProc}
	present, err := nodefiles.HasGPU.Ask(request, r.Left(time.Second, r.Reserve())) // two listings; no device is asked
	if present || err != nil {
		return true
	}
	nodes, err := state.Nodes(r.Config.Paths.Run, "")
	return len(nodes) > 0 || err != nil
}

// nameNode determines the node's name, or why not: from SLURMD_NODENAME, the node with records, or the host's name.
func (r *work) nameNode() (why string) {
	name := r.Getenv("SLURMD_NODENAME")
	if name == "" {
		nodes, err := state.Nodes(r.Config.Paths.Run, "")
		long, hostErr := os.ReadFile(filepath.Join(r.Config.Paths.Proc, "sys/kernel/hostname"))
		host, _, _ := strings.Cut(strings.TrimSpace(string(long)), ".")
		switch {
		case err != nil:
			return fmt.Sprintf("SLURMD_NODENAME is not set, and the records do not tell: %v", err)
		case slices.Contains(nodes, host), len(nodes) == 0 && hostErr == nil:
			name = host
		case len(nodes) == 1:
			name = nodes[0]
		default:
			return fmt.Sprintf("SLURMD_NODENAME is not set, and this host may be any of %d nodes", len(nodes))
		}
	}
	if !slurm.ValidNode(name) {
		return fmt.Sprintf("%.64q is not a node's name", name)
	}
	r.Job.Node, r.Job.Context = name, r.Phase
	return ""
}

// lastCheck returns what the previous check stored. It also makes this one leave a record even if it is stopped.
func (r *work) lastCheck() *record.Check {
	last, err := r.Store.LastCheck()
	r.Try(err)
	store := r.Store
	r.Unfinished(func(e record.End) {
		stopped := record.Check{At: e.At, Wall: e.Wall, Findings: e.Findings, Verdict: e.Verdict, Stopped: true}
		if last != nil {
			stopped.Health, stopped.Kernel = last.Health, last.Kernel
			stopped.Boot = last.Boot
		}
		_ = store.PutLastCheck(stopped)
	})
	return last
}

// keep records what this check saw and decided, which the metrics show until the next one.
func (r *work) keep(c judge.Check) {
	var now record.Check // starts with what the last one knew, for what this one could not read
	if last := c.Last; last != nil {
		now.Health, now.Kernel, now.Boot = last.Health, last.Kernel, last.Boot
	}
	now.At, now.Wall, now.Findings, now.Verdict = r.Start, r.Clock.Wall(), r.Found, r.Verdict
	now.Took, now.Epoch = r.Clock.Boot()-r.Start, r.Seen.Epoch
	now.Snapshot, now.Cards = r.Seen.Side.Snapshot, r.Seen.Cards
	now.Unexplained, now.Leaked = r.Unexplained(), c.Leaked(r.Judgement)
	if len(r.Seen.Health) > 0 {
		now.Health = r.Seen.Health
	}
	if log := r.Seen.Kernel; log != nil && log.Unknown == "" {
		now.Kernel, now.Boot = &log.Last, log.Epoch.Boot
	}
	r.gauges = gauge(now)
	r.Finish()
	r.Try(r.Store.PutLastCheck(now))
	r.add(r.Take()...)
}

// settleRuns closes runs whose epilog never came. It judges nothing.
func (r *work) settleRuns(c judge.Check) {
	if r.Seen.Epoch.Boot == "" {
		return
	}
	exclusive := false
	unended := attribution.Unended(c.Latest().Runs, attribution.Node{
		Epoch: r.Seen.Epoch, GPUs: ids(c.Given()), Shared: r.Config.Slurm.SharedPartitions, Exclusive: func() bool {
			// Slurm's files say for certain that no GPU of this node is given out in parts.
			exclusive = exclusive || r.nodeSharing().Shared == slurmconf.No
			return exclusive
		},
	})
	for _, u := range unended {
		end := record.End{At: r.Clock.Boot(), Wall: r.Clock.Wall(), Unseen: u.Why, Presumed: u.Presumed}
		if u.Over > 0 {
			end.At = u.Over
		}
		end.Recording = r.Store.RecorderState().Runs.About(u.Run)
		r.Try(r.Store.Close(u.Run, end))
	}
	if len(r.Store.Openings().Runs(r.Clock.Wall())) > 0 { // in case the recorder of running jobs was ended
		r.startRecorder()
	}
}

func ids(cards []record.Assigned) (list []gpu.ID) {
	for _, card := range cards {
		list = append(list, card.Device.ID)
	}
	return list
}

func gauge(now record.Check) *record.Check {
	seen := &record.Check{Cards: now.Cards, Unexplained: now.Unexplained, Leaked: now.Leaked}
	for _, reading := range now.Snapshot.Readings {
		reading.Processes = nil
		seen.Snapshot.Readings = append(seen.Snapshot.Readings, reading)
	}
	return seen
}
