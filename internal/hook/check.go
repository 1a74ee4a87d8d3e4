package hook

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"bookend/internal/catalog"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/publish"
	"bookend/internal/record"
	"bookend/internal/recorder"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// check checks all of the node's GPUs, with two targets: one sample of each, and a watch of those that no job has and
// that are not clean. It returns false if there is nothing to publish: no GPU, or another check runs.
func check(h *hook) (o publish.Account, worth bool) {
	faults, problem := h.configure()
	a := h.a
	if !node.HasGPUs(a) {
		return o, false
	}
	why := nameNode(a)
	for _, text := range []string{problem, why} {
		if text != "" {
			fmt.Fprintf(a.Env.Stderr, "bookend: %s\n", text)
		}
	}
	known, more := knownNode(a, why)
	c := a.Case()
	c.Faults = slices.Concat(faults, more)
	h.know(c)
	if !known {
		c, j := h.judge(c)
		return h.keep(c, j), true
	}
	_, err := a.Store.Turns.Check(0) // a second one, from a timer as well as Slurm, ends at once
	if errors.Is(err, state.ErrLocked) {
		return o, false
	}
	c.Faults = slices.Concat(c.Faults, node.Fault(err))
	return h.checkNode(c), true
}

func (h *hook) checkNode(c judge.Case) publish.Account {
	a := h.a
	k := h.examine(c)
	j := judge.JudgeCheck(k)
	h.keep(k.Case, j)
	faults := slices.Concat(settleRuns(a, k), examined(a, k, j))
	j = j.With(k.Case, judge.Once(faults, j.Found)...)
	decided, faults := publish.SettleDrain(a, k, j)
	j = j.With(k.Case, faults...)
	was, held, faults := publish.DrainIdle(a, k, j)
	faults = slices.Concat(faults, keepStanding(a, k.Case, j, j.Action == catalog.ToDrain && held == ""))
	j = j.With(k.Case, faults...)
	if held != "" {
		j.Action, j.Held = catalog.ToWarn, held
	}
	last := summary(a, k, j)
	h.stopped.finish()
	o := h.keep(k.Case, j.With(k.Case, node.Fault(state.LastCheck.Save(a.Store, &last))...))
	o.Drain, o.Gauges = decided, gauge(last)
	o.Again = was.Drained() || j.Held != "" && k.Last != nil && k.Last.Verdict.Held != ""
	leaveRepair(a)
	return o
}

// examine returns the check's case: what it saw of all GPUs, and of those that are watched.
func (h *hook) examine(c judge.Case) judge.Check {
	a := h.a
	last, faults := state.LastCheck.Load(a.Store)
	c.Faults = slices.Concat(c.Faults, node.Fault(faults))
	h.stopped.setUnfinished(stoppedCheck(a, last))
	reply := startExternal(a)
	since := cmp.Or(last, &record.Check{}).Kernel // nil if it is not known where the last check's log ended
	damaged, err := a.Store.Damaged()
	c.Faults = slices.Concat(c.Faults, node.Fault(err))
	k := judge.Check{Case: h.know(node.ObserveAll(a, h.know(withStanding(a, c)), since)), Last: last}
	k.Faults = slices.Concat(k.Faults, node.Fault(a.Store.SeenClear(damaged, k.Clear(), record.IDs(k.Given()))))
	records, more := node.HostRecords(a)
	k.Node, k.Faults = records, slices.Concat(k.Faults, more)
	if unclean := k.Unclean(); len(unclean) > 0 {
		seen, residue := node.Closer(a, k.Case, unclean)
		records, more := node.HostRecords(a)
		residue.Node = *records
		k.Residue, k.Seen.Looks, k.Faults = &residue, seen.Seen.Looks, slices.Concat(seen.Faults, more)
	}
	k.Faults = slices.Concat(k.Faults, examineMemory(a, k))
	k.Reply, more = reply()
	k.Faults = judge.Once(slices.Concat(k.Faults, more), nil)
	h.know(k.Case)
	return k
}

// stoppedCheck returns a function that records a check that was stopped, with what the last one knew.
func stoppedCheck(a *node.Access, last *record.Check) func(record.End) {
	unasked := judge.Check{Last: last}
	if program := a.Config.Health.External.Program; program != "" {
		unasked.Reply = &judge.Reply{Program: program, Unknown: "was not waited for"}
	}
	return func(e record.End) {
		e.Findings = slices.Concat(e.Findings, unasked.ByReply())
		stopped := record.Check{At: e.At, Wall: e.Wall, Findings: e.Findings, Verdict: e.Verdict, Stopped: true}
		if last != nil {
			stopped.Health, stopped.Kernel, stopped.Boot = last.Health, last.Kernel, last.Boot
		}
		_ = state.LastCheck.Save(a.Store, &stopped)
	}
}

// examined lets job ends skip most of the GPUs' condition for a while, if all of it was read and nothing found.
func examined(a *node.Access, c judge.Check, j judge.Judgement) []record.Finding {
	at := a.Env.Clock.Boot()
	if len(j.Found) > 0 || len(c.Seen.Health) == 0 || len(c.Seen.Health) < len(c.Seen.Side.Snapshot.Readings) {
		at = 0
	}
	return node.Fault(state.LastExamined.Save(a.Store, at))
}

// knownNode opens the state of a check's node. why says why that node is not known, empty if it is.
func knownNode(a *node.Access, why string) (ok bool, faults []record.Finding) {
	if why != "" {
		return false, []record.Finding{record.Saw(catalog.BadEnv, why, "SLURMD_NODENAME, or one node on this host")}
	}
	return a.OpenState()
}

// summary returns what this check saw and decided, which the metrics show until the next one.
func summary(a *node.Access, c judge.Check, j judge.Judgement) record.Check {
	var now record.Check // starts with what the last one knew, for what this one could not read
	if last := c.Last; last != nil {
		now.Health, now.Kernel, now.Boot = last.Health, last.Kernel, last.Boot
	}
	now.At, now.Wall, now.Findings, now.Verdict = a.Deadline.Start, a.Env.Clock.Wall(), j.Found, j.Verdict
	now.Took, now.Epoch = a.Env.Clock.Boot()-now.At, c.Seen.Epoch
	now.Snapshot, now.Cards = c.Seen.Side.Snapshot, c.Seen.Cards
	now.Unexplained, now.Leaked = c.Unexplained(), c.Leaked(j)
	if len(c.Seen.Health) > 0 {
		now.Health = c.Seen.Health
	}
	if log := c.Seen.Kernel; log != nil && log.Unknown == "" {
		now.Kernel, now.Boot = &log.Last, log.Epoch.Boot
	}
	return now
}

// nameNode determines the node's name, or why not: from SLURMD_NODENAME, the node with records, or the host's name.
func nameNode(a *node.Access) (why string) {
	name := a.Env.Getenv("SLURMD_NODENAME")
	if name == "" {
		nodes, err := state.Nodes(a.Config.Paths.Run, "")
		long, hostErr := os.ReadFile(filepath.Join(a.Config.Paths.Proc, "sys/kernel/hostname"))
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
	a.Job.Node, a.Job.Context = name, a.Phase
	return ""
}

// settleRuns closes runs whose epilog never came. It judges nothing.
func settleRuns(a *node.Access, c judge.Check) (faults []record.Finding) {
	if c.Seen.Epoch.Boot == "" {
		return nil
	}
	unended := c.Unended(sync.OnceValue(func() bool { return node.Exclusive(a) }))
	for _, u := range unended {
		end := record.End{At: a.Env.Clock.Boot(), Wall: a.Env.Clock.Wall(), Unseen: u.Why, Presumed: u.Presumed}
		if u.Over > 0 {
			end.At = u.Over
		}
		end.Recording = state.Recorded.Peek(a.Store).Runs.About(u.Run)
		faults = append(faults, node.Fault(a.Store.Close(u.Run, end))...)
	}
	if len(a.Store.Openings().Runs(a.Env.Clock.Wall())) > 0 { // in case the recorder of running jobs was ended
		recorder.Start(a)
	}
	return faults
}

func gauge(now record.Check) *record.Check {
	seen := &record.Check{Cards: now.Cards, Unexplained: now.Unexplained, Leaked: now.Leaked}
	for _, reading := range now.Snapshot.Readings {
		reading.Processes = nil
		seen.Snapshot.Readings = append(seen.Snapshot.Readings, reading)
	}
	return seen
}
