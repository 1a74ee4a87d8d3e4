package stage

import (
	"slices"

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

// judgeHealth adds what the driver and the kernel's log say against the job's cards: the log also where the driver is
// stuck or has lost the card, which is when it matters most.
func (h *hook) judgeHealth(run ledger.Run) {
	in := health.Input{
		Cards: h.cards, Unseen: h.notFound(run), Now: h.health, Kernel: h.sinceJobBegan(run), KernelDoubt: h.reloaded(run), Idle: map[gpu.ID]bool{},
		Blind: len(h.health) == 0,
	}
	in.Own = h.ownXids(run, slices.Concat(in.Cards, in.Unseen))
	if h.inJob {
		in.Doubt = insideDoubt
	}
	for _, c := range h.cards {
		in.Idle[c.Device.ID] = h.idle(c.Device.ID)
	}
	if health.Compares(h.health) { // most cards never do: the records of the node are not read for them
		in.Before = ledger.LastHealth(h.records(), h.epoch)
	}
	found := health.Judge(in)
	for _, f := range found {
		h.add(f)
	}
	for _, c := range in.Unseen {
		if slices.ContainsFunc(found, func(f finding.Finding) bool { return f.GPU != "" && f.GPU == c.Device.ID }) {
			h.unseen = append(h.unseen, c)
		}
	}
}

// notFound are the job's cards by the start's record that this hook has not found among the driver's.
func (h *hook) notFound(run ledger.Run) (cards []finding.Card) {
	for _, d := range run.Devices {
		found := slices.ContainsFunc(h.cards, func(c finding.Card) bool {
			if c.Device.ID == "" || d.Device.ID == "" {
				return c.Device.BusID == d.Device.BusID
			}
			return c.Device.ID == d.Device.ID
		})
		if !found {
			cards = append(cards, finding.Card{Index: d.Index, Device: d.Device})
		}
	}
	return cards
}

// idle reports a card that had nobody on it, and nothing, when its health was read. One that is as the job found it need
// not be idle, nor one that came to rest later.
func (h *hook) idle(id gpu.ID) bool {
	r, seen := h.healthLook.Reading(id)
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
