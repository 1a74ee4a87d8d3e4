package diagnosis

import (
	"fmt"

	"bookend/internal/gpu"
	"bookend/internal/oom"
)

// pieces judges by the test allocation whether free memory can be had in one block. Where a message shows that less was
// free than asked, it made no difference.
func (j judge) pieces() Cause {
	c := Cause{Name: Pieces, Answer: No}
	enough := false
	for _, a := range j.accounts {
		if !a.short() {
			enough = true
			c = j.at(c, a)
			c.Evidence = fmt.Sprintf("%s was free, yet %s could not be had", Size(a.free), Size(a.asked))
		}
	}
	if len(j.accounts) > 0 && !enough && len(j.accounts) == len(j.said(oom.Device)) {
		a := j.accounts[0]
		c.Evidence = fmt.Sprintf("only %s free, %s asked", Size(a.free), Size(a.asked))
		return j.at(c, a)
	}
	for _, p := range j.Probes {
		if p.Result == gpu.ProbeGap && j.missing(p) >= significant && !j.fitsBlock(p) {
			c.Answer, c.Index = Yes, j.index(p.Device)
			c.Evidence = fmt.Sprintf("%s free, largest block %s (tested%s)", Size(p.Free.Bytes),
				Size(p.Largest.Bytes), j.clock(" at ", p.At))
			if j.unplaced() {
				c.Answer, c.Evidence = Unknown, c.Evidence+"; on which GPU it failed is not known"
			}
			return c
		}
	}
	if text, why := j.untested(); text != "" || enough {
		if c.Answer, c.Detail = Unknown, why; c.Evidence == "" {
			c.Evidence = text
		}
		return c
	}
	p := j.Probes[0]
	for _, q := range j.Probes {
		if q.Largest.Bytes < p.Largest.Bytes {
			p = q
		}
	}
	c.Index = j.index(p.Device)
	c.Evidence = fmt.Sprintf("%s in one block", pair(p.Largest.Bytes, " of ", p.Free.Bytes))
	return c
}

// missing is how much of the free memory the largest block lacked.
func (j judge) missing(p gpu.Probe) uint64 {
	if !p.Free.Known() || !p.Largest.Known() {
		return 0
	}
	return p.Free.Bytes - min(p.Free.Bytes, p.Largest.Bytes)
}

// fitsBlock reports that every allocation that failed, as far as known, would have fit into the largest block.
func (j judge) fitsBlock(p gpu.Probe) bool {
	all := j.said(oom.Device)
	for _, m := range all {
		if !m.Asked.Known() || m.Asked.Bytes > p.Largest.Bytes {
			return false
		}
	}
	return len(all) > 0
}

// untested says that the test allocations do not tell, and for an admin why not; empty where every card's told.
func (j judge) untested() (text, why string) {
	if len(j.Cards) == 0 {
		return "which GPUs it had is not known", ""
	}
	told := map[gpu.ID]bool{}
	text = "not tested (the probe does, at a clean end)"
	for _, p := range j.Probes {
		switch {
		case (p.Result == gpu.ProbeOK || p.Result == gpu.ProbeGap) && p.Free.Known() && p.Largest.Known():
			told[p.Device] = true
		case p.Result == gpu.ProbeSkipped:
			why = p.Why
		default:
			text, why = "a test allocation failed", p.Why
		}
	}
	for _, c := range j.Cards {
		if !told[c.Device.ID] {
			return text, why
		}
	}
	return "", ""
}

// share judges whether the job had less than a card. That is so by design: alone it explains nothing.
func (j judge) share(d Diagnosis) Cause {
	c := Cause{Name: Share, Answer: No, Evidence: "it had the whole GPU"}
	if len(j.Cards) > 1 {
		c.Evidence = "it had whole GPUs"
	}
	for _, card := range j.Cards {
		if card.Device.Parent == "" {
			continue
		}
		c.Answer, c.Index = Yes, &card.Index
		c.Evidence = "a part of a GPU (MIG)"
		if room, known := j.capacity(card.Device.ID); known {
			c.Evidence += " with " + Size(room)
		}
		return with(c, d)
	}
	switch {
	case j.Shared != "":
		c.Answer, c.Evidence = Yes, "others may use the same GPU: "+j.Shared
		return with(c, d)
	case j.Job.MPSPercent != "":
		c.Answer, c.Evidence = Yes, "CUDA MPS shares the GPU"
		return with(c, d)
	case len(j.Cards) == 0:
		c.Answer, c.Evidence = Unknown, "which GPUs it had is not known"
	case j.SharedUnknown != "":
		c.Answer, c.Evidence = Unknown, j.SharedUnknown
	}
	return c
}

// with makes a cause a companion of the first that explains more.
func with(c Cause, d Diagnosis) Cause {
	for _, n := range rank {
		if o := d.Cause(n); o.Answer == Yes && o.With == "" {
			c.With = n
			return c
		}
	}
	return c
}
