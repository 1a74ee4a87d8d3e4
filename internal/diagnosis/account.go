package diagnosis

import (
	"slices"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
)

const (
	// significant is from how many bytes on what something holds can have mattered. A CUDA context takes about 530 MiB
	// (measured on an H200): whoever does real work on a card has more, services and the driver's rounding have less.
	significant = 512 << 20
	// outside is what a process may well have beside its framework's pool: its context and its libraries' buffers.
	outside = 1 << 30
)

// context is what the driver takes for each process.
var context = gpu.NVIDIA.Context

// account is the balance of a card at the moment an allocation failed, as the message itself gives it, in bytes:
// total = free + this process's + rest.
type account struct {
	oom.Message
	card               *finding.Card // nil where that is not certain
	away               bool          // it may be another node's
	asked, free, total uint64
	// mine is this process's, live and idle.
	mine uint64
	// idle is what its framework keeps and does not use, rest what others hold: 0 where too little to matter.
	idle, rest uint64
	restKnown  bool
}

// account makes the balance of a message, if it says enough.
func (j judge) account(m oom.Message) (account, bool) {
	a := account{Message: m, card: j.card(m), away: !j.here(m), asked: m.Asked.Bytes, free: m.Free.Bytes}
	if m.Kind != oom.Device || !m.Asked.Known() || !m.Free.Known() || a.asked == 0 {
		return a, false
	}
	switch {
	case m.Total.Known():
		a.total = m.Total.Bytes
	case a.card != nil:
		a.total, _ = j.capacity(a.card.Device.ID)
	}
	if a.total == 0 || a.free > a.total {
		return a, false
	}
	if m.Idle.Known() && m.Idle.Bytes >= a.total/idleShare {
		a.idle = m.Idle.Bytes
	}
	a.split()
	return a, true
}

// idleShare: a pool's rounding to blocks of 2 and 20 MiB leaves up to about one part in 50 unused, without being in
// pieces.
const idleShare = 50

// split tells what is in use on the card into this process's and the rest.
func (a *account) split() {
	used := a.total - a.free
	if a.InUse.Known() {
		a.mine, a.restKnown = min(a.InUse.Bytes, used), true
		if rest := used - a.mine; rest >= significant {
			a.rest = rest
		}
		return
	}
	if a.Framework == oom.VLLM { // it looks at the card before it takes anything but its context
		a.mine, a.restKnown = min(used, outside), true
		if rest := used - a.mine; rest >= significant {
			a.rest = rest
		}
		return
	}
	if !a.Allocated.Known() {
		return
	}
	a.mine = a.Allocated.Bytes
	if a.Idle.Known() {
		a.mine += a.Idle.Bytes
	}
	a.mine = min(a.mine, used)
	// without the process's own total nobody can tell its context from others' memory, unless there is too little of
	// both
	a.restKnown = used-a.mine < outside+significant
}

// short: less was free than the allocation needed.
func (a account) short() bool { return a.asked > a.free }

// ownNeed: even with all that others and the pool's gaps held, the allocation would not have fit.
func (a account) ownNeed() bool {
	return a.short() && a.restKnown && a.asked > a.free+a.idle+a.rest
}

// poolMattered: the allocation would have fit, had the pool not been in pieces. Where it takes the pool's gaps and
// others' memory together, both mattered.
func (a account) poolMattered() bool {
	return a.short() && a.idle > 0 && (a.asked <= a.free+a.idle || a.asked <= a.free+a.idle+a.rest && !a.restAlone())
}

// restMattered: the allocation would have fit, had nobody else been on the card.
func (a account) restMattered() bool {
	return a.short() && a.rest > 0 && (a.restAlone() || a.asked <= a.free+a.idle+a.rest && a.asked > a.free+a.idle)
}

func (a account) restAlone() bool { return a.asked <= a.free+a.rest }

// balanced: every message about a card's memory has a balance. Where one has none, it may have been for something else.
func (j judge) balanced() bool {
	return len(j.accounts) > 0 && len(j.accounts) == len(j.said(oom.Device))+len(j.said(oom.Init))
}

// figured: by all of them it is known how much others held.
func (j judge) figured() bool {
	return j.balanced() && !slices.ContainsFunc(j.accounts, func(a account) bool { return !a.restKnown })
}

// ranOut reports that all that was said has a balance, and by each the card itself had too little free.
func (j judge) ranOut() bool {
	for _, a := range j.accounts {
		if !a.short() {
			return false
		}
	}
	return len(j.accounts) > 0 && len(j.accounts) == len(j.Messages)
}
