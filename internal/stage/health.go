package stage

import (
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/wire"
)

// askHealth adds to the first look's request what is read once a hook: at an end the cards' condition, at a start
// nothing but, where the admin wants it, that accounting be on.
func (h *hook) askHealth(r *wire.Request) {
	if h.looks > 0 {
		return
	}
	if h.phase == slurm.Prolog {
		r.Accounting, r.StartAccounting = h.cfg.NVIDIA.Accounting, h.cfg.NVIDIA.Accounting
		return
	}
	r.Health, r.Accounting = h.cfg.Look.Health, h.cfg.Look.Health
}

// judgeHealth adds what the driver and the kernel's log say against the job's cards.
func (h *hook) judgeHealth(run ledger.Run) {
	in := health.Input{Cards: h.cards, Now: h.health, Kernel: h.sinceJobBegan(run), Idle: map[gpu.ID]bool{}}
	if h.inJob {
		in.Doubt = insideDoubt
	}
	for _, c := range h.cards {
		in.Idle[c.Device.ID] = h.idle(c.Device.ID)
	}
	if health.Compares(h.health) { // most cards never do: the records of the node are not read for them
		in.Before = ledger.LastHealth(h.records(), h.epoch)
	}
	for _, f := range health.Judge(in) {
		h.add(f)
	}
}

// idle reports a card that had nobody on it, and nothing, when its health was read. One that is as the job found it need
// not be idle, nor one that came to rest later.
func (h *hook) idle(id gpu.ID) bool {
	r, seen := h.beside.Reading(id)
	return seen && r.ProcessesUnknown == "" && len(r.Processes) == 0 &&
		r.Memory.Used.Known() && !r.Memory.UsedHasReserved && r.Memory.Used.Bytes < uint64(h.cfg.Thresholds.Report)
}

// mismatched adds that the driver's library is of another version than its kernel module, where NVML did not come far
// enough to say so.
func (h *hook) mismatched(library string) {
	module := h.epoch.Driver
	if library == "" || module == "" || library == module || h.has(code.Mismatch) {
		return
	}
	h.add(finding.Finding{Code: code.Mismatch, Observed: "the kernel module is " + module + ", the library " + library,
		Expected: "driver and library of one version"})
}

func (h *hook) has(c code.Code) bool {
	for _, f := range h.found {
		if f.Code == c {
			return true
		}
	}
	return false
}
