package stage

import (
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/metrics"
	"bookend/internal/probe"
	"bookend/internal/slurm"
)

// counted is this run as the metrics count it.
func (h *hook) counted() metrics.Run {
	r := metrics.Run{
		Check:   h.checked,
		Version: h.env.Version, Hook: metrics.Prolog, Job: h.job.ID, At: h.env.Clock.Wall(), Action: h.verdict.Action, Held: h.verdict.Held != "",
		Mode: h.cfg.Mode, Took: h.env.Clock.Boot() - h.start,
	}
	switch h.phase {
	case slurm.Epilog:
		r.Hook = metrics.Epilog
	case slurm.HealthCheck:
		r.Hook = metrics.HealthCheck
	}
	for i, f := range h.found {
		counted := metrics.Finding{Code: f.Code, Own: h.isOwn(i)}
		if counted.Own {
			counted.Detail = detail(f)
		}
		r.Findings = append(r.Findings, counted)
	}
	for _, c := range h.cards {
		r.Given = append(r.Given, h.countedCard(c))
	}
	return r
}

// countedCard is what this run says of one of the job's cards.
func (h *hook) countedCard(card finding.Card) metrics.GivenCard {
	id := card.Device.ID
	c := metrics.GivenCard{GPU: card.Index, UUID: id}
	if curve := h.now.Curves[id]; curve.State.AtRest() {
		c.Settled = &curve.Settled
	}
	if h.phase == slurm.Epilog && !h.again && !h.second {
		c.Left = finding.Left(h.found, id)
	}
	for _, p := range h.probes {
		if p.Device == id && h.own(p) {
			c.Probe, c.Gap = p.Result, gap(p)
		}
	}
	return c
}

// own reports a test of this very run: a start has also the word of earlier ones, or why there is none.
func (h *hook) own(p gpu.Probe) bool {
	if p.Result == gpu.ProbeSkipped {
		return probe.When(h.cfg.Probe, h.phase, h.job.Partition)
	}
	return p.At >= h.start
}

// gap is how much of the free memory a test could not have in one block, in bytes; nil where it does not tell.
func gap(p gpu.Probe) *uint64 {
	if p.Result == gpu.ProbeSkipped || p.Result == gpu.ProbeBroken || !p.Free.Known() || !p.Largest.Known() {
		return nil
	}
	bytes := p.Free.Bytes - min(p.Free.Bytes, p.Largest.Bytes)
	return &bytes
}

// isOwn reports a trouble of Bookend itself or of the driver as a whole. What policy ignores or only notes is none: at
// some sites it is how things are.
func (h *hook) isOwn(i int) bool {
	entry, _ := code.Lookup(h.found[i].Code)
	if entry.Scope != code.Own && entry.Scope != code.Driver {
		return false
	}
	if i >= len(h.verdict.Judged) { // found after the verdict
		return entry.Severity != code.Note
	}
	action := h.verdict.Judged[i].Action
	return action == config.Warn || action == config.Drain
}
