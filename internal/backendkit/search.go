package backendkit

import (
	"fmt"

	"bookend/internal/gpu"
)

// SearchStep is the precision of a search, in bytes: all but 2 MiB of a healthy idle GPU can be had in one block.
const SearchStep = 2 << 20

// leastGap is the smallest gap that counts: a healthy GPU's was measured as at most 3 MiB, in steps of 2 MiB.
const leastGap = 2 * SearchStep

// OutOfTime is the reason for a search without an answer.
const OutOfTime = "no time left for the test"

// Room is a device's memory as a search uses it.
type Room interface {
	// Free returns how much may be requested at most, or why nothing may be requested any more.
	Free() (bytes uint64, no string)
	// Take allocates a block and releases it.
	Take(bytes uint64) *Outcome
	// More reports whether there is time for another attempt. Rest waits before a second search, if time allows.
	More() bool
	Rest() bool
}

type block struct {
	bytes    uint64 // the largest that was allocated, 0 for none
	attempts int
	failed   *Outcome // the last "no such block", or the failure that ended the search
	broken   bool     // failed is a failure
	cut      bool     // the time was up before the largest was known
}

// largest searches for the largest block. It never requests more than free: to give that, the driver would take memory
// from others. It first requests all but one step, as much as a healthy GPU gives; then all but two, which is free
// right after another client of the driver has gone, when an attempt may take 350 ms (measured); then it leaves out
// four times as much each time, and finally halves what is in between. It stops when the rest is no gap.
func largest(m Room, free, step, gap uint64) block {
	var b block
	units := free / step
	low, high := uint64(0), units+1 // low was given, high cannot be
	for less := uint64(1); high-low > 1; {
		next := (low + high) / 2
		if low == 0 && less < units {
			next = max(next, units-less)
			less *= min(2*less, 4) // 1, 2, 8, 32
		}
		if !m.More() {
			b.cut = true
			break
		}
		b.attempts++
		switch failed := m.Take(next * step); {
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

// Search searches, and again if it found less than free: memory that others take meanwhile looks like a gap once.
func Search(m Room, step, gap uint64, p *gpu.Probe) {
	gap = max(gap, leastGap, 2*step)
	for pass := 1; ; pass++ {
		free, no := m.Free()
		if no != "" {
			Skip(p, no)
			return
		}
		b := largest(m, free, step, gap)
		p.Attempts += b.attempts
		p.Free, p.Largest = gpu.Bytes(free), gpu.Bytes(b.bytes)
		switch {
		case b.broken:
			p.Largest = gpu.Unknown("the search broke off")
			Fail(p, *b.failed)
		case free-b.bytes < gap:
			p.Result = gpu.ProbeOK
		case b.cut:
			Skip(p, fmt.Sprintf("%s: of %d MiB free, a block of %d MiB was given so far", OutOfTime, free>>20,
				b.bytes>>20))
		case pass == 1 && m.Rest():
			continue
		case pass == 1:
			Skip(p, fmt.Sprintf("%s a second time: of %d MiB free, the largest block was %d MiB", OutOfTime, free>>20,
				b.bytes>>20))
		default:
			confirm(m, b, gap, p)
		}
		return
	}
}

// confirm decides what a gap that was seen twice means, by the memory that is free now.
func confirm(m Room, b block, gap uint64, p *gpu.Probe) {
	now, no := m.Free()
	switch {
	case no != "":
		Skip(p, no)
	case now < b.bytes+gap:
		Skip(p, fmt.Sprintf("somebody took memory meanwhile: %d MiB were free, then %d MiB", p.Free.Bytes>>20, now>>20))
	case b.bytes == 0:
		Fail(p, *b.failed)
		p.Result = gpu.ProbeBlocked
	default:
		p.Result = gpu.ProbeGap
	}
}
