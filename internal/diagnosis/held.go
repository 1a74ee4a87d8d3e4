package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// held is a finding about memory on one of the job's GPUs that the job could not use.
type held struct {
	record.Finding
	start bool // it was there before the job
	// Others: a live process surely not of this job; Unlisted: no living process; empty if unknown
	kind record.CauseName
	left bool // recorded as left by an earlier job
}

// bothEnds lists the memory findings of both ends. Memory from before the job counts once.
func bothEnds(in Input) (all []held) {
	add := func(f record.Finding, start bool) {
		h := held{Finding: f, start: start, left: f.Code == catalog.Dirty && start && f.Owner != nil && f.Unknown == ""}
		switch {
		case f.Code == catalog.Foreign && f.Owner != nil, f.Code == catalog.Dirty && live(f), // from before the job
			f.Unknown == "" && (f.Code == catalog.Foreign || f.Code == catalog.Stray):
			h.kind = record.CauseOthers
		case f.Unknown == "" && !live(f):
			h.kind = record.CauseUnlisted
		}
		if memory := f.Code.Traits().Memory; memory != "" && memory != catalog.OwnProcess {
			all = append(all, h)
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

type stock struct {
	gpu   gpu.ID
	start bool
	bytes uint64
	blurs bool // the real size may be larger
	left  bool // all of it is recorded as left by an earlier job
	own   bool // all of it appeared while the job ran, and only the job can have left it
	found []held
}

// stocks sums up the findings of one kind, one stock for each GPU and end, largest first.
func (j judge) stocks(n record.CauseName) []stock {
	var all []stock
	for _, h := range j.held {
		if h.kind != n && !(n == record.CauseLeftover && h.left) {
			continue
		}
		i := slices.IndexFunc(all, func(s stock) bool { return s.gpu == h.GPU && s.start == h.start })
		if i < 0 {
			i = len(all)
			all = append(all, stock{gpu: h.GPU, start: h.start, left: true, own: true})
		}
		s := &all[i]
		s.found, s.bytes, s.blurs = append(s.found, h), s.bytes+h.Bytes.Bytes, s.blurs || !h.Bytes.Known()
		s.left = s.left && h.left
		s.own = s.own && !h.start && h.Owner != nil && h.Owner.Job == j.Job.ID && j.Job.ID != 0
	}
	slices.SortStableFunc(all, func(a, b stock) int { return cmp.Compare(b.bytes, a.bytes) })
	return all
}

// found judges a cause by the ends' findings of its kind; it returns false if there are none.
func (j judge) found(n record.CauseName, leftover record.Cause) (c record.Cause, found bool) {
	stocks := j.stocks(n)
	if len(stocks) == 0 {
		return c, false
	}
	notLeft := func(s stock) bool { return !s.left }
	if c = j.weigh(n, stocks); c.Answer == record.Yes && leftover.Answer == record.Yes &&
		!slices.ContainsFunc(stocks, notLeft) {
		c.Evidence, c.With = "left by an earlier job", record.CauseLeftover
	}
	return c, true
}

func (j judge) others(leftover record.Cause) record.Cause {
	if c, ok := j.found(record.CauseOthers, leftover); ok {
		return c
	}
	if c, ok := j.meanwhile(); ok {
		return c
	}
	ownerless := func(s Sighting) bool {
		return !s.Own && !j.foreign[s.PID] && !j.ours[s.PID] && (!s.Bytes.Known() || s.Bytes.Bytes >= significant)
	}
	if slices.ContainsFunc(j.held, func(h held) bool { return h.Code == catalog.Stray }) ||
		!j.decided() && slices.ContainsFunc(j.Seen, ownerless) {
		return untold("a process was there whose owner could not be told")
	}
	return j.absent(record.CauseOthers)
}

// meanwhile judges others by messages and sightings, when neither end found any.
func (j judge) meanwhile() (record.Cause, bool) {
	for _, f := range j.failures {
		if foreign := f.sum(j.foreign); f.restMattered() && foreign >= significant {
			return on(f.card, yes(gpu.Size(foreign)+" when it failed")), true
		}
	}
	if j.strange > 0 {
		return on(j.strangeAt.card, untold(gpu.Size(j.strange)+" held by something when it failed")), true
	}
	for _, s := range j.Seen {
		if !j.foreign[s.PID] || s.Bytes.Bytes < significant || len(j.about(s.Device)) > 0 && j.decided() {
			continue
		}
		c := yes(gpu.Size(s.Bytes.Bytes) + " while your job ran" + j.clock(s.At))
		if j.unplaced() || j.decided() { // the allocation failed, or may have failed, on another GPU
			c = untold(c.Evidence + unweighed)
		}
		return on(j.mine(s.Device), c), true
	}
	return record.Cause{}, false
}

func (j judge) clock(at time.Duration) string {
	if at == 0 || j.WallStart.IsZero() || j.Start == nil || j.Start.Snapshot.At == 0 {
		return ""
	}
	return j.WallStart.Add(at - j.Start.Snapshot.At).Local().Format(", seen at 15:04:05")
}

const unweighed = "; whether that mattered cannot be told"

func (j judge) leftover() record.Cause {
	if c, ok := j.found(record.CauseLeftover, record.Cause{}); ok {
		return c
	}
	for _, h := range j.held {
		trifle := h.Bytes.Known() && h.Bytes.Bytes < significant
		if h.start && h.Code == catalog.Dirty && (!live(h.Finding) || h.Unknown != "") && !trifle && !j.alone() {
			c := untold("memory was in use before it; no record whose")
			c.Index = h.Index
			return c
		}
	}
	switch why := j.unlooked(record.CauseLeftover); {
	case why == "":
		return no("none on record")
	case j.alone():
		return no("none when it failed")
	default:
		return untold(why)
	}
}

func (j judge) unlisted(leftover record.Cause) record.Cause {
	if c, ok := j.found(record.CauseUnlisted, leftover); ok {
		return c
	}
	if j.strange > 0 {
		return untold(gpu.Size(j.strange) + " held by something when it failed")
	}
	for _, r := range j.Recorded {
		if r.Unlisted < significant || j.decided() {
			continue
		}
		text, card := gpu.Size(r.Unlisted)+" while your job ran", j.mine(r.Device)
		if r.Together > 0 {
			return on(card, untold(text+"; it may be managed memory of your job"))
		}
		here := func(m record.Message) bool { return card != nil && j.deviceOf(m) == card }
		if slices.ContainsFunc(j.said(record.KindDevice), here) {
			return on(card, yes(text))
		}
		return on(card, untold(text+unweighed))
	}
	unknown := func(h held) bool { return h.Unknown != "" && !live(h.Finding) }
	if slices.ContainsFunc(j.held, unknown) && !j.figured() {
		return untold("whether all memory had a process could not be told")
	}
	return j.absent(record.CauseUnlisted)
}

// ownLeft reports whether there is memory without a process and only the job can have left all of it.
func (j judge) ownLeft() bool {
	stocks := j.stocks(record.CauseUnlisted)
	return len(stocks) > 0 && !slices.ContainsFunc(stocks, func(s stock) bool { return !s.own })
}

// weigh decides whether memory found by the ends caused the failure: by the messages' figures, or else by its amount.
func (j judge) weigh(n record.CauseName, stocks []stock) record.Cause {
	mattered := func(f failure) bool { return f.card != nil && f.restMattered() }
	for _, s := range stocks {
		if s.bytes >= significant && slices.ContainsFunc(j.about(s.gpu), mattered) {
			return on(j.mine(s.gpu), yes(j.wording(s)))
		}
	}
	s := stocks[0]
	c, failed := on(j.mine(s.gpu), untold(j.wording(s))), len(j.about(s.gpu)) > 0
	switch {
	case failed && j.decided():
		c.Answer, c.Evidence = record.No, c.Evidence+", but not decisive"
	case !failed && !j.decided() && s.bytes >= significant && (s.start || n != record.CauseUnlisted):
		c.Answer = record.Yes
	case failed, s.bytes >= significant, s.blurs:
		c.Evidence += unweighed
	case n != record.CauseLeftover || j.unlooked(n) != "":
		c.Evidence += " only, as far as was seen"
	default:
		c.Answer, c.Evidence = record.No, c.Evidence+" only"
	}
	return c
}

func (j judge) about(id gpu.ID) []failure {
	return slices.DeleteFunc(slices.Clone(j.failures),
		func(f failure) bool { return f.card != nil && f.card.Device.ID != id })
}

// wording describes how much was found and when. It names the job that left it only if that is the same user's.
func (j judge) wording(s stock) string {
	text := gpu.Size(s.bytes)
	if s.blurs {
		text = "at least " + text
	}
	switch o := s.found[0].Owner; {
	case s.own:
		return text + " at the end of your job, left by your job"
	case !s.start:
		return text + " at the end of your job"
	case len(s.found) == 1 && o != nil && o.Job == j.Job.ID:
		return text + fmt.Sprintf(" when your job began, %sby an earlier run of this job", record.Probably(o))
	case len(s.found) == 1 && o != nil && o.UID == j.Job.UID && o.Job != 0:
		return text + fmt.Sprintf(" when your job began, %sby your job %d", record.Probably(o), o.Job)
	}
	return text + " when your job began"
}

// absent answers for a cause that neither end found. It is no only if the messages' figures rule it out, if a limit
// kept CUDA from starting, or if every interval was recorded and the job's own use explains the failure.
func (j judge) absent(n record.CauseName) record.Cause {
	switch why := j.unlooked(n); {
	case j.alone():
		return no("none when it failed")
	case why != "":
		return untold(why)
	case j.figured() && j.strange == 0, j.limited():
		return no("none at start or end")
	case j.Whole && j.own().Answer == record.Yes:
		return no("none at start or end, nor in any sample between")
	}
	return untold("none at start or end; what was there in between is not known")
}

// unlooked returns why the job's ends cannot answer a cause, or "" if they can. For Leftover, only the start counts.
func (j judge) unlooked(n record.CauseName) string {
	unseen := func(s *record.Side) bool {
		return s == nil || slices.ContainsFunc(j.Cards,
			func(c record.Assigned) bool { return !s.Curves[c.Device.ID].State.AtRest() })
	}
	switch {
	case len(j.Cards) == 0:
		return noCards
	case unseen(j.Start):
		return "its GPUs were not seen, or had not settled, at its start"
	case n != record.CauseLeftover && unseen(j.End):
		return "its GPUs were not seen, or had not settled, at its end"
	case j.Shared != "":
		return "others may use this GPU"
	}
	return ""
}

const noCards = "which GPUs it had is not known"
