package stage

import (
	"fmt"
	"slices"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// ledger reads every record of this node and sets this run apart.
func (h *hook) ledger(self ledger.Run) ledger.Book {
	now := ledger.Now{
		At: h.now.Snapshot.At, Epoch: h.epoch, Beginning: h.phase == slurm.Prolog, Idle: uint64(h.cfg.Thresholds.Report),
		Sighted: h.sightings(),
	}
	self.Job = h.job
	return ledger.Open(h.records(), self, now)
}

// records are all of this node's, read once.
func (h *hook) records() []ledger.Run {
	if h.store == nil || h.runs != nil {
		return h.runs
	}
	h.reread()
	return h.runs
}

// reread reads them again: jobs may have begun, or ended, meanwhile.
func (h *hook) reread() {
	runs, damaged := h.store.Runs()
	for _, d := range damaged {
		if d.Unread {
			h.unread = "not all records of this node's jobs were read: another may have this GPU"
		}
		h.addOnce(finding.Finding{Code: code.StateDamage, Observed: fmt.Sprintf("%s: %s", d.Path, d.Why), Expected: "a whole record"})
	}
	h.runs = runs
}

// addOnce adds a finding that has not been told in the same words.
func (h *hook) addOnce(f finding.Finding) {
	told := func(o finding.Finding) bool {
		return o.Code == f.Code && o.GPU == f.GPU && o.Observed == f.Observed && o.Unknown == f.Unknown
	}
	if !slices.ContainsFunc(h.found, told) {
		h.add(f)
	}
}
