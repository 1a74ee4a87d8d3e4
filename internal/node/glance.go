package node

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/nodefiles"
	"bookend/internal/record"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// ObserveAll returns a health check's case with what one sample of every GPU of the node shows and which processes are
// on them, and the kernel's log after a mark, nil for its newest entry.
func ObserveAll(a *Access, c judge.Case, since *gpu.KernelMark) judge.Case {
	log := readKernel(a, c, since)
	answers, faults := a.Answers()
	c.Faults = slices.Concat(c.Faults, faults)
	if answers {
		n := numbersOf(a, record.Run{})
		n.start()
		c = inventory(a, c, n)
		c.Faults = slices.Concat(c.Faults, n.faults)
	}
	if len(c.Seen.Cards) > 0 {
		c = withBaselines(a, c)
		e := &observer{a: a, c: c}
		answer := a.ask(snapshot(a.Left(a.Times.Driver), true, false), Params{})
		e.take(answer)
		c.Seen.Health, c.Seen.Side.Snapshot = answer.Health, answer.latest()
		c.Seen.Cards = slurmconf.WithReadings(c.Seen.Cards, c.Seen.Side.Snapshot)
		if len(c.Seen.Side.Snapshot.Readings) > 0 {
			c.Seen.Side = judge.Glance(e, c.Seen.Side.Snapshot)
		}
		c = e.seen(c)
	}
	return withKernel(c, log)
}

// Closer returns a health check's case with what was seen while some of its GPUs were watched until they settled.
func Closer(a *Access, c judge.Case, cards []record.Assigned) (judge.Case, judge.Residue) {
	others := c.Seen.Side.Snapshot
	others.Readings = slices.DeleteFunc(slices.Clone(others.Readings), func(r gpu.Reading) bool {
		return slices.Contains(record.IDs(cards), r.Device.ID)
	})
	e := &observer{a: a, c: c}
	order := c.Order(cards, a.Settle)
	order.Neighbours = others
	side, watched := judge.Observe(e, order)
	return e.seen(c), judge.Residue{Cards: watched, Side: side}
}

// ReadEpoch returns the epoch of all vendors' drivers together.
func ReadEpoch(p config.Paths) gpu.Epoch { return nodefiles.ReadEpoch(p.Proc, p.Sys) }

// HasGPUs reports whether there is a GPU on the bus, a driver, or a record of a job that had one; true if unknown.
func HasGPUs(a *Access) bool {
	if a.Config.NVIDIA.DriverProc == "" {
		return true // only the backend can tell
	}
	request := nodefiles.Request{Sys: a.Config.Paths.Sys, DriverProc: a.Config.NVIDIA.DriverProc}
	// two listings; no device is asked
	present, err := nodefiles.HasGPU.Ask(request, a.Deadline.Left(time.Second, a.Reserve()))
	if present || err != nil {
		return true
	}
	nodes, err := state.Nodes(a.Config.Paths.Run, "")
	return len(nodes) > 0 || err != nil
}

// Glance is the result of one sample of every GPU of the node.
type Glance struct {
	Snapshot gpu.Snapshot
	Health   []gpu.Health // only if it was asked for
	Who      map[int]record.Process
	Version  string // the backend's
	Took     time.Duration
	// why the sample is incomplete, with the backend's code or the driver's; what was read before counts
	Problem string
	// Stuck is the backend that could not be killed, nil for none: no other may be started while it lives.
	Stuck *state.Stuck
}

// SampleAll asks the driver once about every GPU of the node, and reads which processes are on them: for commands.
// With identity it asks for their condition, too, and for what a vendor's ticket needs.
func SampleAll(env child.Env, cfg config.Config, timeout time.Duration, identity bool) Glance {
	a := With(env, "", cfg, env.Clock.Boot())
	answer := a.ask(snapshot(timeout, identity, identity), Params{})
	g := Glance{Took: answer.Took, Snapshot: answer.latest(), Health: answer.Health, Stuck: answer.Abandoned}
	if answer.Hello != nil {
		g.Version = answer.Hello.Version
	}
	g.Who = judge.Glance(&observer{a: a}, g.Snapshot).Processes
	if len(answer.Faults) > 0 {
		g.Problem = fmt.Sprintf("%s: %s", answer.Faults[0].Code, answer.Faults[0].Detail)
	}
	if len(answer.Troubles) > 0 {
		g.Problem = answer.Troubles[0].String()
	}
	return g
}

// Holders searches /proc for processes that have GPUs open: for the command line.
func Holders(a *Access) record.Scan { return *(&observer{a: a}).Holders(0) }

// KeepStuck puts on record that a child could not be killed: no hook asks the driver meanwhile.
func KeepStuck(a *Access, stuck *state.Stuck) error {
	stuck.Since = a.Env.Clock.Boot()
	return state.StuckChildren.Add(a.Store, *stuck, a.alive)
}

// Programs runs programs of an admin's, each bounded. One that could not be killed goes on record.
func Programs(a *Access, limit time.Duration) *child.Programs {
	stuck := func(failed *child.Error) error { return KeepStuck(a, leftBehind(failed, 0)) }
	return &child.Programs{Limit: limit, Stuck: stuck}
}

// Journal is what is kept of a node's resets, or quarantines. It is on disk: it counts beyond a reboot.
func Journal[T any](a *Access, of string) child.Journal[T] {
	return child.Journal[T]{Dir: a.Config.Paths.Var, Name: of + "-" + a.Job.Node + ".json"}
}
