package serve

import (
	"fmt"

	"bookend/internal/gpu"
)

// SearchStep is how exactly a block is searched, in bytes: of a healthy idle GPU all but 2 MiB can be had in one block.
const SearchStep = 2 << 20

// leastGap: a healthy card's gap was measured as at most 3 MiB, in steps of 2 MiB.
const leastGap = 2 * SearchStep

// OutOfTime ends a search without an answer.
const OutOfTime = "no time left for the test"

// Room is a device's memory as a search meets it.
type Room interface {
	// Free says what may be asked for at most, or why nothing may any more.
	Free() (bytes uint64, no string)
	// Take takes a block and gives it back.
	Take(bytes uint64) *Outcome
	// More reports whether there is time for another attempt, Rest whether there was time to wait for a second search.
	More() bool
	Rest() bool
}

type block struct {
	bytes    uint64 // the largest that was given, 0 for none
	attempts int
	failed   *Outcome // the last "no such block", or the failure that ended the search
	broken   bool     // it was a failure
	cut      bool     // time was up before the largest was known
}

// largest looks for the largest block. It never asks for more than free: the driver would take memory from others to
// give it. All but one step comes first, and is as much as a healthy card gives; then all but two, which is what there
// is right after another client of the driver's has gone, when an attempt may take 350 ms (measured); then four times
// as much less each time; then halves of what is between. What is no gap is not looked for any further.
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

// Search searches, and again if less than free was found: others' memory, taken meanwhile, looks like a gap once.
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

// confirm says what a gap that was seen twice comes to, with the memory that is free now.
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
