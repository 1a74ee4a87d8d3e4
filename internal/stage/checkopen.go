package stage

import (
	"time"

	"bookend/internal/finding"
	"bookend/internal/ledger"
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
	found := finding.Keepers(scan.Holdings, c.cfg.Backend, c.every, c.limits())
	c.keepers = &ledger.Keepers{At: c.start, Count: len(found)}
	if len(found) == 0 { // those that were found are there, whoever else is
		c.keepers.Unknown = scan.Partial
	}
}
