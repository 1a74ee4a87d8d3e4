package stage

import (
	"time"

	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/probe"
	"bookend/internal/slurm"
)

// probe tests the job's cards by an allocation where that may be, and at a start takes the last test's word where that
// still holds.
func (h *hook) probe(self ledger.Run) {
	since := h.kernel
	if h.phase == slurm.Prolog && since != nil { // a start keeps the mark alone: what was before is no part of this job
		h.kernel = &gpu.KernelLog{Last: since.Last, Unknown: since.Unknown}
	}
	if probe.At(h.cfg.Probe, h.job.Partition) == config.ProbeNever {
		return
	}
	if len(h.cards) == 0 {
		return
	}
	scene := h.scene(self)
	outcomes, open := h.trusted(scene, since)
	if probe.When(h.cfg.Probe, h.phase, h.job.Partition) && len(open) > 0 {
		again := h.recheck(self)
		h.who(&scene, self)
		outcomes = append(outcomes, h.test(scene, open, again)...)
	}
	for _, o := range outcomes {
		h.probes = append(h.probes, o.Probe)
	}
	for _, f := range probe.Findings(h.cards, outcomes) {
		h.add(f)
	}
}

// trusted returns what earlier tests say of the cards, and the cards of which none does. A start that tests believes no
// bad news: it may have been repaired since.
func (h *hook) trusted(scene finding.Scene, since *gpu.KernelLog) (outcomes []probe.Outcome, open []finding.Card) {
	if h.phase != slurm.Prolog || h.store == nil {
		return nil, h.cards
	}
	records, err := h.store.Probes()
	h.try(err)
	tests := probe.When(h.cfg.Probe, h.phase, h.job.Partition)
	for _, c := range h.cards {
		r, known := records[c.Device.ID]
		now := probe.Now{
			At: h.env.Clock.Boot(), Epoch: h.epoch, MaxAge: time.Duration(h.cfg.Probe.MaxAge), Kernel: since, Scene: scene, Card: c,
		}
		ok, why := r.Trusted(now)
		switch {
		case !known, tests && (!ok || !r.Good()):
			open = append(open, c)
		case ok:
			outcomes = append(outcomes, probe.Outcome{Probe: r.Probe, Seen: r.Seen, Earlier: r.Wall})
		default:
			outcomes = append(outcomes, probe.Outcome{Probe: probe.Skipped(c.Device.ID, "none at a start (probe.at); the last one is not trusted: "+why)})
		}
	}
	return outcomes, open
}

// testedSince is from where on a start has to read the kernel's log: before the oldest test that it may trust, nil
// where there is none.
func (h *hook) testedSince() (since *gpu.KernelMark) {
	if h.store == nil || probe.At(h.cfg.Probe, h.job.Partition) == config.ProbeNever {
		return nil
	}
	records, err := h.store.Probes()
	h.try(err) // now: what is damaged is set aside, and the next reader does not meet it
	oldest := h.env.Clock.Boot() - time.Duration(h.cfg.Probe.MaxAge)
	for _, r := range records {
		if r.Probe.At >= oldest && r.Kernel != (gpu.KernelMark{}) && (since == nil || r.Kernel.Seq < since.Seq) {
			since = &r.Kernel
		}
	}
	return since
}

// test has those of the cards tested that may be, and keeps what came of it.
func (h *hook) test(scene finding.Scene, cards []finding.Card, again bool) []probe.Outcome {
	c := probe.Case{Scene: scene, Found: h.found, InJob: h.inJob, Again: again, MIG: h.cfg.Probe.MIG}
	may, skipped := c.Plan(cards)
	t := tester{hook: h}
	if why := t.prepare(may, c.Known(may)); why != "" {
		skipped, may = append(skipped, allSkipped(may, why)...), nil
	}
	n := t.room(may)
	skipped = append(skipped, allSkipped(may[n:], "no time left")...)
	outcomes := t.run(may[:n])
	h.keep(outcomes)
	for _, p := range skipped {
		outcomes = append(outcomes, probe.Outcome{Probe: p})
	}
	return outcomes
}

func allSkipped(cards []finding.Card, why string) (all []gpu.Probe) {
	for _, c := range cards {
		all = append(all, probe.Skipped(c.Device.ID, why))
	}
	return all
}

// keep records tests for later starts. One that was tried and came to nothing is recorded too: nobody trusts it, nor
// what was known before it.
func (h *hook) keep(outcomes []probe.Outcome) {
	var mark gpu.KernelMark
	if h.kernel != nil {
		mark = h.kernel.Last
	}
	var records []probe.Record
	for _, o := range outcomes {
		records = append(records, probe.Record{Probe: o.Probe, Epoch: h.epoch, Kernel: mark, Wall: h.env.Clock.Wall(), Seen: o.Seen})
	}
	if len(records) > 0 && h.epoch.Same(h.epoch) { // one half known could be trusted by nobody
		h.try(h.store.PutProbes(records...))
	}
}
