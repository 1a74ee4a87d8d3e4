package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Why judges every cause. Yes means that it applied and was enough to matter; figures in the job's messages decide.
func Why(in Input) record.Diagnosis {
	j := newJudge(in)
	d := record.Diagnosis{}
	leftover := j.leftover()
	for _, one := range []struct {
		name  record.CauseName
		cause record.Cause
	}{
		{record.CauseOthers, j.others(leftover)}, {record.CauseLeftover, leftover},
		{record.CauseUnlisted, j.unlisted(leftover)}, {record.CausePieces, j.pieces()},
		{record.CausePool, j.pool()}, {record.CauseFault, j.fault()}, {record.CauseOwn, j.own()},
		{record.CauseProcesses, j.processes()}, {record.CauseLimits, j.limits()},
	} {
		one.cause.Name = one.name
		d.Causes = append(d.Causes, j.elsewhere(one.cause))
	}
	d.Causes = append(d.Causes, j.share(d))
	d.Reason = j.asked(d)
	if d.Reason != "" {
		d.Headline, d.Try = j.headline(d), j.try(d)
	}
	return d
}

type judge struct {
	Input
	held     []held
	failures []failure // of messages with enough figures
	ours     map[int]bool
	foreign  map[int]bool
	started  bool // a process of the job had GPU memory, so CUDA had enough address space
	// strange is memory of unknown origin without which a failed allocation would have fit; 0 if there is none.
	strange   uint64
	strangeAt failure
}

func newJudge(in Input) judge {
	j := judge{Input: in, ours: map[int]bool{}, foreign: map[int]bool{}}
	j.Messages, j.held = lastWords(in.Messages), bothEnds(in)
	j.started = slices.ContainsFunc(j.Seen, func(s Sighting) bool { return s.Own && s.Bytes.Bytes > 0 })
	if j.spread() { // it may have failed on another node, where PIDs are different
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

// lastWords keeps the messages that can have ended the job. A process survived a message about GPU memory if it wrote a
// later one to the same file. If the later one has no size, it may repeat the earlier one, so both are kept.
func lastWords(all []record.Message) (left []record.Message) {
	type process struct{ file, rank, pid int }
	told, echoed := map[process]bool{}, map[process]bool{}
	for _, m := range slices.Backward(all) {
		if m.Kind == record.KindDevice || m.Kind == record.KindInit {
			p := process{m.File, -1, m.PID}
			if m.Rank != nil {
				p.rank = *m.Rank
			}
			if told[p] {
				continue
			}
			told[p] = echoed[p] || m.Kind == record.KindInit || m.Asked.Known()
			echoed[p] = true
		}
		left = append(left, m)
	}
	slices.Reverse(left)
	return left
}

// sort fills ours with the PIDs proven to be the job's, and foreign with those proven not to be.
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
		if f.Code == catalog.Orphan && live(f) && f.Unknown == "" {
			j.ours[f.Holder.PID] = true
		}
	}
	for _, h := range j.held {
		if live(h.Finding) && h.kind == record.CauseOthers {
			j.foreign[h.Holder.PID] = true
		}
	}
}

func live(f record.Finding) bool { return f.Holder != nil && !f.Holder.Gone }

func (j judge) said(k record.MessageKind) []record.Message {
	return slices.DeleteFunc(slices.Clone(j.Messages), func(m record.Message) bool { return m.Kind != k })
}

// unsearched returns what was not searched of the job's output, or "" if all of it was.
func (j judge) unsearched() string {
	switch {
	case j.MessagesUnknown != "":
		return fmt.Sprintf("its output was not read (%s)", j.MessagesUnknown)
	case j.MessagesPart != "":
		return fmt.Sprintf("its output was read in part (%s)", j.MessagesPart)
	}
	return ""
}

func (j judge) mine(id gpu.ID) *record.Assigned {
	if i := slices.IndexFunc(j.Cards, func(c record.Assigned) bool { return c.Device.ID == id }); i >= 0 {
		return &j.Cards[i]
	}
	return nil
}

// capacity returns the memory of a GPU that processes can use: all but the driver's own part. It is 0 if unknown.
func (j judge) capacity(id gpu.ID) uint64 {
	for _, side := range []*record.Side{j.End, j.Start} {
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

// spread reports a job with several nodes or components. It may have failed elsewhere, on GPUs unknown to this node.
func (j judge) spread() bool { return j.Job.HetJobID != 0 || strings.ContainsAny(j.Job.NodeList, ",[") }

// elsewhere withdraws answers that are known for this node only if the job may have failed on another node.
func (j judge) elsewhere(c record.Cause) record.Cause {
	switch {
	case !j.spread(), c.Answer == record.CannotTell, c.Name == record.CausePool, c.Name == record.CauseOwn,
		c.Answer == record.Yes && c.Name == record.CauseFault,
		c.Answer == record.Yes && c.Name == record.CauseLimits:
		return c
	}
	c.Answer, c.Evidence = record.CannotTell, c.Evidence+"; known of "+j.Job.Node+" alone"
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

// deviceOf returns the job's GPU of a message, nil if not certain: frameworks number the GPUs in CUDA_VISIBLE_DEVICES.
func (j judge) deviceOf(m record.Message) *record.Assigned {
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

// unplaced reports whether an allocation failed on an unknown GPU of the job.
func (j judge) unplaced() bool {
	return slices.ContainsFunc(j.said(record.KindDevice), func(m record.Message) bool { return j.deviceOf(m) == nil })
}

// startless reports whether CUDA could not start and no allocation is known to have failed.
func (j judge) startless() bool {
	return len(j.said(record.KindInit)) > 0 && len(j.said(record.KindDevice)) == 0
}

func (j judge) limited() bool { return j.startless() && j.addressSpace() != "" }

const (
	// significant is the least memory, in bytes, that can have mattered. A CUDA context takes about 530 MiB (measured
	// on an H200): a process that computes on a GPU uses more, services and the driver's rounding less.
	significant = 512 << 20
	// outside is how much a process may use outside its framework's pool, for its context and its libraries' buffers.
	outside = 1 << 30
)

// failure is the memory balance of a GPU when an allocation failed, in bytes, as the message reports it: total = free +
// this process's + rest.
type failure struct {
	record.Message
	card               *record.Assigned // nil if not certain
	asked, free, total uint64
	// mine is the memory of this process, both used and idle.
	mine uint64
	// idle is what its framework reserves without using it; rest is what others hold. Both are 0 if negligible.
	idle, rest uint64
	restKnown  bool
}

func (j judge) failure(m record.Message) (failure, bool) {
	f := failure{Message: m, card: j.deviceOf(m), asked: m.Asked.Bytes, free: m.Free.Bytes, total: m.Total.Bytes}
	if !m.Total.Known() && f.card != nil {
		f.total = j.capacity(f.card.Device.ID)
	}
	if m.Kind != record.KindDevice || !m.Free.Known() || f.asked == 0 || f.total == 0 || f.free > f.total {
		return f, false
	}
	// Rounding to blocks of 2 and 20 MiB leaves up to about 1/50 of a pool unused without fragmentation.
	if m.Idle.Known() && m.Idle.Bytes >= f.total/50 {
		f.idle = m.Idle.Bytes
	}
	used := f.total - f.free
	switch {
	case m.InUse.Known():
		f.mine, f.restKnown = min(m.InUse.Bytes, used), true
	case m.Framework == record.FromVLLM: // vLLM checks the GPU before it allocates anything but its context
		f.mine, f.restKnown = min(used, outside), true
	default: // its context cannot be told from others' memory, unless both are small
		f.mine = min(m.Allocated.Bytes+m.Idle.Bytes, used)
		f.restKnown = m.Allocated.Known() && used-f.mine < outside+significant
		return f, true
	}
	if used-f.mine >= significant {
		f.rest = used - f.mine
	}
	return f, true
}

func (f failure) short() bool { return f.asked > f.free }

// poolMattered reports whether the allocation would have fit without the pool's fragmentation. If it needs both the
// pool's gaps and others' memory, both mattered.
func (f failure) poolMattered() bool {
	return f.short() && f.idle > 0 && (f.asked <= f.free+f.idle || f.together() && f.asked > f.free+f.rest)
}

// restMattered reports whether it would have fit without others' memory, or without that and the pool's gaps together.
func (f failure) restMattered() bool {
	return f.short() && f.rest > 0 && (f.asked <= f.free+f.rest || f.together() && f.asked > f.free+f.idle)
}

// together reports whether it would have fit without others' memory and the pool's gaps.
func (f failure) together() bool { return f.asked <= f.free+f.idle+f.rest }

// every reports whether each message about a lack of GPU memory has a balance and all balances satisfy is. A message
// without a balance may have had another cause.
func (j judge) every(is func(failure) bool) bool {
	isNot := func(f failure) bool { return !is(f) }
	return len(j.failures) > 0 && len(j.failures) == len(j.said(record.KindDevice))+len(j.said(record.KindInit)) &&
		!slices.ContainsFunc(j.failures, isNot)
}

// figured reports whether all messages show how much memory others held.
func (j judge) figured() bool { return j.every(func(f failure) bool { return f.restKnown }) }

// decided reports whether others' memory caused none of the failures. A message without a GPU must be the only one of
// its kind, since only the last one's figures are kept.
func (j judge) decided() bool {
	return j.every(func(f failure) bool { return f.restKnown && !f.restMattered() && (f.card != nil || f.Count == 1) })
}

// alone reports whether others held too little to matter at every failure.
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

// known returns how much of the other memory is explained by what an end found there or by known processes.
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

// oursBeside returns what the job's other processes held when one failed, by its message or by the recorder.
func (j judge) oursBeside(f failure) (bytes uint64) {
	for _, r := range j.Recorded {
		if r.Together > 1 && (f.card == nil || f.card.Device.ID == r.Device) {
			bytes = max(bytes, min(f.rest, r.Own-min(r.Own, f.mine)))
		}
	}
	return max(bytes, f.sum(j.ours))
}
