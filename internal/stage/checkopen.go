package stage

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// keepersAge is how long the count of such processes stands: they are daemons, and all of /proc is searched for them.
const keepersAge = time.Hour

// countKeepers counts the processes outside of jobs that keep the driver open, once an hour.
func (c *check) countKeepers() {
	if c.last != nil && c.last.Epoch.Same(c.epoch) {
		c.keepers = c.last.Keepers
	}
	if k := c.keepers; len(c.every) == 0 || k != nil && c.start-k.At < keepersAge {
		return
	}
	scan := c.now.Scan // of memory that was found just now
	if scan == nil {
		scan = c.Holders()
	}
	if scan == nil {
		c.keepers = nil
		return
	}
	runs := c.records()
	found, unread := finding.Keepers(scan.Holdings, c.cfg.Backend, c.every, c.limits(), func(o slurm.Owner) bool {
		return slices.ContainsFunc(runs, func(r ledger.Run) bool {
			return o.ID != 0 && r.Job.ID == o.ID || o.SLUID != "" && r.Job.SLUID == o.SLUID
		})
	})
	c.keepers = &ledger.Keepers{At: c.start, Count: len(found)}
	switch { // those that were found are there, whatever else is
	case len(found) > 0:
	case unread > 0:
		c.keepers.Unknown = fmt.Sprintf("%d processes with the driver open could not be looked into", unread)
	default:
		c.keepers.Unknown = scan.Partial
	}
}
