package stage

import (
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/slurmconf"
)

// recallLast reads what the check before this one kept, and sees to it that this one leaves a word whatever happens.
func (c *check) recallLast() {
	if c.store == nil {
		return
	}
	last, err := c.store.LastCheck()
	c.try(err)
	c.last = last
	put := func(e ledger.End) {
		stopped := c.record(e)
		stopped.Stopped = true
		_ = c.store.PutLastCheck(stopped)
	}
	c.unfinished.Store(&put)
}

// keepLast puts on record what this check saw and made of it.
func (c *check) keepLast() {
	if c.store == nil {
		return
	}
	now := c.record(ledger.End{At: c.start, Wall: c.env.Clock.Wall(), Findings: c.found, Verdict: c.verdict})
	now.Took, now.Epoch, now.Snapshot, now.Cards = c.env.Clock.Boot()-c.start, c.epoch, c.seen, c.assigned()
	now.Unexplained, now.Leaked, now.Keepers = c.unexplained(), c.leftOver, c.keepers
	if len(c.health) > 0 {
		now.Health = ledger.Accounts(c.health, now.Wall)
	}
	if c.kernel != nil && c.kernel.Unknown == "" {
		now.Kernel, now.Boot = &c.kernel.Last, c.kernel.Epoch.Boot
	}
	c.unfinished.Store(nil)
	c.try(c.store.PutLastCheck(now))
	c.decide()
}

// record begins with what the last check knew of the cards' condition and the kernel's log, for a check that could not look.
func (c *check) record(e ledger.End) ledger.Check {
	now := ledger.Check{At: e.At, Wall: e.Wall, Findings: e.Findings, Verdict: e.Verdict}
	if c.last != nil {
		now.Health, now.Kernel, now.Boot, now.Keepers = c.last.Health, c.last.Kernel, c.last.Boot, c.last.Keepers
	}
	return now
}

func (c *check) assigned() (all []ledger.Assigned) {
	for _, card := range c.every {
		all = append(all, ledger.Assigned{Index: card.Index, Device: card.Device})
	}
	return all
}

// lastMark is where in the kernel's log the last check ended, nil where nobody knows.
func (c *check) lastMark() *gpu.KernelMark {
	if c.last == nil {
		return nil
	}
	return c.last.Kernel
}

// sinceLast is the kernel's log since the last check of this boot, nil where that cannot be told.
func (c *check) sinceLast() *gpu.KernelLog {
	if c.kernel == nil || c.kernel.Unknown != "" || c.lastMark() == nil || c.last.Boot == "" || c.last.Boot != c.kernel.Epoch.Boot {
		return nil
	}
	log := *c.kernel
	if log.Lost {
		log.Lost = false
		c.add(finding.Finding{Code: code.Untraced, Unknown: "part of the kernel's log since the last health check was overwritten before it was read: an Xid may be missing"})
	}
	return &log
}

// sightings are the processes that health checks have seen on the cards, read once.
func (h *hook) sightings() ledger.Sighted {
	if h.sighted == nil {
		h.sighted = &ledger.Sighted{}
		if h.store != nil {
			s, err := h.store.Sighted()
			h.try(err)
			h.sighted = &s
		}
	}
	return *h.sighted
}

// sight keeps who was on the cards, for hooks to come.
func (c *check) sight() {
	if c.store == nil || c.seen.At == 0 || !c.epoch.Same(c.epoch) {
		return
	}
	c.try(c.store.PutSighted(c.sightings().With(c.epoch, c.seen, c.side.Processes)))
}

// settleRuns closes runs whose epilog never came. That judges nothing.
func (c *check) settleRuns() {
	if c.store == nil || c.epoch.Boot == "" {
		return
	}
	exclusive := false
	unended := ledger.Unended(c.records(), ledger.Node{Epoch: c.epoch, Shared: c.cfg.Slurm.SharedPartitions, Exclusive: func() bool {
		exclusive = exclusive || c.givesWholeCards()
		return exclusive
	}})
	for _, u := range unended {
		end := ledger.End{At: c.env.Clock.Boot(), Wall: c.env.Clock.Wall(), Unseen: u.Why, Presumed: u.Presumed}
		if u.Over > 0 {
			end.At = u.Over
		}
		c.try(c.store.Close(u.Run, end))
	}
}

// givesWholeCards reports that Slurm's files say for certain that no card of this node is given out in parts.
func (c *check) givesWholeCards() bool {
	return sharing(c.cfg.Slurm, c.env.Getenv("SLURM_CONF"), c.job.Node, c.left(sharingTime, c.reserve())).Shared == slurmconf.No
}

// unexplained is the balance of each card that can be told, in bytes.
func (c *check) unexplained() map[gpu.ID]uint64 {
	all := map[gpu.ID]uint64{}
	for _, card := range c.every {
		r, ok := c.seen.Reading(card.Device.ID)
		if !ok || r.ProcessesUnknown != "" {
			continue
		}
		if bytes, unknown := finding.Unexplained(r, c.limits(), c.baselines[card.Device.ID]); unknown == "" {
			all[card.Device.ID] = bytes
		}
	}
	return all
}

// gauges are what metrics show of the cards until the next check.
func (c *check) gauges() *metrics.Check {
	m := &metrics.Check{Took: c.env.Clock.Boot() - c.start}
	if k := c.keepers; k != nil && k.Unknown == "" {
		m.Keepers = &k.Count
	}
	unexplained := c.unexplained()
	for _, card := range c.every {
		g := metrics.Card{GPU: card.Index, UUID: card.Device.ID}
		r, ok := c.seen.Reading(card.Device.ID)
		if !ok {
			continue
		}
		g.Used, g.Leaked = r.Memory.Used, gpu.Bytes(c.leftOver[card.Device.ID])
		g.Unexplained = gpu.Unknown("not told")
		if bytes, told := unexplained[card.Device.ID]; told {
			g.Unexplained = gpu.Bytes(bytes)
		}
		m.Cards = append(m.Cards, g)
	}
	return m
}
