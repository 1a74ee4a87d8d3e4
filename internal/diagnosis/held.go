package diagnosis

import (
	"cmp"
	"fmt"
	"slices"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
)

// held is something that one end of the job found on one of its cards.
type held struct {
	finding.Finding
	start bool // it was there before the job
}

// bothEnds lists what both ends found on the cards. What was there before the job counts once.
func bothEnds(in Input) (all []held) {
	// memory on the card that a job lacks, if it is not what it left itself
	lacks := func(c code.Code) bool { return c.Traits().Memory != "" && c.Traits().Memory != code.OwnProcess }
	for _, f := range in.StartFindings {
		if lacks(f.Code) {
			all = append(all, held{f, true})
		}
	}
	again := len(all) > 0
	for _, f := range in.Findings {
		if f.Owner != nil && f.Owner.Level == finding.Recorded { // of no end: Seen has it
			continue
		}
		if lacks(f.Code) && !(again && f.Code == code.Dirty) {
			all = append(all, held{f, f.Code == code.Dirty})
		}
	}
	return all
}

// isOthers: a live process that is surely not this job's. Whatever is there before the job is not.
func isOthers(h held) bool {
	switch h.Code {
	case code.Foreign:
		return h.Unknown == "" || h.Owner != nil
	case code.Stray:
		return h.Unknown == ""
	}
	return h.Code == code.Dirty && live(h.Finding)
}

// isLeftover: on record as an earlier job's.
func isLeftover(h held) bool {
	return h.Code == code.Dirty && h.start && h.Owner != nil && h.Unknown == ""
}

// isUnlisted: memory in use with no living process to it.
func isUnlisted(h held) bool { return h.Unknown == "" && !live(h.Finding) }

// stock is what one end found of one kind on one card.
type stock struct {
	gpu   gpu.ID
	start bool
	bytes uint64
	blurs bool // the true figure may be larger
	found []held
}

// all: everything in them is so.
func all(stocks []stock, is func(held) bool) bool {
	return !slices.ContainsFunc(stocks, func(s stock) bool {
		return slices.ContainsFunc(s.found, func(h held) bool { return !is(h) })
	})
}

// stocks gathers what is of a kind: one stock a card and end, the largest first.
func (j judge) stocks(is func(held) bool) []stock {
	var all []stock
	for _, h := range j.held {
		if !is(h) {
			continue
		}
		i := slices.IndexFunc(all, func(s stock) bool { return s.gpu == h.GPU && s.start == h.start })
		if i < 0 {
			i = len(all)
			all = append(all, stock{gpu: h.GPU, start: h.start})
		}
		all[i].found = append(all[i].found, h)
		all[i].bytes += h.Bytes.Bytes
		all[i].blurs = all[i].blurs || !h.Bytes.Known()
	}
	slices.SortStableFunc(all, func(a, b stock) int { return cmp.Compare(b.bytes, a.bytes) })
	return all
}

func (j judge) others(leftover Cause) Cause {
	if stocks := j.stocks(isOthers); len(stocks) > 0 {
		c := j.weigh(Others, stocks)
		if c.Answer == Yes && leftover.Answer == Yes && all(stocks, isLeftover) {
			c.Evidence, c.With = "the same: the earlier job's process still lives", Leftover
		}
		return c
	}
	if c, ok := j.meanwhile(); ok {
		return c
	}
	ownerless := func(s Sighting) bool {
		return !s.Own && !j.foreign[s.PID] && !j.ours[s.PID] && (!s.Bytes.Known() || s.Bytes.Bytes >= significant)
	}
	if slices.ContainsFunc(j.held, func(h held) bool { return h.Code == code.Stray }) ||
		!j.decided() && slices.ContainsFunc(j.Seen, ownerless) {
		return untold("a process was there whose owner could not be told")
	}
	return j.absent(Others)
}

// meanwhile is what the messages and sightings know of others that neither end found.
func (j judge) meanwhile() (Cause, bool) {
	for _, f := range j.failures {
		if foreign := f.sum(j.foreign); f.restMattered() && foreign >= significant && !j.spread() {
			return yes(Size(foreign) + " when it failed").on(f.card), true
		}
	}
	if j.strange > 0 {
		return untold(Size(j.strange) + " held by something when it failed").on(j.strangeAt.card), true
	}
	for _, s := range j.Seen {
		if !j.foreign[s.PID] || s.Bytes.Bytes < significant || len(j.about(s.Device)) > 0 && j.decided() {
			continue
		}
		c := yes(Size(s.Bytes.Bytes) + " while your job ran" + j.clock(", seen at ", s.At))
		if c.Detail = fmt.Sprintf("PID %d of job %d", s.PID, s.Owner.ID); !s.Owner.Found() {
			c.Detail = fmt.Sprintf("PID %d of another user", s.PID)
		}
		if j.unplaced() {
			c.Answer, c.Evidence = Unknown, c.Evidence+"; "+unplaced
		}
		return c.on(j.mine(s.Device)), true
	}
	return Cause{}, false
}

const unplaced = "on which GPU it failed is not known"

func (j judge) leftover() Cause {
	if stocks := j.stocks(isLeftover); len(stocks) > 0 {
		return j.weigh(Leftover, stocks)
	}
	for _, h := range j.held {
		trifle := h.Bytes.Known() && h.Bytes.Bytes < significant
		if h.start && h.Code == code.Dirty && (!live(h.Finding) || h.Unknown != "") && !trifle && !j.alone() {
			amount := "an unknown amount"
			if h.Bytes.Known() {
				amount = Size(h.Bytes.Bytes)
			}
			c := untold(amount + " was there before it; no record whose")
			c.Index = h.Index
			return c
		}
	}
	switch why := j.unlooked(Leftover); {
	case why == "" && len(j.stocks(isOthers)) > 0:
		return no("none on record")
	case why == "":
		return no("GPU clean at your start")
	case j.alone():
		return no("nothing else was in use when it failed")
	default:
		return untold(why)
	}
}

func (j judge) unlisted(leftover Cause) Cause {
	if stocks := j.stocks(isUnlisted); len(stocks) > 0 {
		c := j.weigh(Unlisted, stocks)
		switch {
		case c.Answer == Yes && leftover.Answer == Yes && all(stocks, isLeftover):
			c.Evidence, c.With = "the same: no process is listed for it", Leftover
		case c.Answer == Yes && j.ownLeft():
			c.Evidence += ", left by your job"
		}
		return c
	}
	if j.strange > 0 {
		return untold(Size(j.strange) + " held by something when it failed")
	}
	for _, r := range j.Recorded {
		if r.Unlisted >= significant && !j.decided() {
			text := Size(r.Unlisted) + " while your job ran" + j.clock(", at ", r.UnlistedAt)
			failedThere := func(m oom.Message) bool {
				card := j.card(m)
				return card != nil && card.Device.ID == r.Device
			}
			if slices.ContainsFunc(j.said(oom.Device), failedThere) {
				return yes(text).on(j.mine(r.Device))
			}
			return untold(text + "; whether that mattered cannot be told").on(j.mine(r.Device))
		}
	}
	for _, h := range j.held {
		if h.Unknown != "" && !live(h.Finding) && !j.figured() {
			return untold("whether all memory had a process could not be told")
		}
	}
	return j.absent(Unlisted)
}

// ownLeft reports memory without a process that came while the job ran and that nobody but the job can have left.
func (j judge) ownLeft() bool {
	stocks := j.stocks(isUnlisted)
	own := func(h held) bool { return !h.start && h.Owner != nil && h.Owner.Job == j.Job.ID && j.Job.ID != 0 }
	return len(stocks) > 0 && all(stocks, own)
}

// weigh decides whether what was found mattered when it failed, as far as messages tell. Where none does, it is by how
// much it was.
func (j judge) weigh(n Name, stocks []stock) Cause {
	s := stocks[0]
	for _, each := range stocks {
		if slices.ContainsFunc(j.about(each.gpu), func(f failure) bool {
			return f.card != nil && f.restMattered() && each.bytes >= significant
		}) {
			return yes(j.wording(each)).on(j.mine(each.gpu))
		}
	}
	c := untold(j.wording(s)).on(j.mine(s.gpu))
	failed, why := len(j.about(s.gpu)) > 0, j.unlooked(n)
	switch {
	case failed && j.decided():
		c.Answer, c.Evidence = No, c.Evidence+", but not decisive"
	case failed && j.unplaced():
		c.Evidence += "; " + unplaced
	case failed:
		c.Evidence += "; whether that mattered cannot be told"
	case s.bytes >= significant && (s.start || n != Unlisted):
		c.Answer = Yes
	case s.bytes >= significant:
		c.Evidence += "; not known since when"
	case s.blurs:
		c.Evidence = "how much it held is unknown"
	case why != "":
		c.Evidence += " only; " + why
	case n != Leftover:
		c.Evidence += " only" + j.between()
	default:
		c.Answer, c.Evidence = No, c.Evidence+" only"
	}
	return c
}

// about returns the failures that speak of a card, or may.
func (j judge) about(id gpu.ID) []failure {
	return slices.DeleteFunc(slices.Clone(j.failures),
		func(f failure) bool { return f.card != nil && f.card.Device.ID != id })
}

// wording says how much was seen when, and since when, as far as the owner may know.
func (j judge) wording(s stock) string {
	text := Size(s.bytes)
	if s.blurs {
		text = "at least " + text
	}
	if !s.start {
		return text + " at the end of your job"
	}
	text += " when your job began"
	if h := s.found[0]; len(s.found) == 1 {
		if live(h.Finding) {
			text += j.clock(", since ", h.Holder.Start)
		}
		switch o := h.Owner; {
		case o == nil || o.UID != j.Job.UID || o.Job == 0:
		case o.Job == j.Job.ID:
			text += fmt.Sprintf(", %sby an earlier run of this job", Probably(o))
		default:
			text += fmt.Sprintf(", %sby your job %d", Probably(o), o.Job)
		}
	}
	return text
}

// Probably stands before what is said of an owner: only a cgroup or a sighting is certain.
func Probably(o *finding.Owner) string {
	if o.Level.Weaker(finding.BySighting) {
		return "probably "
	}
	return ""
}

// absent answers for something that neither end found: no, only where the messages leave no room for it at the failure,
// or where memory of the card was not what the job failed for.
func (j judge) absent(n Name) Cause {
	switch why := j.unlooked(n); {
	case j.alone() && why == "":
		return no("none at start, end or failure")
	case j.alone():
		return no("none when it failed")
	case why != "":
		return untold(why)
	case j.figured() && j.strange == 0, j.startless() && j.addressSpace() != "":
		return no("none at start or end")
	case j.Whole && j.own().Answer == Yes:
		return no("none at start or end" + j.between())
	default:
		return untold("none at start or end" + j.between())
	}
}

// between says how often the GPUs were sampled between the job's two ends: between samples anything may come and go.
func (j judge) between() string {
	if j.Samples == 0 {
		return "; not sampled between (the recorder would)"
	}
	return ", nor in " + samples(j.Samples) + " between"
}

func samples(n int) string {
	if n == 1 {
		return "one sample"
	}
	return fmt.Sprintf("%d samples", n)
}

// unlooked says why the job's ends tell nothing of a cause; empty where they do. What an earlier job left its start
// tells alone.
func (j judge) unlooked(n Name) string {
	why := j.unseen(j.Start, "start", "prolog")
	if why == "" && n != Leftover {
		why = j.unseen(j.End, "end", "epilog")
	}
	if why == "" && j.Shared != "" {
		why = "others may use this GPU"
	}
	return why
}

// unseen says why an end tells nothing of what was on the cards; empty where every card was seen at rest.
func (j judge) unseen(s *finding.Side, end, hook string) string {
	if s == nil {
		return fmt.Sprintf("no one looked at your job's %s (the %s does)", end, hook)
	}
	for _, c := range j.Cards {
		if !s.Curves[c.Device.ID].State.AtRest() {
			return fmt.Sprintf("GPU %d could not be judged at its %s", c.Index, end)
		}
	}
	if len(j.Cards) == 0 {
		return noCards
	}
	return ""
}

const noCards = "which GPUs it had is not known"
