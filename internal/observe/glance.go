package observe

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/backend"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/nodefiles"
	"bookend/internal/record"
	"bookend/internal/state"
)

// Node returns a health check's case with what one sample of every GPU of the node shows, and the kernel's log after a
// mark, nil for its newest entry.
func Node(a *node.Access, c judge.Case, since *gpu.KernelMark) judge.Case {
	log := kernel(a, since)
	answers, faults := a.Answers()
	c.Faults = slices.Concat(c.Faults, faults)
	if answers {
		n := numbersOf(a, record.Run{})
		n.start()
		c = inventory(a, c, n)
		c.Faults = slices.Concat(c.Faults, n.faults)
	}
	if len(c.Seen.Cards) > 0 {
		baselines, faults := a.Baselines(c.Seen.Epoch)
		c.Past.Baselines, c.Faults = baselines, slices.Concat(c.Faults, faults)
		c = glance(a, c)
	}
	return withKernel(c, Meanwhile{kernel: log})
}

// glance samples every GPU of the node once and reads which processes are on them.
func glance(a *node.Access, c judge.Case) judge.Case {
	e := &eyes{a: a, c: c}
	answer := a.Ask(snapshot(a.Left(a.Times.Driver), true), backend.Params{})
	e.take(answer)
	c.Seen.Health = answer.Health
	if n := len(answer.Snapshots); n > 0 {
		c.Seen.Side.Snapshot = answer.Snapshots[n-1]
	}
	c.Seen.Cards = withReadings(c.Seen.Cards, c.Seen.Side.Snapshot)
	if len(c.Seen.Side.Snapshot.Readings) > 0 {
		c.Seen.Side = judge.Glance(e, c.Seen.Side.Snapshot)
	}
	return e.seen(c)
}

// Closer returns a health check's case with what was seen while some of its GPUs were watched until they settled.
func Closer(a *node.Access, c judge.Case, cards []record.Assigned) (judge.Case, judge.Residue) {
	others := c.Seen.Side.Snapshot
	others.Readings = slices.DeleteFunc(slices.Clone(others.Readings), func(r gpu.Reading) bool {
		return slices.ContainsFunc(cards, func(card record.Assigned) bool { return card.Device.ID == r.Device.ID })
	})
	e := &eyes{a: a, c: c}
	order := c.Order(cards, a.Settle)
	order.Neighbours = others
	side, watched := judge.Observe(e, order)
	return e.seen(c), judge.Residue{Cards: watched, Side: side}
}

// HasGPUs reports whether there is a GPU on the bus, a driver, or a record of a job that had one; true if unknown.
func HasGPUs(a *node.Access) bool {
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
	Who      map[int]record.Process
	Version  string // the backend's
	Took     time.Duration
	// why the sample is incomplete, with the backend's code or the driver's; what was read before counts
	Problem string
	// Stuck is the backend that could not be killed, nil for none: no other may be started while it lives.
	Stuck *state.Stuck
}

// Look asks the driver once about every GPU of the node, and reads which processes are on them: for the command line.
func Look(env child.Env, cfg config.Config, timeout time.Duration) Glance {
	a := node.With(env, "", cfg, env.Clock.Boot())
	answer := a.Ask(snapshot(timeout, false), backend.Params{})
	g := Glance{Took: answer.Took}
	if n := len(answer.Snapshots); n > 0 {
		g.Snapshot = answer.Snapshots[n-1]
	}
	if answer.Hello != nil {
		g.Version = answer.Hello.Version
	}
	if answer.Abandoned != nil {
		g.Stuck = a.StuckBackend(answer.Abandoned)
	}
	g.Who = judge.Glance(&eyes{a: a}, g.Snapshot).Processes
	switch {
	case len(answer.Troubles) > 0:
		g.Problem = fmt.Sprintf("%s: %s", answer.Troubles[0].Code, answer.Troubles[0].Detail)
	case len(answer.Faults) > 0:
		g.Problem = fmt.Sprintf("%s: %s", answer.Faults[0].Code, answer.Faults[0].Detail)
	}
	return g
}
