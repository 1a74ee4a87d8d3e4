package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/oom"
)

// pieces judges by the test allocation whether free memory can be had in one block. Where a message shows that less was
// free than asked, it made no difference.
func (j judge) pieces() Cause {
	c := no("")
	for _, f := range j.failures {
		if c = c.on(f.card); !f.short() {
			c.Answer = Unknown
			c.Evidence = fmt.Sprintf("%s was free, yet %s could not be had", Size(f.free), Size(f.asked))
		} else if c.Evidence == "" {
			c.Evidence = fmt.Sprintf("only %s free, %s asked", Size(f.free), Size(f.asked))
		}
	}
	if len(j.failures) > 0 && len(j.failures) == len(j.said(oom.Device)) && c.Answer == No {
		return c
	}
	for _, p := range j.Probes {
		if p.Result != gpu.ProbeGap || p.Free.Bytes < p.Largest.Bytes+significant || j.fits(p.Largest.Bytes) {
			continue
		}
		gap := yes(fmt.Sprintf("%s free, largest block %s (tested%s)", Size(p.Free.Bytes), Size(p.Largest.Bytes),
			j.clock(" at ", p.At)))
		if j.unplaced() {
			gap = untold(gap.Evidence + "; " + unplaced)
		}
		return gap.on(j.mine(p.Device))
	}
	if c.Answer == Unknown {
		return c
	}
	if why := j.untested(); why != "" {
		return untold(why)
	}
	return no("free memory came in one block")
}

// fits reports that every allocation that failed, as far as known, would have fit into a block.
func (j judge) fits(block uint64) bool {
	all := j.said(oom.Device)
	mayNot := func(m oom.Message) bool { return !m.Asked.Known() || m.Asked.Bytes > block }
	return len(all) > 0 && !slices.ContainsFunc(all, mayNot)
}

// untested says that the test allocations do not tell; empty where every card's told.
func (j judge) untested() string {
	if len(j.Cards) == 0 {
		return noCards
	}
	told, why := map[gpu.ID]bool{}, "not tested (the probe does, at a clean end)"
	for _, p := range j.Probes {
		switch {
		case (p.Result == gpu.ProbeOK || p.Result == gpu.ProbeGap) && p.Free.Known() && p.Largest.Known():
			told[p.Device] = true
		case p.Result != gpu.ProbeSkipped:
			why = "a test allocation failed"
		}
	}
	if slices.ContainsFunc(j.Cards, func(c finding.Card) bool { return !told[c.Device.ID] }) {
		return why
	}
	return ""
}

// share judges whether the job had less than a card. That is so by design: alone it explains nothing.
func (j judge) share(d Diagnosis) Cause {
	c := j.shared()
	c.Name = Share
	for _, n := range rank {
		if o := d.Cause(n); c.Answer == Yes && o.Answer == Yes && o.With == "" && c.With == "" {
			c.With = n // it is a companion of the first that explains more
		}
	}
	return c
}

func (j judge) shared() Cause {
	for _, card := range j.Cards {
		if card.Device.Parent == "" {
			continue
		}
		text := "a part of a GPU (MIG or partition)"
		if room := j.capacity(card.Device.ID); room > 0 {
			text += " with " + Size(room)
		}
		return yes(text).on(&card)
	}
	switch {
	case j.Shared != "":
		return yes("others may use the same GPU: " + j.Shared)
	case j.Job.MPSPercent != "":
		return yes("CUDA MPS shares the GPU")
	case len(j.Cards) == 0:
		return untold(noCards)
	case j.SharedUnknown != "":
		return untold(j.SharedUnknown)
	}
	return no("it had the whole GPU")
}

// fault judges the driver's and the card's condition.
func (j judge) fault() Cause {
	best := no("")
	for _, f := range j.Findings {
		best = worse(best, j.blame(f, false))
	}
	for _, f := range j.StartFindings {
		best = worse(best, j.blame(f, true))
	}
	if best.Answer == No {
		best = j.well(best)
	}
	return best
}

// blame judges one finding of an end; its evidence is empty where it speaks of no fault.
func (j judge) blame(f finding.Finding, start bool) Cause {
	e := f.Code.Traits()
	c := yes(e.Fault)
	if c.Index = f.Index; f.Code == code.XidFatal && f.Xid != 0 {
		c.Evidence += fmt.Sprintf(" (Xid %d)", f.Xid)
	}
	// what hung or broke before the job began may have been well since, and CUDA that served the job had a driver
	doubtful := start && (f.Code == code.Stuck || f.Code == code.Broken) || f.Unknown != "" ||
		e.Doubtful && len(f.Doubts) > 0 || health.Disputed(f) ||
		f.Code == code.NoDriver && len(j.failures) > 0
	switch {
	case e.Silence != "" && (e.Fault == "" || doubtful):
		c.Answer, c.Evidence = Unknown, e.Silence
		if start && (f.Code == code.Slow || f.Code == code.Unread) { // later it was read
			return no("")
		}
	case e.Fault != "" && doubtful:
		c.Answer, c.Evidence = Unknown, "not certain: "+c.Evidence
	case e.Fault != "":
	case f.Code == code.Xid && f.Unknown == "" && !start:
		c.Answer, c.Evidence = No, "the driver reported a program's error, not the GPU's"
	default:
		return no("")
	}
	if start {
		c.Evidence = "when your job began: " + c.Evidence
	}
	return c
}

// well answers where no finding speaks of a fault: no, if all that can be read was.
func (j judge) well(c Cause) Cause {
	met, unread := len(j.said(oom.Fault)) > 0, j.unread()
	why := ""
	switch {
	case j.Kernel != nil && j.Kernel.Mismatch != "": // any of the node's programs may have brought its own library
		why = "a program on this node had a library of another version than the driver"
	case j.fatal():
		why = "the driver reported a fault of a GPU; whether of your job's cannot be told"
	case unread != "" && met:
		why = "your program met a GPU error; " + unread
	case unread != "":
		why = unread
	case met && j.untested() != "":
		why = "your program met a GPU error; CUDA was not tested after it"
	case c.Evidence == "" && met:
		return no("your program met a GPU error, but GPU and driver are well")
	case c.Evidence == "":
		return no("none in driver and kernel log")
	default:
		return c
	}
	c.Answer, c.Evidence = Unknown, why
	return c
}

// fatal: the kernel's log has a fault that no finding tells of, and that may be of one of the job's cards.
func (j judge) fatal() bool {
	if j.Kernel == nil {
		return false
	}
	return slices.ContainsFunc(j.Kernel.Xids, func(x gpu.Xid) bool {
		mayBeOn := func(c finding.Card) bool { return c.Device.BusID == "" || c.Device.BusID == x.BusID }
		row, _ := health.XidRow(x.Code)
		return row.Code == code.XidFatal && (len(j.Cards) == 0 || slices.ContainsFunc(j.Cards, mayBeOn))
	})
}

// unread says what of the node's condition was not read; empty where all of it was.
func (j judge) unread() string {
	if len(j.Cards) == 0 {
		return noCards
	}
	read := map[gpu.ID]bool{}
	for _, h := range j.Health {
		read[h.Device] = len(h.Facts) > 0
	}
	for _, c := range j.Cards {
		if j.HealthUnknown == "" && (read[c.Device.ID] || c.Device.Parent != "" && read[c.Device.Parent]) {
			continue
		}
		return strings.TrimSuffix("GPU's condition not read: "+j.HealthUnknown, ": ")
	}
	return j.unreadLog()
}

func (j judge) unreadLog() string {
	switch k := j.Kernel; {
	case k == nil:
		return "kernel log not read"
	case k.Unknown != "":
		return "kernel log not read: " + k.Unknown
	case k.Lost:
		return "part of the kernel log was overwritten"
	}
	return ""
}
