package main

import (
	"time"

	"bookend/internal/condition"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/state"
)

// struck returns the GPUs with faults that the records prove. If the driver answered, GPUs that it does not have any
// more are left out.
func (r records) struck(now node.Glance) []record.Struck {
	var last *record.Check
	if r.store != nil {
		last, _ = state.LastCheck.Load(r.store) // "bookend status" reports an unreadable one
	}
	return condition.History{Runs: r.runs, Check: last, Now: now.Snapshot, Faults: r.cfg.Strikes.Faults,
		Within: time.Duration(r.cfg.Strikes.Within), At: r.env.Clock.Wall()}.Struck()
}
