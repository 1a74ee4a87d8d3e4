package stage

import (
	"fmt"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// ledger reads every record of this node and sets this run apart.
func (h *hook) ledger(self ledger.Run) ledger.Book {
	now := ledger.Now{
		At: h.now.Snapshot.At, Epoch: h.epoch, Beginning: h.phase == slurm.Prolog, Idle: uint64(h.cfg.Thresholds.Report),
	}
	self.Job = h.job
	if h.store == nil {
		return ledger.Open(nil, self, now)
	}
	runs, damaged := h.store.Runs()
	for _, d := range damaged {
		h.add(finding.Finding{Code: code.StateDamage, Observed: fmt.Sprintf("%s: %s", d.Path, d.Why), Expected: "a whole record"})
	}
	return ledger.Open(runs, self, now)
}
