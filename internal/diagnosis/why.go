package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
)

// Why judges every cause. A yes applied and was enough to matter; a framework's own figures at the failure decide.
func Why(in Input) Diagnosis {
	j := newJudge(in)
	d := Diagnosis{}
	for _, p := range j.peaks[:min(len(j.peaks), MaxPeaks)] {
		d.Peaks = append(d.Peaks, p.Accounted)
	}
	leftover := j.leftover()
	for _, one := range []struct {
		name  Name
		cause Cause
	}{
		{Others, j.others(leftover)}, {Leftover, leftover}, {Unlisted, j.unlisted(leftover)}, {Pieces, j.pieces()},
		{Pool, j.pool()}, {Fault, j.fault()}, {Own, j.own()}, {Processes, j.processes()}, {Limits, j.limits()},
	} {
		one.cause.Name = one.name
		d.Causes = append(d.Causes, j.elsewhere(one.cause))
	}
	d.Causes = append(d.Causes, j.share(d))
	if d.Reason = j.asked(d); d.Reason != "" {
		d.Headline, d.Try = j.headline(d), j.try(d)
	}
	return d
}

type judge struct {
	Input
	held     []held
	failures []failure // of the messages that say enough
	ours     map[int]bool
	foreign  map[int]bool
	peaks    []peak // of this job's processes, by accounting
	started  bool   // a process of the job was seen with memory of a card, so CUDA had the address space that it needs
	// strange is what something unknown held when an allocation failed that would have fit without it, 0 for nothing.
	strange   uint64
	strangeAt failure
}

func newJudge(in Input) judge {
	j := judge{Input: in, ours: map[int]bool{}, foreign: map[int]bool{}}
	j.Messages, j.held = lastWords(in.Messages), bothEnds(in)
	j.peaks = j.accounted()
	j.started = len(j.peaks) > 0 && j.peaks[0].Peak.Bytes > 0 ||
		slices.ContainsFunc(j.Seen, func(s Sighting) bool { return s.Own && s.Bytes.Bytes > 0 })
	if j.spread() { // it may have failed on another node, which counts its own processes
		j.Seen, j.Recorded = nil, nil
	} else {
		j.sort()
	}
	for _, m := range j.Messages {
		if f, ok := j.failure(m); ok {
			j.failures = append(j.failures, f)
		}
	}
	for _, f := range slices.Backward(j.failures) {
		if known := j.known(f); f.restMattered() && f.rest >= known+significant {
			j.strange, j.strangeAt = f.rest-known, f
		}
	}
	return j
}

// lastWords leaves of what was said what can have ended the job: a process survived what it says about a card's memory
// if it says more later in the same file. If that names no size, it may be the echo of what it said before.
func lastWords(all []oom.Message) (left []oom.Message) {
	type process struct{ file, rank, pid int }
	told, echoed := map[process]bool{}, map[process]bool{}
	for _, m := range slices.Backward(all) {
		if m.Kind == oom.Device || m.Kind == oom.Init {
			p := process{m.File, -1, m.PID}
			if m.Rank != nil {
				p.rank = *m.Rank
			}
			if told[p] {
				continue
			}
			told[p] = echoed[p] || m.Kind == oom.Init || m.Asked.Known()
			echoed[p] = true
		}
		left = append(left, m)
	}
	slices.Reverse(left)
	return left
}

// sort fills ours and foreign with the PIDs that are proven to be the job's, and not to be.
func (j judge) sort() {
	for _, s := range j.Seen {
		if s.Own {
			j.ours[s.PID] = true
		} else if s.Foreign {
			j.foreign[s.PID] = true
		}
	}
	for _, m := range j.Messages {
		if m.PID != 0 {
			j.ours[m.PID] = true
		}
	}
	for _, f := range j.Findings {
		if f.Code == code.Orphan && live(f) && f.Unknown == "" {
			j.ours[f.Holder.PID] = true
		}
	}
	for _, h := range j.held {
		if live(h.Finding) && h.kind == Others {
			j.foreign[h.Holder.PID] = true
		}
	}
}

func live(f finding.Finding) bool { return f.Holder != nil && !f.Holder.Gone }

func (j judge) said(k oom.Kind) []oom.Message {
	return slices.DeleteFunc(slices.Clone(j.Messages), func(m oom.Message) bool { return m.Kind != k })
}

// unsearched says what of the job's output was not looked through; empty where all of it was.
func (j judge) unsearched() string {
	switch {
	case j.MessagesUnknown != "":
		return fmt.Sprintf("its output was not read (%s)", j.MessagesUnknown)
	case j.MessagesPart != "":
		return fmt.Sprintf("its output was read in part (%s)", j.MessagesPart)
	}
	return ""
}

func (j judge) mine(id gpu.ID) *finding.Card {
	if i := slices.IndexFunc(j.Cards, func(c finding.Card) bool { return c.Device.ID == id }); i >= 0 {
		return &j.Cards[i]
	}
	return nil
}

// capacity is what processes can have of a card: its size without the driver's own part; 0 for unknown.
func (j judge) capacity(id gpu.ID) uint64 {
	for _, side := range []*finding.Side{j.End, j.Start} {
		if side == nil {
			continue
		}
		if r, ok := side.Snapshot.Reading(id); ok && r.Memory.Total.Known() {
			return r.Memory.Total.Bytes - min(r.Memory.Total.Bytes, r.Memory.Reserved.Bytes)
		}
	}
	return 0
}

func (j judge) roomiest() (bytes uint64) {
	for _, c := range j.Cards {
		bytes = max(bytes, j.capacity(c.Device.ID))
	}
	return bytes
}

// spread reports a job of several nodes or components: it may have failed elsewhere, on GPUs not seen here.
func (j judge) spread() bool { return j.Job.HetJobID != 0 || strings.ContainsAny(j.Job.NodeList, ",[") }

// elsewhere takes back what is known of this node alone, where the job may have failed on another.
func (j judge) elsewhere(c Cause) Cause {
	switch {
	case !j.spread(), c.Answer == Unknown, c.Name == Pool, c.Name == Own, c.Answer == Yes && c.Name == Fault,
		c.Answer == Yes && c.Name == Limits:
		return c
	}
	c.Answer, c.Evidence = Unknown, c.Evidence+"; known of "+j.Job.Node+" alone"
	return c
}

func (j judge) sightedOn(pid int) map[gpu.ID]bool {
	on := map[gpu.ID]bool{}
	for _, s := range j.Seen {
		if pid != 0 && s.PID == pid && s.Own {
			on[s.Device] = true
		}
	}
	return on
}

// card is the job's GPU of a message, nil if not certain: a framework counts those in CUDA_VISIBLE_DEVICES.
func (j judge) card(m oom.Message) *finding.Card {
	if j.spread() {
		return nil
	}
	on := j.sightedOn(m.PID)
	for i, c := range j.Cards {
		if len(on) == 1 && on[c.Device.ID] || len(j.Cards) == 1 {
			return &j.Cards[i]
		}
	}
	return nil
}

// unplaced: some allocation failed on a card of the job that is not known.
func (j judge) unplaced() bool {
	return slices.ContainsFunc(j.said(oom.Device), func(m oom.Message) bool { return j.card(m) == nil })
}

// startless reports messages that speak of a program that could not even start.
func (j judge) startless() bool {
	return len(j.said(oom.Init)) > 0 && len(j.said(oom.Device)) == 0
}

func (j judge) limited() bool { return j.startless() && j.addressSpace() != "" }

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

func (j judge) failure(m oom.Message) (failure, bool) {
	f := failure{Message: m, card: j.card(m), asked: m.Asked.Bytes, free: m.Free.Bytes, total: m.Total.Bytes}
	if !m.Total.Known() && f.card != nil {
		f.total = j.capacity(f.card.Device.ID)
	}
	if m.Kind != oom.Device || !m.Free.Known() || f.asked == 0 || f.total == 0 || f.free > f.total {
		return f, false
	}
	// a pool's rounding to blocks of 2 and 20 MiB leaves up to about one part in 50 unused, without being in pieces
	if m.Idle.Known() && m.Idle.Bytes >= f.total/50 {
		f.idle = m.Idle.Bytes
	}
	used := f.total - f.free
	switch {
	case m.InUse.Known():
		f.mine, f.restKnown = min(m.InUse.Bytes, used), true
	case m.Framework == oom.VLLM: // it looks at the card before it takes anything but its context
		f.mine, f.restKnown = min(used, outside), true
	default: // nobody can tell its context from others' memory, unless there is too little of both
		f.mine = min(m.Allocated.Bytes+m.Idle.Bytes, used)
		f.restKnown = m.Allocated.Known() && used-f.mine < outside+significant
		return f, true
	}
	if used-f.mine >= significant {
		f.rest = used - f.mine
	}
	return f, true
}

// short: less was free than the allocation needed.
func (f failure) short() bool { return f.asked > f.free }

// poolMattered: the allocation would have fit, had the pool not been in pieces. Where it takes the pool's gaps and
// others' memory together, both mattered.
func (f failure) poolMattered() bool {
	return f.short() && f.idle > 0 && (f.asked <= f.free+f.idle || f.together() && f.asked > f.free+f.rest)
}

// restMattered: the allocation would have fit, had nobody else been on the card.
func (f failure) restMattered() bool {
	return f.short() && f.rest > 0 && (f.asked <= f.free+f.rest || f.together() && f.asked > f.free+f.idle)
}

// together: it would have fit without all that others and the pool's gaps held.
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

// decided: each has a cause that others' memory is no part of. Of messages without a GPU only the last one's is known.
func (j judge) decided() bool {
	return j.every(func(f failure) bool { return f.restKnown && !f.restMattered() && (f.card != nil || f.Count == 1) })
}

// alone: nobody else held enough at any of them to matter.
func (j judge) alone() bool {
	return j.decided() && j.every(func(f failure) bool { return f.rest == 0 })
}

func (f failure) sum(is map[int]bool) (bytes uint64) {
	for _, p := range f.Others {
		if p.PID != f.PID && is[p.PID] {
			bytes += p.Memory.Bytes
		}
	}
	return bytes
}

// known is how much of what else was in use is accounted for by what an end found there, or by known processes.
func (j judge) known(f failure) (bytes uint64) {
	ends := map[bool]uint64{}
	for _, h := range j.held {
		if h.kind != "" && f.card != nil && f.card.Device.ID == h.GPU {
			ends[h.start] += h.Bytes.Bytes
			bytes = max(bytes, ends[h.start])
		}
	}
	return max(bytes, j.oursBeside(f)+f.sum(j.foreign))
}

// oursBeside is what other processes of the job held next to the one that failed, by the message or the recorder.
func (j judge) oursBeside(f failure) (bytes uint64) {
	for _, r := range j.Recorded {
		if r.Together > 1 && (f.card == nil || f.card.Device.ID == r.Device) {
			bytes = max(bytes, min(f.rest, r.Own-min(r.Own, f.mine)))
		}
	}
	return max(bytes, f.sum(j.ours))
}
