package stage

import (
	"fmt"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/backend"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/wire"
)

// Snapshot asks the driver once about every device of the node and reads who is on them, for the command line.
// What was seen before an error counts.
func Snapshot(env Env, cfg config.Config) (gpu.Snapshot, map[int]attrib.Process, error) {
	h := &hook{frame: newFrame(env), cfg: cfg, times: cfg.Deadlines.Epilog}
	h.limit(time.Duration(h.times.Total))
	timeout := time.Duration(h.times.Driver)
	answer := backend.Ask(backend.Params{Path: cfg.Backend, Root: env.EUID == 0}, wire.Request{
		Bookend: wire.Version, Op: wire.Snapshot, All: true, DeadlineMillis: timeout.Milliseconds(), Options: options(cfg.NVIDIA),
	})
	var s gpu.Snapshot
	if n := len(answer.Snapshots); n > 0 {
		s = answer.Snapshots[n-1]
	}
	var pids []int
	for _, r := range s.Readings {
		for _, p := range r.Processes {
			pids = append(pids, p.PID)
		}
	}
	who := h.Processes(pids)
	switch {
	case len(answer.Troubles) > 0:
		return s, who, fmt.Errorf("ask backend: %s: %.200q", answer.Troubles[0].Code, answer.Troubles[0].Detail)
	case len(answer.Faults) > 0:
		return s, who, fmt.Errorf("ask driver: %s: %.200q", answer.Faults[0].Code, answer.Faults[0].Detail)
	}
	return s, who, nil
}

func options(n config.NVIDIA) wire.Options {
	return wire.Options{NVMLLibrary: n.NVMLLibrary}
}
