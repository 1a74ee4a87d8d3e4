package diagnosis

import (
	"cmp"
	"fmt"
	"slices"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// pieces judges by test allocations whether free memory is fragmented. If the messages show that less was free than was
// requested, fragmentation made no difference.
func pieces(e evidence) record.Cause {
	if len(e.balances) > 0 && len(e.balances) == len(e.failures) && len(e.withRoom) == 0 {
		f := e.balances[0]
		return on(f.gpu, no(fmt.Sprintf("only %s free, %s asked", gpu.Size(f.free), gpu.Size(f.asked))))
	}
	for _, p := range e.in.Probes {
		if p.Result != gpu.ProbeGap || p.Free.Bytes < p.Largest.Bytes+significant || fit(e.failures, p.Largest.Bytes) {
			continue
		}
		gap := fmt.Sprintf("%s free, largest block %s", gpu.Size(p.Free.Bytes), gpu.Size(p.Largest.Bytes))
		if e.unplaced {
			return on(e.assigned(p.Device), cannotTell(gap+unweighed))
		}
		return on(e.assigned(p.Device), yes(gap))
	}
	switch why := untested(e.in); {
	case len(e.withRoom) > 0:
		f := e.withRoom[0]
		return on(f.gpu, cannotTell(fmt.Sprintf("%s was free, yet %s could not be had", gpu.Size(f.free),
			gpu.Size(f.asked))))
	case why != "":
		return cannotTell(why)
	}
	return no("free memory came in one block")
}

// fit reports whether every failed allocation would have fit into a block. One of unknown size might not.
func fit(failures []failure, block uint64) bool {
	mayNot := func(f failure) bool { return !f.message.Asked.Known() || f.asked > block }
	return len(failures) > 0 && !slices.ContainsFunc(failures, mayNot)
}

// untested returns why the test allocations do not answer, or "" if every GPU has a result.
func untested(in Input) string {
	if len(in.Cards) == 0 {
		return noGPUs
	}
	for _, c := range in.Cards {
		tells := func(p gpu.Probe) bool {
			done := p.Result == gpu.ProbeOK || p.Result == gpu.ProbeGap
			return p.Device == c.Device.ID && done && p.Free.Known() && p.Largest.Known()
		}
		if !slices.ContainsFunc(in.Probes, tells) {
			return "not tested, or without a result (the probe does, at a clean end)"
		}
	}
	return ""
}

// pool judges fragmentation inside the framework's own pool.
func pool(e evidence) record.Cause {
	c := cannotTell(cmp.Or(e.unsearched, "no message in its output tells"))
	silent := false
	for _, f := range e.failures {
		if !f.balanced || !f.message.Idle.Known() {
			silent = true
			continue
		}
		idle, asked := gpu.Size(f.message.Idle.Bytes), gpu.Size(f.asked)
		if f.poolMattered() {
			text := fmt.Sprintf("%s reserved but unallocated; %s requested, %s free", idle, asked, gpu.Size(f.free))
			return on(f.gpu, yes(text))
		}
		c = on(f.gpu, no(fmt.Sprintf("%s unused, %s asked", idle, asked)))
	}
	if silent {
		return cannotTell("a message does not say what the pool kept")
	}
	return cmp.Or(notTheGPU(e), c)
}
