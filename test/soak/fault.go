package main

import (
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/soak/world"
)

// condition is what driver and kernel log tell this hook of its GPUs, now and then not all of it.
func (h *hook) condition(since *gpu.KernelMark) {
	log := h.node.Log(since, &h.Past.Standing.Mark)
	switch h.damage.kind {
	case noKernelLog:
		log = gpu.KernelLog{Unknown: "cannot be opened", Epoch: h.node.Epoch}
	case overwritten:
		log.Xids, log.Before, log.Lost = log.Xids[len(log.Xids)/2:], nil, true
	}
	h.Seen.Kernel, h.Seen.Health = &log, nil
	if h.damage.kind == noCondition || h.damage.kind == noDriver {
		return
	}
	for _, c := range h.job.Cards {
		now := gpu.Health{Device: c.Device.ID}
		if action, known := h.node.RecoveryAction(c); known {
			now.Facts = []gpu.Fact{{Code: gpu.RecoveryAction, Value: action}}
		}
		if h.node.Now < c.Lost {
			h.Seen.Health = append(h.Seen.Health, now)
		}
	}
}

// untrustworthy judges a drain for a GPU's condition: it must have had a fault while the hook looked.
func (h *hook) untrustworthy(f record.Finding, c *world.Card) {
	h.tally.faults++
	if !c.Faulty(h.seen.began) && !c.Faulty(h.node.Now) && h.node.Now < c.Lost {
		h.fail(falseDrain, "%s on %s, which has no fault: %s", f.Code, c.Device.ID, f.Observed)
	}
}

// keep puts on record what the hook has learned of errors that stand, unless its record is lost.
func (h *hook) keep() {
	if h.damage.kind != unwritten {
		h.standing = h.StandingAfter(h.standing, h.Judgement, h.Exit != 0)
	}
}

// idle judges the one drain of a health check: of a GPU with a fault, on a node without jobs.
func (h *hook) idle() {
	for i, f := range h.Found {
		c := h.card(f.GPU)
		if h.Action != config.Drain || c == nil || !h.Drains(i) {
			continue
		}
		h.tally.drains++
		h.untrustworthy(f, c)
		for _, j := range h.node.Jobs {
			if j.Live && j.HasGPUs() && h.onRecord(j) && h.damage.kind == whole {
				h.fail(falseDrain, "%s by a health check while job %d runs", f.Code, j.ID)
			}
		}
	}
}

// deadly judges that a GPU that is not fit for use takes no third job: the end that meets it drains the node. Of a lost one
// the start does too, unless it had too little time to be sure.
func (h *hook) deadly() {
	for _, c := range h.job.Cards {
		f := c.Fault(h.seen.began)
		if f == nil || f.Until <= h.node.Now {
			continue
		}
		lost := c.Lost <= h.seen.began
		switch {
		case h.Exit != 0:
			f.Drained = true
		case h.damage.kind != whole || h.excused() || h.seen.slowUntil > 0 || f.Drained || !lost && c.Lost <= h.node.Now:
		case h.Phase == slurm.Epilog, lost && h.job.Restarts == 0 && f.Started:
			h.fail(missedDrain, "%s of job %d on %s, dead since Xid %d", h.Phase, h.job.ID, c.Device.ID, f.Code)
		default:
			f.Started = true
		}
	}
}

// excused reports a hook whose findings never drain.
func (h *hook) excused() bool {
	s := h.node.Site
	return s.AMD || s.MIG || s.InJob || h.node.Errors.Mute
}
