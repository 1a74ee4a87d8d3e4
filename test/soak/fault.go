package main

import (
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/soak/world"
)

// condition is what driver and kernel log tell this hook of its GPUs, now and then not all of it.
func (h *hook) condition(since *gpu.KernelMark) {
	log := h.node.Log(since)
	switch h.damage.kind {
	case noKernelLog:
		log = gpu.KernelLog{Unknown: "cannot be opened", Epoch: h.node.Epoch}
	case overwritten:
		log.Xids, log.Lost = log.Xids[len(log.Xids)/2:], true
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
	if !c.Faulty(h.seen.began) && !c.Faulty(h.node.Now) {
		h.fail(falseDrain, "%s on %s, which has no fault: %s", f.Code, c.Device.ID, f.Observed)
	}
}

// deadly judges that no job is let onto a GPU that a hook knows to be unfit for use: the end that meets it drains the
// node, and of a lost one the start does too.
func (h *hook) deadly() {
	if h.Exit != 0 || h.damage.kind != whole || h.excused() {
		return
	}
	for _, c := range h.job.Cards {
		f, faulty := c.Fault(h.seen.began)
		asks := h.Phase == slurm.Epilog || h.job.Restarts == 0 && c.Lost <= h.seen.began
		asks = asks && (c.Lost <= h.seen.began || c.Lost > h.node.Now) // lost under the hook's eyes it may be a hiccup
		if faulty && f.Until > h.node.Now && asks {
			h.fail(missedDrain, "%s of job %d on %s, dead since Xid %d", h.Phase, h.job.ID, c.Device.ID, f.Code)
		}
	}
}

// excused reports a hook whose findings never drain.
func (h *hook) excused() bool {
	s := h.node.Site
	return s.AMD || s.MIG || s.InJob || h.node.Errors.Mute
}
