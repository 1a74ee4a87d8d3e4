package allocation

import (
	"fmt"

	"bookend/internal/gpu"
)

// searchStep is the precision of a search, in bytes: all but 2 MiB of a healthy idle GPU can be had in one block.
const searchStep = 2 << 20

// leastGap is the smallest gap that counts: a healthy GPU's was measured as at most 3 MiB, in steps of 2 MiB.
const leastGap = 2 * searchStep

// outOfTime is the reason for a search without an answer.
const outOfTime = "no time left for the test"

// room is a device's memory as a search uses it.
type room interface {
	// free returns how much may be requested at most, or why nothing may be requested any more.
	free() (bytes uint64, no string)
	// take allocates a block and releases it.
	take(bytes uint64) *outcome
	// more reports whether there is time for another attempt. rest waits before a second search, if time allows.
	more() bool
	rest() bool
}

type block struct {
	bytes    uint64 // the largest that was allocated, 0 for none
	attempts int
	failed   *outcome // the last "no such block", or the failure that ended the search
	broken   bool     // failed is a failure
	cut      bool     // the time was up before the largest was known
}

// largest searches for the largest block. It never requests more than free: to give that, the driver would take memory
// from others. It first requests all but one step, as much as a healthy GPU gives; then all but two, which is free
// right after another client of the driver has gone, when an attempt may take 350 ms (measured); then it leaves out
// four times as much each time, and finally halves what is in between. It stops when the rest is no gap.
func largest(m room, free, step, gap uint64) block {
	var b block
	units := free / step
	low, high := uint64(0), units+1 // low was given, high cannot be
	for less := uint64(1); high-low > 1; {
		next := (low + high) / 2
		if low == 0 && less < units {
			next = max(next, units-less)
			less *= min(2*less, 4) // 1, 2, 8, 32
		}
		if !m.more() {
			b.cut = true
			break
		}
		b.attempts++
		switch failed := m.take(next * step); {
		case failed == nil:
			low = next
		case failed.full():
			high, b.failed = next, failed
		default:
			b.failed, b.broken = failed, true
		}
		if b.broken || low > 0 && free-low*step < gap {
			break
		}
	}
	b.bytes = low * step
	return b
}

// search searches, and again if it found less than free: memory that others take meanwhile looks like a gap once.
func search(m room, step, gap uint64, p *gpu.Probe) {
	gap = max(gap, leastGap, 2*step)
	for pass := 1; ; pass++ {
		free, no := m.free()
		if no != "" {
			skip(p, no)
			return
		}
		b := largest(m, free, step, gap)
		p.Attempts += b.attempts
		p.Free, p.Largest = gpu.Bytes(free), gpu.Bytes(b.bytes)
		switch {
		case b.broken:
			p.Largest = gpu.Unknown("the search broke off")
			fail(p, *b.failed)
		case free-b.bytes < gap:
			p.Result = gpu.ProbeOK
		case b.cut:
			skip(p, fmt.Sprintf("%s: of %d MiB free, a block of %d MiB was given so far", outOfTime, free>>20,
				b.bytes>>20))
		case pass == 1 && m.rest():
			continue
		case pass == 1:
			skip(p, fmt.Sprintf("%s a second time: of %d MiB free, the largest block was %d MiB", outOfTime, free>>20,
				b.bytes>>20))
		default:
			confirm(m, b, gap, p)
		}
		return
	}
}

// confirm decides what a gap that was seen twice means, by the memory that is free now.
func confirm(m room, b block, gap uint64, p *gpu.Probe) {
	now, no := m.free()
	switch {
	case no != "":
		skip(p, no)
	case now < b.bytes+gap:
		skip(p, fmt.Sprintf("somebody took memory meanwhile: %d MiB were free, then %d MiB", p.Free.Bytes>>20, now>>20))
	case b.bytes == 0:
		fail(p, *b.failed)
		p.Result = gpu.ProbeBlocked
	default:
		p.Result = gpu.ProbeGap
	}
}
