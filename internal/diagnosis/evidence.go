package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

const (
	noGPUs    = "which GPUs it had is not known"
	unweighed = "; whether that mattered cannot be told"

	// significant is the least memory, in bytes, that can have mattered. A CUDA context takes about 530 MiB (measured
	// on an H200): a process that computes on a GPU uses more, services and the driver's rounding less.
	significant = 512 << 20
	// outside is how much a process may use outside its framework's pool, for its context and its libraries' buffers.
	outside = 1 << 30
	// beyondAnyGPU is a size in bytes that no GPU has: the largest have less than 300 GiB.
	beyondAnyGPU = 1 << 40
)

// mayMatter reports an amount that is significant or unknown.
func mayMatter(f gpu.Figure) bool { return !f.Known() || f.Bytes >= significant }

// evidence is an input and what follows from it for more than one cause.
type evidence struct {
	in       Input // without messages that the job survived, and without samples if the job is spread
	messages map[record.MessageKind][]record.Message
	faults   []*OutputFault // that the output reports, most certain first
	// metFault: a fault may have led to the failure. It came before it in the output, or the kernel log has it of the
	// job's time: a GPU that served the job in spite of an earlier one did not fail it by that.
	metFault   bool
	unsearched string // what was not searched of the job's output, "" if all of it was
	// spread: the job has several nodes or components, or a message is of another machine or an old log. It may have
	// failed elsewhere, on GPUs unknown to this node.
	spread         bool
	startFailed    bool // CUDA could not start, and no allocation is known to have failed
	served         bool // a process of the job had GPU memory, so CUDA had enough address space
	addressLimited bool // the job is known to have a limit of its address space

	failures []failure // one for each message about a lack of GPU memory
	balances []failure // those of them with enough figures
	withRoom []failure // those of them that failed although enough was free
	unplaced bool      // an allocation failed on an unknown GPU of the job
	// balanced: all messages about a lack of GPU memory have a balance. One without may have had another cause.
	balanced       bool
	restKnown      bool // they also show how much memory others held
	othersRuledOut bool // others' memory caused none of the failures
	alone          bool // others held too little to matter at every failure

	held        []held       // memory that the ends found and the job could not use
	ownPIDs     map[int]bool // processes proven to be the job's
	foreignPIDs map[int]bool // processes proven not to be
	// unexplained is memory of unknown origin without which a failed allocation would have fit; 0 if there is none.
	unexplained   uint64
	unexplainedOn *record.Assigned
}

func gather(in Input) evidence {
	in.Messages, in.Kernel = lastWords(in.Messages), cmp.Or(in.Kernel, &gpu.KernelLog{Unknown: "not read"})
	e := evidence{
		in: in, messages: map[record.MessageKind][]record.Message{}, unsearched: unsearched(in), held: bothEnds(in),
		spread: in.Job.HetJobID != 0 || strings.ContainsAny(in.Job.NodeList, ",[") ||
			slices.ContainsFunc(in.Messages, in.notOurs),
		served: slices.ContainsFunc(in.Seen, func(s Sighting) bool { return s.Own && s.Bytes.Bytes > 0 }),
	}
	e.addressLimited = in.AddressSpace.Known() && in.AddressSpace.Bytes > 0 && in.AddressSpace.Bytes < record.Unlimited
	for _, m := range in.Messages {
		e.messages[m.Kind] = append(e.messages[m.Kind], m)
	}
	e.faults = faultsIn(in.Messages)
	e.metFault = afterFault(e) || slices.ContainsFunc(in.Findings, func(f record.Finding) bool {
		return f.Xid != 0 && !f.Earlier && in.blame(f, false, false).Answer == record.Yes
	})
	e.startFailed = len(e.messages[record.KindInit]) > 0 && len(e.messages[record.KindDevice]) == 0
	if e.spread { // it may have failed on another node, where PIDs are different
		e.in.Seen, e.in.Recorded, e.in.Idle = nil, nil, nil
	} else {
		e.ownPIDs, e.foreignPIDs = identified(in, e.held)
	}
	e.balance()
	return e
}

// notOurs reports whether a message is about a GPU much larger or smaller than each of the job's. MPS may show less.
func (in Input) notOurs(m record.Message) bool {
	likely := func(c record.Assigned) bool {
		room := in.capacity(c.Device.ID)
		return room == 0 || max(m.Total.Bytes, room)-min(m.Total.Bytes, room) < room/8
	}
	return m.Total.Known() && len(in.Cards) > 0 && in.Shared == "" && in.Job.MPSPercent == "" &&
		!slices.ContainsFunc(in.Cards, likely)
}

// hopeless reports whether each failure asked for more than the GPU has, whatever others held.
func (e evidence) hopeless() bool {
	fits := func(f failure) bool { return !f.broken && f.asked <= cmp.Or(e.roomFor(f), f.asked) }
	return len(e.failures) > 0 && !e.startFailed && !slices.ContainsFunc(e.failures, fits)
}

// unsampled says what contradicts unexplained memory: no sample missed, and far less in use in all of them.
func (e evidence) unsampled() string {
	peak := uint64(0)
	for _, r := range e.in.Recorded {
		peak = max(peak, r.Peak.Bytes)
	}
	if !e.in.Whole || peak == 0 || peak+significant > e.unexplained {
		return ""
	}
	return ", though no sample saw more than " + gpu.Size(peak) + " in use"
}

// lastWords keeps the messages that can have ended the job. A process survived a message about GPU memory if it wrote a
// later one to the same file. If the later one has no size, it may repeat the earlier one, so both are kept.
func lastWords(all []record.Message) (left []record.Message) {
	type process struct{ file, rank, pid int }
	reported, echoed := map[process]bool{}, map[process]bool{}
	for _, m := range slices.Backward(all) {
		if m.Kind == record.KindDevice || m.Kind == record.KindInit {
			p := process{m.File, -1, m.PID}
			if m.Rank != nil {
				p.rank = *m.Rank
			}
			if reported[p] {
				continue
			}
			reported[p] = echoed[p] || m.Kind == record.KindInit || m.Asked.Known()
			echoed[p] = true
		}
		left = append(left, m)
	}
	slices.Reverse(left)
	return left
}

func unsearched(in Input) string {
	return rules[string]{
		{in.MessagesUnknown != "", fmt.Sprintf("its output was not read (%s)", in.MessagesUnknown)},
		{in.MessagesPart != "", fmt.Sprintf("its output was read in part (%s)", in.MessagesPart)},
	}.first()
}

// identified returns the PIDs proven to be the job's, and those proven not to be.
func identified(in Input, found []held) (ours, foreign map[int]bool) {
	ours, foreign = map[int]bool{}, map[int]bool{}
	for _, s := range in.Seen {
		ours[s.PID] = ours[s.PID] || s.Own
		foreign[s.PID] = foreign[s.PID] || s.Foreign && !s.Own
	}
	for _, m := range in.Messages {
		ours[m.PID] = m.PID != 0 || ours[0]
	}
	for _, f := range in.Findings {
		if live(f) && f.Code == catalog.Orphan && f.Unknown == "" {
			ours[f.Holder.PID] = true
		}
	}
	for _, h := range found {
		if live(h.finding) && kindOf(h.finding) == record.CauseOthers {
			foreign[h.finding.Holder.PID] = true
		}
	}
	return ours, foreign
}

func live(f record.Finding) bool { return f.Holder != nil && !f.Holder.Gone }

func (e *evidence) balance() {
	for _, m := range e.messages[record.KindDevice] {
		f := e.failure(m)
		e.failures = append(e.failures, f)
		e.unplaced = e.unplaced || f.gpu == nil
		if f.balanced {
			e.balances = append(e.balances, f)
		}
	}
	e.balanced = len(e.balances) > 0 && len(e.balances) == len(e.failures)+len(e.messages[record.KindInit])
	e.restKnown, e.othersRuledOut, e.alone = e.balanced, e.balanced, e.balanced
	for _, f := range e.balances {
		// A message without a GPU must be the only one of its kind, since only the last one's figures are kept.
		placed := f.gpu != nil || f.message.Count == 1
		if !f.short() {
			e.withRoom = append(e.withRoom, f)
		}
		e.restKnown = e.restKnown && f.restKnown
		e.othersRuledOut = e.othersRuledOut && f.restKnown && !f.restMattered() && placed
		e.alone = e.alone && e.othersRuledOut && f.rest == 0
		if known := e.known(f); e.unexplained == 0 && f.restMattered() && f.rest >= known+significant {
			e.unexplained, e.unexplainedOn = f.rest-known, f.gpu
		}
	}
}

// failure is a failed allocation of GPU memory as a message reports it. If it is balanced, all of the GPU's memory is
// accounted for, in bytes: total = free + mine + rest.
type failure struct {
	message            record.Message
	gpu                *record.Assigned // nil if not certain
	balanced           bool
	asked, free, total uint64
	broken             bool // no GPU has as much memory as was requested
	capped             bool // a limit that the program set stopped it, not the GPU's memory
	// mine is the memory of the process that failed, both used and idle, as far as the message has it.
	mine uint64
	// idle is what its framework reserves without using it; rest is what others hold. Both are 0 if negligible.
	idle, rest uint64
	restKnown  bool
}

func (e evidence) failure(m record.Message) failure {
	f := failure{message: m, gpu: e.deviceOf(m), asked: m.Asked.Bytes, free: m.Free.Bytes, total: m.Total.Bytes,
		broken: m.Asked.Unknown == gpu.ImpossibleSize || m.Asked.Bytes >= beyondAnyGPU,
		mine:   max(m.InUse.Bytes, m.Allocated.Bytes+m.Idle.Bytes)}
	if !m.Total.Known() && f.gpu != nil {
		f.total = e.in.capacity(f.gpu.Device.ID)
	}
	// Rounding to blocks of 2 and 20 MiB leaves up to about 1/50 of a pool unused without fragmentation.
	if m.Idle.Known() && m.Idle.Bytes >= f.total/50 {
		f.idle = m.Idle.Bytes
	}
	f.balanced = m.Free.Known() && f.asked > 0 && f.total > 0 && f.free <= f.total
	f.capped = m.Cap > 0 && f.asked > 0 && f.mine+f.asked > m.Cap && !(m.Free.Known() && f.short())
	if !f.balanced {
		return f
	}
	used := f.total - f.free
	// vLLM checks the GPU before it allocates more than its context
	if m.Framework == record.FromVLLM && !m.InUse.Known() {
		f.mine, f.restKnown = outside, true
	}
	f.mine, f.restKnown = min(f.mine, used), f.restKnown || m.InUse.Known()
	f.rest = used - f.mine
	tells := f.restKnown || m.Allocated.Known()
	if !f.restKnown { // an unknown part of the rest is its context, and what it has outside its pool
		f.restKnown = tells && f.rest < outside+significant
		f.rest -= min(f.rest, outside)
	}
	if !tells || f.rest < significant {
		f.rest = 0
	}
	return f
}

func (f failure) short() bool    { return f.asked > f.free }
func (f failure) isCapped() bool { return f.capped }
func (f failure) isBroken() bool { return f.broken }

// poolMattered reports whether the allocation would have fit without the pool's fragmentation.
func (f failure) poolMattered() bool {
	return f.mattered(f.idle, f.rest) || f.capped && f.idle > 0 && f.asked <= f.idle
}

// restMattered reports whether it would have fit without others' memory.
func (f failure) restMattered() bool { return f.mattered(f.rest, f.idle) }

// partMattered reports whether so many bytes of what others held mattered, whatever the rest of it was.
func (f failure) partMattered(bytes uint64) bool {
	part := min(bytes, f.rest)
	return part >= significant && f.mattered(part, f.idle+f.rest-part)
}

// mattered reports whether the allocation would have fit without one part of the memory in use. If it would have fit
// only without another part too, both mattered.
func (f failure) mattered(part, other uint64) bool {
	return f.short() && part > 0 && (f.asked <= f.free+part || f.together() && f.asked > f.free+other)
}

// together reports whether it would have fit without others' memory and the pool's gaps.
func (f failure) together() bool { return f.asked <= f.free+f.idle+f.rest }

// sum returns how much memory the message lists for other processes with these PIDs.
func (f failure) sum(pids map[int]bool) (bytes uint64) {
	for _, p := range f.message.Others {
		if p.PID != f.message.PID && pids[p.PID] {
			bytes += p.Memory.Bytes
		}
	}
	return bytes
}

// known returns how much of the other memory is explained by what an end found there or by known processes.
func (e evidence) known(f failure) (bytes uint64) {
	ends := map[bool]uint64{}
	for _, h := range e.held {
		if kindOf(h.finding) != "" && f.gpu != nil && f.gpu.Device.ID == h.finding.GPU {
			ends[h.start] += h.finding.Bytes.Bytes
			bytes = max(bytes, ends[h.start])
		}
	}
	return max(bytes, e.siblings(f)+f.sum(e.foreignPIDs))
}

// siblings returns what the job's other processes held when one failed, by its message or by the recorder.
func (e evidence) siblings(f failure) (bytes uint64) {
	for _, r := range e.in.Recorded {
		if r.Together > 1 && (f.gpu == nil || f.gpu.Device.ID == r.ID) {
			bytes = max(bytes, min(f.rest, r.Own.Bytes-min(r.Own.Bytes, f.mine)))
		}
	}
	return max(bytes, f.sum(e.ownPIDs))
}

// assigned returns the job's GPU with this id, nil if it is none of the job's.
func (e evidence) assigned(id gpu.ID) *record.Assigned {
	if i := slices.IndexFunc(e.in.Cards, func(c record.Assigned) bool { return c.Device.ID == id }); i >= 0 {
		return &e.in.Cards[i]
	}
	return nil
}

// deviceOf returns the job's GPU of a message, nil if not certain: frameworks number the GPUs in CUDA_VISIBLE_DEVICES.
func (e evidence) deviceOf(m record.Message) *record.Assigned {
	if len(e.in.Cards) == 1 && !e.spread {
		return &e.in.Cards[0]
	}
	var on []gpu.ID
	for _, s := range e.in.Seen {
		if m.PID != 0 && s.PID == m.PID && s.Own && !slices.Contains(on, s.Device) {
			on = append(on, s.Device)
		}
	}
	switch {
	case e.spread || len(on) > 1:
		return nil
	case len(on) == 0:
		return e.onlyUsed(m)
	}
	return e.assigned(on[0])
}

// capacity returns the memory of a GPU that processes can use: all but the driver's own part. It is 0 if unknown.
func (in Input) capacity(id gpu.ID) uint64 {
	for _, side := range []*record.Side{in.End, in.Start} {
		r, ok := cmp.Or(side, &record.Side{}).Snapshot.Reading(id)
		if ok && r.Memory.Total.Known() {
			return r.Memory.Total.Bytes - min(r.Memory.Total.Bytes, r.Memory.Reserved.Bytes)
		}
	}
	return 0
}

// roomFor returns the memory of the GPU of a failure, 0 if unknown; on this node at most the largest GPU's.
func (e evidence) roomFor(f failure) uint64 {
	if e.spread {
		return f.total
	}
	return cmp.Or(f.total, e.roomiest())
}

// roomiest returns the capacity of the job's largest GPU.
func (e evidence) roomiest() (bytes uint64) {
	for _, c := range e.in.Cards {
		bytes = max(bytes, e.in.capacity(c.Device.ID))
	}
	return bytes
}
