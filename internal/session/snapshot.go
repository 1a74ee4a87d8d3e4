package session

import (
	"fmt"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/backend"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/operation"
	"bookend/internal/state"
	"bookend/internal/wire"
)

// Snapshot asks the driver once about every device of the node and reads who is on them, for the command line.
// What was seen before an error counts.
func Snapshot(env operation.Env, cfg config.Config) (gpu.Snapshot, map[int]attrib.Process, error) {
	g := Look(env, cfg, time.Duration(cfg.Deadlines.Epilog.Driver))
	if g.Why != "" {
		return g.Snapshot, g.Who, fmt.Errorf("ask %s: %.200q", g.asked(), g.Why)
	}
	return g.Snapshot, g.Who, nil
}

// Glance is what one look at every card of the node came to.
type Glance struct {
	Snapshot gpu.Snapshot
	Who      map[int]attrib.Process
	Took     time.Duration
	// Why is why the look is not whole: Code names the backend's trouble, Fault the driver's; both empty where it is.
	Why   string
	Code  code.Code
	Fault gpu.FaultCode
	// Stuck is the backend that could not be killed, nil for none: nobody may start another while it lives.
	Stuck *state.Stuck
}

func (g Glance) asked() string {
	if g.Code != "" {
		return "backend: " + string(g.Code)
	}
	return "driver: " + string(g.Fault)
}

// Look asks the driver once about every device of the node, for at most a while, and reads who is on them.
func Look(env operation.Env, cfg config.Config, timeout time.Duration) Glance {
	h := New(env, "")
	h.Config, h.Times = cfg, cfg.Deadlines.Epilog
	h.Limit(time.Duration(h.Times.Total))
	answer := backend.Ask(backend.Params{Path: cfg.Backend, Root: env.EUID == 0}, wire.Request{
		Bookend: wire.Version, Op: wire.Snapshot, All: true, DeadlineMillis: timeout.Milliseconds(),
		Options: cfg.NVIDIA.ForLooks(),
	})
	g := Glance{Took: answer.Took}
	if n := len(answer.Snapshots); n > 0 {
		g.Snapshot = answer.Snapshots[n-1]
	}
	if a := answer.Abandoned; a != nil {
		g.Stuck = &state.Stuck{PID: a.PID, StartTicks: a.StartTicks, Since: env.Clock.Boot(), Op: operation.Backend}
	}
	var pids []int
	for _, r := range g.Snapshot.Readings {
		for _, p := range r.Processes {
			pids = append(pids, p.PID)
		}
	}
	g.Who = h.Driver().Processes(pids)
	switch {
	case len(answer.Troubles) > 0:
		g.Code, g.Why = answer.Troubles[0].Code, answer.Troubles[0].Detail
	case len(answer.Faults) > 0:
		g.Fault, g.Why = answer.Faults[0].Code, answer.Faults[0].Detail
	}
	if g.Why == "" && (g.Code != "" || g.Fault != "") {
		g.Why = "no more is known"
	}
	return g
}
