package stage

import (
	"errors"
	"time"

	"bookend/internal/ledger"
	"bookend/internal/probe"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// claim makes this hook the only one that may test for this end, or start, of its job, as long as it lives. It returns
// false where another came first and has not ended: Slurm may run an epilog twice, one beside the other, and gives the
// card away once either has ended.
func (h *hook) claim() (first bool) {
	_, err := h.store.Claim(h.job, h.phase, 0)
	if errors.Is(err, state.ErrLocked) {
		h.second = true
		return false
	}
	h.sole = err == nil
	return true // where nobody can tell there is no test
}

// outlast keeps a hook that is not the first of its kind until the first has ended, where that may be testing: once this
// one ends the card may be somebody else's. The first has the earlier deadline. Then it says whether the first closed the
// run: one that died on the way has closed nothing, and this is the job's end.
func (h *hook) outlast() {
	if !h.second {
		return
	}
	wait := time.Duration(0)
	if probe.When(h.cfg.Probe, h.phase, h.job.Partition) {
		wait = h.left(time.Hour, h.reserve())
	}
	if _, err := h.store.Claim(h.job, h.phase, wait); err != nil {
		return // there is nothing else to do about it
	}
	_, which, _ := h.store.Find(h.job)
	h.second, h.again = false, which == ledger.ClosedRun
}

// recheck reads the records anew right before a test: jobs may have begun meanwhile. It reports whether another hook was
// here for this end, or start.
func (h *hook) recheck(self ledger.Run) (again bool) {
	if h.again || h.second || h.store == nil {
		return h.again || h.second
	}
	h.shared() // may take a second, and is known from now on
	if h.runs != nil {
		h.reread()
	}
	run, which, _ := h.store.Find(h.job)
	lost := which == ledger.NoRun && self.Key != ""
	began := h.phase == slurm.Prolog && (which == ledger.OpenRun || run.Sure(h.job))
	return lost || began || which == ledger.ClosedRun && h.phase == slurm.Epilog
}
