package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// found answers for memory that the job could not use: by what the ends found, by what else tells, or as absent.
func found(e evidence, n record.CauseName, elsewise func(evidence) record.Cause) record.Cause {
	c := cmp.Or(atEnds(e, n), elsewise(e), absent(e, n))
	if c.Answer == record.Yes && e.hopeless() {
		c.With, c.Evidence = record.CauseOwn, c.Evidence+", but not decisive"
	}
	return c
}

func others(e evidence) record.Cause   { return found(e, record.CauseOthers, othersMeanwhile) }
func leftover(e evidence) record.Cause { return found(e, record.CauseLeftover, unrecorded) }
func unlisted(e evidence) record.Cause { return found(e, record.CauseUnlisted, unlistedMeanwhile) }

// held is a finding about memory on one of the job's GPUs that the job could not use.
type held struct {
	finding record.Finding
	start   bool // it was there before the job
}

// bothEnds lists the memory findings of both ends. Memory from before the job counts once.
func bothEnds(in Input) (all []held) {
	add := func(f record.Finding, start bool) {
		if memory := f.Code.Traits().Memory; memory != "" && memory != catalog.OwnProcess {
			all = append(all, held{f, start})
		}
	}
	for _, f := range in.StartFindings {
		add(f, true)
	}
	again := len(all) > 0
	all = append(all, byRight(in, in.Start, in.StartFindings, true)...)
	for _, f := range in.Findings {
		// what the recorder found is in Seen
		if dirty := f.Code == catalog.Dirty; !f.OnlyRecorded() && !(again && dirty) {
			add(f, dirty)
		}
	}
	return append(all, byRight(in, in.End, in.Findings, false)...)
}

// byRight lists the memory of other jobs' processes that an end saw and has no finding for, since their jobs have the
// GPU too: of a suspended job it stays there.
func byRight(in Input, side *record.Side, found []record.Finding, start bool) (all []held) {
	for _, c := range in.Cards {
		r, _ := cmp.Or(side, &record.Side{}).Snapshot.Reading(c.Device.ID)
		for _, p := range r.Processes {
			facts := side.Processes[p.PID]
			known := func(f record.Finding) bool { return f.Holder != nil && f.Holder.PID == p.PID }
			if p.Memory.Bytes >= significant && facts.Cgroup.Found() && !in.Job.Owns(facts.Cgroup) &&
				r.ProcessesUnknown == "" && !slices.ContainsFunc(found, known) {
				all = append(all, held{record.Finding{Code: catalog.Foreign, GPU: c.Device.ID, Index: &c.Index,
					Bytes: p.Memory, Holder: &record.Holder{Process: facts}}, start})
			}
		}
	}
	return all
}

// kindOf returns Others for memory of a live process that surely is not the job's, Unlisted for memory without a living
// process, and "" if neither is certain.
func kindOf(f record.Finding) record.CauseName {
	known := f.Unknown == ""
	switch {
	case f.Code == catalog.Foreign && (known || f.Owner != nil), f.Code == catalog.Stray && known,
		f.Code == catalog.Dirty && live(f): // from before the job
		return record.CauseOthers
	case known && !live(f):
		return record.CauseUnlisted
	}
	return ""
}

// atEnds judges a cause by the memory of its kind that the ends found. Like every step of the three causes, it returns
// the zero Cause if it has no answer.
func atEnds(e evidence, n record.CauseName) record.Cause {
	stocks := stocksOf(e, n)
	if len(stocks) == 0 {
		return record.Cause{}
	}
	c := weigh(e, n, stocks)
	left := !slices.ContainsFunc(stocks, func(s stock) bool { return !s.left })
	if n != record.CauseLeftover && left && c.Answer == record.Yes && leftover(e).Answer == record.Yes {
		c.Evidence, c.With = "left by an earlier job", record.CauseLeftover
	}
	return c
}

// stock is what one end found on one GPU of one kind of memory.
type stock struct {
	gpu     gpu.ID
	start   bool
	bytes   uint64
	atLeast bool            // the real size may be larger
	left    bool            // all of it is recorded as left by an earlier job
	own     bool            // all of it appeared while the job ran, and only the job can have left it
	owners  []*record.Owner // of each finding, nil if unknown
}

func stocksOf(e evidence, n record.CauseName) (all []stock) {
	for _, h := range e.held {
		f, job := h.finding, e.in.Job.ID
		left := f.Code == catalog.Dirty && f.Owner != nil && f.Unknown == ""
		if kindOf(f) != n && !(n == record.CauseLeftover && left) {
			continue
		}
		i := slices.IndexFunc(all, func(s stock) bool { return s.gpu == f.GPU && s.start == h.start })
		if i < 0 {
			i = len(all)
			all = append(all, stock{gpu: f.GPU, start: h.start, left: true, own: !h.start && job != 0})
		}
		s := &all[i]
		s.owners, s.bytes, s.atLeast = append(s.owners, f.Owner), s.bytes+f.Bytes.Bytes, s.atLeast || !f.Bytes.Known()
		s.left, s.own = s.left && left, s.own && f.Owner != nil && f.Owner.Job == job
	}
	slices.SortStableFunc(all, func(a, b stock) int { return cmp.Compare(b.bytes, a.bytes) })
	return all
}

// ownLeft reports whether there is memory without a process and only the job can have left all of it.
func ownLeft(e evidence) bool {
	stocks := stocksOf(e, record.CauseUnlisted)
	return len(stocks) > 0 && !slices.ContainsFunc(stocks, func(s stock) bool { return !s.own })
}

// weigh decides whether memory found by the ends caused the failure: by the messages' figures, or else by its amount.
func weigh(e evidence, n record.CauseName, stocks []stock) record.Cause {
	for _, s := range stocks {
		mattered := func(f failure) bool { return f.gpu != nil && f.partMattered(s.bytes) }
		if slices.ContainsFunc(balancesOn(e, s.gpu), mattered) {
			return on(e.assigned(s.gpu), yes(wording(s, e.in.Job)))
		}
	}
	s, text := stocks[0], wording(stocks[0], e.in.Job)
	failed, much := len(balancesOn(e, s.gpu)) > 0, s.bytes >= significant
	return on(e.assigned(s.gpu), rules[record.Cause]{
		{failed && e.othersRuledOut, no(text + ", but not decisive")},
		{!failed && !e.othersRuledOut && much && (s.start || n != record.CauseUnlisted), yes(text)},
		{failed || much || s.atLeast, cannotTell(text + unweighed)},
		{n != record.CauseLeftover || unlooked(e.in, n) != "", cannotTell(text + " only, as far as was seen")},
		{true, no(text + " only")},
	}.first())
}

// balancesOn returns the failures that were, or may have been, on this GPU.
func balancesOn(e evidence, id gpu.ID) []failure {
	return slices.DeleteFunc(slices.Clone(e.balances),
		func(f failure) bool { return f.gpu != nil && f.gpu.Device.ID != id })
}

// wording describes how much was found and when. It names the job that left it only if that is the same user's.
func wording(s stock, job slurm.Job) string {
	text, o := gpu.Size(s.bytes), s.owners[0]
	if s.atLeast {
		text = "at least " + text
	}
	switch known := len(s.owners) == 1 && o != nil; {
	case s.own:
		return text + " at the end of your job, left by your job"
	case !s.start:
		return text + " at the end of your job"
	case known && o.Job == job.ID && o.UID == job.UID: // ids come around
		return text + " when your job began, " + record.Probably(o) + "by an earlier run of this job"
	case known && o.UID == job.UID && o.Job != 0:
		return text + fmt.Sprintf(" when your job began, %sby your job %d", record.Probably(o), o.Job)
	}
	return text + " when your job began"
}

// othersMeanwhile judges others by messages and samples.
func othersMeanwhile(e evidence) record.Cause {
	for _, f := range e.balances {
		if foreign := f.sum(e.foreignPIDs); f.partMattered(foreign) {
			return on(f.gpu, yes(gpu.Size(foreign)+" when it failed"))
		}
	}
	if e.unexplained > 0 {
		text := gpu.Size(e.unexplained) + " held by something when it failed" + e.unsampled()
		return on(e.unexplainedOn, cannotTell(text))
	}
	for _, s := range e.in.Seen {
		ruledOut := e.othersRuledOut && len(balancesOn(e, s.Device)) > 0
		if !e.foreignPIDs[s.PID] || s.Bytes.Bytes < significant || ruledOut {
			continue
		}
		c := yes(gpu.Size(s.Bytes.Bytes) + " while your job ran" + clock(e.in, s.At))
		if e.unplaced || e.othersRuledOut { // the allocation failed, or may have failed, on another GPU
			c = cannotTell(c.Evidence + unweighed)
		}
		return on(e.assigned(s.Device), c)
	}
	stray := func(h held) bool { return h.finding.Code == catalog.Stray }
	ownerless := func(s Sighting) bool {
		return !s.Own && !e.foreignPIDs[s.PID] && !e.ownPIDs[s.PID] && mayMatter(s.Bytes) && !e.othersRuledOut
	}
	unlikely := func(s Sighting) bool { return ownerless(s) && !s.Likely }
	const text = "a process was there whose owner could not be told"
	return rules[record.Cause]{
		{slices.ContainsFunc(e.held, stray) || slices.ContainsFunc(e.in.Seen, unlikely), cannotTell(text + unweighed)},
		{slices.ContainsFunc(e.in.Seen, ownerless), cannotTell(text)},
	}.first()
}

func clock(in Input, at time.Duration) string {
	if at == 0 || in.WallStart.IsZero() || in.Start == nil || in.Start.Snapshot.At == 0 {
		return ""
	}
	return in.WallStart.Add(at - in.Start.Snapshot.At).Local().Format(", seen at 15:04:05")
}

// unlistedMeanwhile judges memory without a process by messages and samples, and by what the ends could not tell.
func unlistedMeanwhile(e evidence) record.Cause {
	if e.unexplained > 0 {
		return cannotTell(gpu.Size(e.unexplained) + " held by something when it failed")
	}
	for _, r := range e.in.Recorded {
		if r.Unlisted.Bytes < significant || e.othersRuledOut {
			continue
		}
		text, mine := gpu.Size(r.Unlisted.Bytes)+" while your job ran", e.assigned(r.ID)
		here := func(f failure) bool { return mine != nil && f.gpu == mine }
		return on(mine, rules[record.Cause]{
			{r.Together > 0, cannotTell(text + "; it may be managed memory of your job" + unweighed)},
			{slices.ContainsFunc(e.failures, here), yes(text)},
			{true, cannotTell(text + unweighed)},
		}.first())
	}
	unknown := func(h held) bool { return h.finding.Unknown != "" && !live(h.finding) }
	if slices.ContainsFunc(e.held, unknown) && !e.restKnown {
		return cannotTell("whether all memory had a process could not be told")
	}
	return record.Cause{}
}

// unrecorded answers if there was memory before the job that no record attributes.
func unrecorded(e evidence) record.Cause {
	for _, h := range e.held {
		f := h.finding
		unknown := !live(f) || f.Unknown != ""
		if f.Code == catalog.Dirty && unknown && mayMatter(f.Bytes) && !e.alone {
			return record.Cause{Answer: record.CannotTell, Index: f.Index,
				Evidence: "memory was in use before it; no record whose"}
		}
	}
	return record.Cause{}
}

// absent answers for a cause that neither end found. What is not from before the job is ruled out only by messages'
// figures, a limit that kept CUDA from starting, or the job's own use if every interval was recorded.
func absent(e evidence, n record.CauseName) record.Cause {
	why := unlooked(e.in, n)
	return rules[record.Cause]{
		{n == record.CauseLeftover && why == "", no("none on record")},
		{e.alone, no("none when it failed")},
		{why != "", cannotTell(why)},
		{e.restKnown && e.unexplained == 0 || stoppedByLimit(e), no("none at start or end")},
		{e.in.Whole && own(e).Answer == record.Yes, no("none at start or end, nor in any sample between")},
		{true, cannotTell("none at start or end; what was there in between is not known")},
	}.first()
}

// unlooked returns why the job's ends cannot answer a cause, or "" if they can. For Leftover, only the start counts.
func unlooked(in Input, n record.CauseName) string {
	unseen := func(s *record.Side) bool { return s == nil || !s.Settled(in.Cards) }
	return rules[string]{
		{len(in.Cards) == 0, noGPUs},
		{unseen(in.Start), "its GPUs were not seen, or had not settled, at its start"},
		{n != record.CauseLeftover && unseen(in.End), "its GPUs were not seen, or had not settled, at its end"},
		{in.Shared != "", "others may use this GPU"},
	}.first()
}

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
	if len(e.withRoom) > 0 {
		f := e.withRoom[0]
		text := gpu.Size(f.free) + " was free, yet " + gpu.Size(f.asked) + " could not be had"
		return on(f.gpu, rules[record.Cause]{{f.capped, no(byCap)}, {true, cannotTell(text)}}.first())
	}
	why := untested(e.in)
	return rules[record.Cause]{{why != "", cannotTell(why)}, {true, no("free memory came in one block")}}.first()
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
	var c record.Cause
	for _, f := range e.failures {
		idle, asked, free := gpu.Size(f.message.Idle.Bytes), gpu.Size(f.asked), gpu.Size(f.free)
		c = worse(c, rules[record.Cause]{
			{!f.balanced || !f.message.Idle.Known(), cannotTell("a message does not say what the pool kept")},
			{f.poolMattered(), on(f.gpu, yes(idle+" reserved but unallocated; "+asked+" requested, "+free+" free"))},
			{true, on(f.gpu, no(idle+" unused, "+asked+" asked"))},
		}.first())
	}
	return cmp.Or(c, notTheGPU(e), cannotTell(cmp.Or(e.unsearched, "no message in its output tells")))
}
