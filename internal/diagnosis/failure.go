package diagnosis

import (
	"slices"

	"bookend/internal/finding"
	"bookend/internal/oom"
)

const (
	// significant is from how many bytes on what something holds can have mattered. A CUDA context takes about 530 MiB
	// (measured on an H200): whoever does real work on a card has more, services and the driver's rounding have less.
	significant = 512 << 20
	// outside is what a process may well have beside its framework's pool: its context and its libraries' buffers.
	outside = 1 << 30
)

// failure is the balance of a card at the moment an allocation failed, as the message itself gives it, in bytes:
// total = free + this process's + rest.
type failure struct {
	oom.Message
	card               *finding.Card // nil where that is not certain
	asked, free, total uint64
	// mine is this process's, live and idle.
	mine uint64
	// idle is what its framework keeps and does not use, rest what others hold: 0 where too little to matter.
	idle, rest uint64
	restKnown  bool
}

// failure makes the balance of a message, if it says enough.
func (j judge) failure(m oom.Message) (failure, bool) {
	f := failure{Message: m, card: j.card(m), asked: m.Asked.Bytes, free: m.Free.Bytes, total: m.Total.Bytes}
	if !m.Total.Known() && f.card != nil {
		f.total = j.capacity(f.card.Device.ID)
	}
	if m.Kind != oom.Device || !m.Free.Known() || f.asked == 0 || f.total == 0 || f.free > f.total {
		return f, false
	}
	if m.Idle.Known() && m.Idle.Bytes >= f.total/idleShare {
		f.idle = m.Idle.Bytes
	}
	f.split()
	return f, true
}

// idleShare: a pool's rounding to blocks of 2 and 20 MiB leaves up to about one part in 50 unused, without being in
// pieces.
const idleShare = 50

// split tells what is in use on the card into this process's and the rest.
func (f *failure) split() {
	used := f.total - f.free
	switch {
	case f.InUse.Known():
		f.mine, f.restKnown = min(f.InUse.Bytes, used), true
	case f.Framework == oom.VLLM: // it looks at the card before it takes anything but its context
		f.mine, f.restKnown = min(used, outside), true
	default:
		f.mine = min(f.Allocated.Bytes+f.Idle.Bytes, used)
		// without the process's own total nobody can tell its context from others' memory, unless there is too little
		// of both
		f.restKnown = f.Allocated.Known() && used-f.mine < outside+significant
		return
	}
	if used-f.mine >= significant {
		f.rest = used - f.mine
	}
}

// short: less was free than the allocation needed.
func (f failure) short() bool { return f.asked > f.free }

// ownNeed: even with all that others and the pool's gaps held, the allocation would not have fit.
func (f failure) ownNeed() bool {
	return f.short() && f.restKnown && f.asked > f.free+f.idle+f.rest
}

// poolMattered: the allocation would have fit, had the pool not been in pieces. Where it takes the pool's gaps and
// others' memory together, both mattered.
func (f failure) poolMattered() bool {
	return f.short() && f.idle > 0 && (f.asked <= f.free+f.idle || f.together() && f.asked > f.free+f.rest)
}

// restMattered: the allocation would have fit, had nobody else been on the card.
func (f failure) restMattered() bool {
	return f.short() && f.rest > 0 && (f.asked <= f.free+f.rest || f.together() && f.asked > f.free+f.idle)
}

func (f failure) together() bool { return f.asked <= f.free+f.idle+f.rest }

// every: what failed for want of a card's memory has a balance each, and each is so. Where one has none, it may have
// been for something else.
func (j judge) every(is func(failure) bool) bool {
	isNot := func(f failure) bool { return !is(f) }
	return len(j.failures) > 0 && len(j.failures) == len(j.said(oom.Device))+len(j.said(oom.Init)) &&
		!slices.ContainsFunc(j.failures, isNot)
}

// figured: by all of them it is known how much others held.
func (j judge) figured() bool { return j.every(func(f failure) bool { return f.restKnown }) }

// decided: each has a cause that others' memory is no part of. Of several messages without a card only the last one's
// is known.
func (j judge) decided() bool {
	return j.every(func(f failure) bool { return f.restKnown && !f.restMattered() && (f.card != nil || f.Count == 1) })
}

// alone: nobody else held enough at any of them to matter.
func (j judge) alone() bool {
	return j.decided() && j.every(func(f failure) bool { return f.rest == 0 })
}

// ranOut: all that was said is about memory of cards, and each had too little free.
func (j judge) ranOut() bool {
	return j.every(failure.short) && len(j.failures) == len(j.Messages)
}

// sum adds up the processes that a message lists beside its own.
func (f failure) sum(is map[int]bool) (bytes uint64) {
	for _, p := range f.Others {
		if p.PID != f.PID && is[p.PID] {
			bytes += p.Memory.Bytes
		}
	}
	return bytes
}

// known is how much of what else was in use is accounted for: by what an end found on that card, or by processes of
// which it is known whose they are.
func (j judge) known(f failure) (bytes uint64) {
	if j.spread() { // another node counts its own
		return 0
	}
	for _, s := range j.stocks(func(h held) bool { return isOthers(h) || isUnlisted(h) }) {
		if f.card != nil && f.card.Device.ID == s.gpu {
			bytes = max(bytes, s.bytes)
		}
	}
	return max(bytes, j.oursBeside(f)+f.sum(j.foreign))
}

// oursBeside is what other processes of the job held beside the one that failed: as the message lists them, or as the
// recorder saw.
func (j judge) oursBeside(f failure) (bytes uint64) {
	for _, r := range j.Recorded {
		if r.Together > 1 && (f.card == nil || f.card.Device.ID == r.Device) {
			bytes = max(bytes, min(f.rest, r.Own-min(r.Own, f.mine)))
		}
	}
	return max(bytes, f.sum(j.ours))
}
