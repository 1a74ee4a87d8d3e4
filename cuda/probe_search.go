package main

import (
	"fmt"

	"bookend/internal/gpu"
)

// searchStep is how exactly a block is looked for, unless the driver deals in larger pieces: of a healthy idle card all
// but 2 MiB can be had in one block.
const searchStep = 2 << 20

// mostAttempts bound a search: 28 find the largest block among 512 GiB in steps of 2 MiB.
const mostAttempts = 32

// leastGap: a healthy card's gap was measured as at most 3 MiB, in steps of 2 MiB.
const leastGap = 2 * searchStep

// outOfTime ends a search without an answer.
const outOfTime = "no time left for the test"

// memory is a device's memory as a search meets it.
type memory interface {
	// free says what may be asked for at most, or why nothing may any more.
	free() (bytes uint64, no string)
	// take takes a block and gives it back.
	take(bytes uint64) *outcome
	// full tells "no such block" from a failure.
	full(*outcome) bool
	// more reports whether there is time for another attempt, rest whether there was time to wait for a second search.
	more() bool
	rest() bool
}

// block is what one search found.
type block struct {
	bytes    uint64 // the largest that was given, 0 for none
	attempts int
	failed   *outcome // the last "no such block", or the failure that ended the search
	broken   bool     // it was a failure
	cut      bool     // time or attempts were used up before the largest was known
}

// largest looks for the largest block. It never asks for more than free: the driver would take memory from others to
// give it. All but one step comes first, and is as much as a healthy card gives; then all but two, which is what there
// is right after another client of the driver's has gone, when an attempt may take 350 ms (measured); then four times
// as much less each time; then halves of what is between. What is no gap is not looked for any further.
func largest(m memory, free, step, gap uint64) block {
	var b block
	units := free / step
	low, high := uint64(0), units+1 // low was given, high cannot be
	for less := uint64(1); high-low > 1; {
		next := (low + high) / 2
		if low == 0 && less < units {
			next = max(next, units-less)
			less *= min(2*less, 4) // 1, 2, 8, 32
		}
		if !m.more() || b.attempts == mostAttempts {
			b.cut = true
			break
		}
		b.attempts++
		switch failed := m.take(next * step); {
		case failed == nil:
			low = next
		case m.full(failed):
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

// examine searches, and a second time where less than free was found: what another process gives up or takes meanwhile
// looks like a gap once. It fills what the searches say of the device.
func examine(m memory, step, gap uint64, p *gpu.Probe) {
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

// confirm says what a gap that was seen twice comes to, with the memory that is free now.
func confirm(m memory, b block, gap uint64, p *gpu.Probe) {
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

func skip(p *gpu.Probe, why string) { p.Result, p.Why = gpu.ProbeSkipped, bounded(why) }

// fail is a driver that said no, or a card that takes nobody in.
func fail(p *gpu.Probe, o outcome) {
	p.Result, p.Why, p.Error = gpu.ProbeBroken, o.words(), o.explain()
	if o.code == cudaDeviceUnavailable {
		p.Result = gpu.ProbeBlocked
	}
}
