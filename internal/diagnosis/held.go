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

// others judges memory of processes that are not the job's.
func others(e evidence) record.Cause {
	return cmp.Or(atEnds(e, record.CauseOthers), othersMeanwhile(e), absent(e, record.CauseOthers))
}

// leftover judges memory that is recorded as left by an earlier job.
func leftover(e evidence) record.Cause {
	return cmp.Or(atEnds(e, record.CauseLeftover), unrecorded(e), absent(e, record.CauseLeftover))
}

// unlisted judges memory that no process accounts for.
func unlisted(e evidence) record.Cause {
	return cmp.Or(atEnds(e, record.CauseUnlisted), unlistedMeanwhile(e), absent(e, record.CauseUnlisted))
}

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
	for _, f := range in.Findings {
		// what the recorder found is in Seen
		if dirty := f.Code == catalog.Dirty; !f.OnlyRecorded() && !(again && dirty) {
			add(f, dirty)
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

// isLeft reports whether memory is recorded as left by an earlier job.
func isLeft(f record.Finding) bool {
	return f.Code == catalog.Dirty && f.Owner != nil && f.Unknown == ""
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

// stocksOf sums up the findings of one kind, largest first.
func stocksOf(e evidence, n record.CauseName) (all []stock) {
	for _, h := range e.held {
		f, left, job := h.finding, isLeft(h.finding), e.in.Job.ID
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
	mattered := func(f failure) bool { return f.gpu != nil && f.restMattered() }
	for _, s := range stocks {
		if s.bytes >= significant && slices.ContainsFunc(balancesOn(e, s.gpu), mattered) {
			return on(e.assigned(s.gpu), yes(wording(s, e.in.Job)))
		}
	}
	s := stocks[0]
	c, failed := on(e.assigned(s.gpu), cannotTell(wording(s, e.in.Job))), len(balancesOn(e, s.gpu)) > 0
	switch {
	case failed && e.othersRuledOut:
		c.Answer, c.Evidence = record.No, c.Evidence+", but not decisive"
	case !failed && !e.othersRuledOut && s.bytes >= significant && (s.start || n != record.CauseUnlisted):
		c.Answer = record.Yes
	case failed, s.bytes >= significant, s.atLeast:
		c.Evidence += unweighed
	case n != record.CauseLeftover || unlooked(e.in, n) != "":
		c.Evidence += " only, as far as was seen"
	default:
		c.Answer, c.Evidence = record.No, c.Evidence+" only"
	}
	return c
}

// balancesOn returns the failures that were, or may have been, on this GPU.
func balancesOn(e evidence, id gpu.ID) []failure {
	return slices.DeleteFunc(slices.Clone(e.balances),
		func(f failure) bool { return f.gpu != nil && f.gpu.Device.ID != id })
}

// wording describes how much was found and when. It names the job that left it only if that is the same user's.
func wording(s stock, job slurm.Job) string {
	text := gpu.Size(s.bytes)
	if s.atLeast {
		text = "at least " + text
	}
	switch o := s.owners[0]; {
	case s.own:
		return text + " at the end of your job, left by your job"
	case !s.start:
		return text + " at the end of your job"
	case len(s.owners) == 1 && o != nil && o.Job == job.ID:
		return text + fmt.Sprintf(" when your job began, %sby an earlier run of this job", record.Probably(o))
	case len(s.owners) == 1 && o != nil && o.UID == job.UID && o.Job != 0:
		return text + fmt.Sprintf(" when your job began, %sby your job %d", record.Probably(o), o.Job)
	}
	return text + " when your job began"
}

// othersMeanwhile judges others by messages and samples.
func othersMeanwhile(e evidence) record.Cause {
	for _, f := range e.balances {
		if foreign := f.sum(e.foreignPIDs); f.restMattered() && foreign >= significant {
			return on(f.gpu, yes(gpu.Size(foreign)+" when it failed"))
		}
	}
	if e.unexplained > 0 {
		return on(e.unexplainedOn, cannotTell(gpu.Size(e.unexplained)+" held by something when it failed"))
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
		return !s.Own && !e.foreignPIDs[s.PID] && !e.ownPIDs[s.PID] && mayMatter(s.Bytes)
	}
	if slices.ContainsFunc(e.held, stray) || !e.othersRuledOut && slices.ContainsFunc(e.in.Seen, ownerless) {
		return cannotTell("a process was there whose owner could not be told")
	}
	return record.Cause{}
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
		switch {
		case r.Together > 0:
			return on(mine, cannotTell(text+"; it may be managed memory of your job"))
		case slices.ContainsFunc(e.failures, here):
			return on(mine, yes(text))
		}
		return on(mine, cannotTell(text+unweighed))
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

// absent answers for a cause that neither end found. What is not from before the job is ruled out only by the messages'
// figures, by a limit that kept CUDA from starting, or if every interval was recorded and the job's own use explains
// the failure.
func absent(e evidence, n record.CauseName) record.Cause {
	switch why := unlooked(e.in, n); {
	case n == record.CauseLeftover && why == "":
		return no("none on record")
	case e.alone:
		return no("none when it failed")
	case why != "":
		return cannotTell(why)
	case e.restKnown && e.unexplained == 0, stoppedByLimit(e):
		return no("none at start or end")
	case e.in.Whole && own(e).Answer == record.Yes:
		return no("none at start or end, nor in any sample between")
	}
	return cannotTell("none at start or end; what was there in between is not known")
}

// unlooked returns why the job's ends cannot answer a cause, or "" if they can. For Leftover, only the start counts.
func unlooked(in Input, n record.CauseName) string {
	unseen := func(s *record.Side) bool { return s == nil || !s.Settled(in.Cards) }
	switch {
	case len(in.Cards) == 0:
		return noGPUs
	case unseen(in.Start):
		return "its GPUs were not seen, or had not settled, at its start"
	case n != record.CauseLeftover && unseen(in.End):
		return "its GPUs were not seen, or had not settled, at its end"
	case in.Shared != "":
		return "others may use this GPU"
	}
	return ""
}
