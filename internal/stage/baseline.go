package stage

import (
	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// recallBaselines loads what the node's cards carry without any job. Those of another epoch are void.
func (h *hook) recallBaselines() {
	if h.store == nil {
		return
	}
	all, err := h.store.Baselines()
	h.try(err)
	h.baselines = map[gpu.ID]finding.Baseline{}
	for id, b := range all {
		if b.Epoch.Same(h.epoch) {
			h.baselines[id] = b
		}
	}
}

// learn keeps what this start showed of the cards' baselines.
func (h *hook) learn(s finding.Scene) {
	if h.store == nil || s.Shared != "" || s.Doubt != "" || !h.epoch.Same(h.epoch) { // one half known holds for nothing
		return
	}
	for _, c := range s.Cards {
		if b, news := s.Learn(c, h.epoch); news {
			h.try(h.store.PutBaseline(b))
		}
	}
}
