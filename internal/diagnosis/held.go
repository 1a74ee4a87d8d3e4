package diagnosis

import (
	"fmt"
	"slices"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// held is something that one end of the job found on one of its cards.
type held struct {
	finding.Finding
	start bool // it was there before the job
}

// held lists what both ends found on the cards. What was there before the job counts once.
func (j judge) held() []held {
	var all []held
	for _, f := range j.StartFindings {
		if onCard(f.Code) {
			all = append(all, held{f, true})
		}
	}
	again := len(all) > 0
	for _, f := range j.Findings {
		if onCard(f.Code) && !(again && f.Code == code.Dirty) {
			all = append(all, held{f, f.Code == code.Dirty})
		}
	}
	return all
}

// onCard: memory on the card that a job lacks, if it is not what it left itself.
func onCard(c code.Code) bool {
	whose := c.Traits().Memory
	return whose != "" && whose != code.OwnProcess
}

// isOthers: a live process that is surely not this job's. Whatever is there before the job is not.
func isOthers(h held) bool {
	switch h.Code {
	case code.Foreign:
		return h.Unknown == "" || h.Owner != nil
	case code.Stray:
		return h.Unknown == ""
	case code.Dirty:
		return live(h.Finding)
	}
	return false
}

// isLeftover: on record as an earlier job's.
func isLeftover(h held) bool {
	return h.Code == code.Dirty && h.start && h.Owner != nil && h.Unknown == ""
}

// isUnlisted: memory in use with no living process to it.
func isUnlisted(h held) bool { return h.Unknown == "" && !live(h.Finding) }

// stock is the most that one end found of one kind on one card.
type stock struct {
	gpu    gpu.ID
	start  bool
	bytes  uint64
	blurry string // why the true figure may be larger
	found  []held
}

// stocks gathers what is of a kind: one stock a card and end.
func (j judge) stocks(is func(held) bool) []stock {
	var all []stock
	at := map[gpu.ID]map[bool]int{}
	for _, h := range j.held() {
		if !is(h) {
			continue
		}
		if at[h.GPU] == nil {
			at[h.GPU] = map[bool]int{}
		}
		i, known := at[h.GPU][h.start]
		if !known {
			i = len(all)
			at[h.GPU][h.start] = i
			all = append(all, stock{gpu: h.GPU, start: h.start})
		}
		if all[i].found = append(all[i].found, h); h.Bytes.Known() {
			all[i].bytes += h.Bytes.Bytes
		} else {
			all[i].blurry = h.Bytes.Unknown
		}
	}
	return all
}

func (j judge) others(leftover Cause) Cause {
	c := Cause{Name: Others, Answer: No}
	if stocks := j.stocks(isOthers); len(stocks) > 0 {
		c = j.weigh(c, stocks)
		if c.Answer == Yes && leftover.Answer == Yes && allLeftover(stocks) {
			c.Evidence, c.With = "the same: the earlier job's process still lives", Leftover
		}
		return c
	}
	if found, ok := j.elsewhere(c); ok {
		return found
	}
	for _, h := range j.held() {
		if h.Code == code.Stray {
			c.Answer, c.Evidence, c.Detail = Unknown, "a process was there whose owner could not be told", h.Unknown
			return c
		}
	}
	return j.absent(c, j.figured() && j.strange() == 0)
}

// between says how often somebody looked between the job's two ends: between two looks anybody may come and go.
func (j judge) between() string {
	switch j.Checks {
	case 0:
		return "; nobody looked between (a health check would)"
	case 1:
		return ", nor at one look between"
	}
	return fmt.Sprintf(", nor at %d looks between", j.Checks)
}

// elsewhere is what sightings and the messages know of others.
func (j judge) elsewhere(c Cause) (Cause, bool) {
	for _, a := range j.accounts {
		if !a.restMattered() {
			continue
		}
		var foreign uint64
		for _, p := range a.Others {
			if p.Memory.Known() && j.foreign[p.PID] && !a.away {
				foreign += p.Memory.Bytes
			}
		}
		switch {
		case foreign >= significant:
			c.Answer, c.Evidence, c.Detail = Yes, Size(foreign)+" when it failed"+j.legally(), a.Line
			return j.at(c, a), true
		case a.rest >= j.known(a)+significant:
			c.Answer, c.Detail = Unknown, a.Line
			c.Evidence = Size(a.rest-j.known(a)) + " held by something when it failed" + j.legally()
			return j.at(c, a), true
		}
	}
	return j.sighted(c)
}

func (j judge) sighted(c Cause) (Cause, bool) {
	for _, s := range j.Seen {
		if !j.foreign[s.PID] || !s.Bytes.Known() || s.Bytes.Bytes < significant || j.dismissed(s.Device) {
			continue
		}
		c.Answer, c.Index = Yes, j.index(s.Device)
		c.Evidence = fmt.Sprintf("%s while your job ran%s%s", Size(s.Bytes.Bytes), j.clock(", seen at ", s.At),
			j.legally())
		if c.Detail = fmt.Sprintf("PID %d of job %d", s.PID, s.Owner.ID); !s.Owner.Found() {
			c.Detail = fmt.Sprintf("PID %d of another user", s.PID)
		}
		if j.away() || slices.ContainsFunc(j.about(s.Device), func(a account) bool { return a.card == nil }) {
			c.Answer, c.Evidence = Unknown, c.Evidence+"; where it failed is not known"
		}
		return c, true
	}
	return c, false
}

// legally words that others may be on the card.
func (j judge) legally() string {
	if j.Shared == "" {
		return ""
	}
	return " (this GPU may be shared)"
}

// oursIn is what a message lists for other processes that are known to be the job's.
func (j judge) oursIn(a account) uint64 {
	var sum uint64
	if a.away {
		return 0
	}
	for _, p := range a.Others {
		if p.Memory.Known() && j.ours[p.PID] && p.PID != a.PID {
			sum += p.Memory.Bytes
		}
	}
	return sum
}

// strange is what something unknown held when an allocation failed that would have fit without it, 0 for nothing.
func (j judge) strange() uint64 {
	for _, a := range j.accounts {
		if a.restMattered() && a.rest >= j.known(a)+significant {
			return a.rest - j.known(a)
		}
	}
	return 0
}

// known is how much of what else was in use is accounted for: by what an end found on that card, or by processes of
// which it is known whose they are.
func (j judge) known(a account) uint64 {
	var listed, found uint64
	if a.away {
		return 0
	}
	for _, p := range a.Others {
		if p.Memory.Known() && p.PID != a.PID && (j.ours[p.PID] || j.foreign[p.PID]) {
			listed += p.Memory.Bytes
		}
	}
	for _, s := range j.stocks(func(h held) bool { return isOthers(h) || isUnlisted(h) }) {
		if a.card != nil && a.card.Device.ID == s.gpu {
			found = max(found, s.bytes)
		}
	}
	return max(listed, found)
}

// foundAll: wherever others' memory mattered, all of it is known not to be the job's.
func (j judge) foundAll() bool {
	for _, a := range j.accounts {
		if !a.restKnown || a.rest > 0 && (j.oursIn(a) > 0 || a.rest >= j.known(a)+significant) {
			return false
		}
	}
	return j.balanced()
}

func allLeftover(stocks []stock) bool {
	for _, s := range stocks {
		for _, h := range s.found {
			if !isLeftover(h) {
				return false
			}
		}
	}
	return true
}

func (j judge) leftover() Cause {
	c := Cause{Name: Leftover, Answer: No}
	if stocks := j.stocks(isLeftover); len(stocks) > 0 {
		return j.weigh(c, stocks)
	}
	for _, h := range j.held() {
		if h.start && h.Code == code.Dirty && (!live(h.Finding) || h.Unknown != "") {
			if h.Bytes.Known() && h.Bytes.Bytes < significant || j.ruledOut(h.GPU) {
				continue
			}
			c.Answer, c.Evidence = Unknown, fmt.Sprintf("%s was there before it; no record whose", figure(h.Bytes))
			c.Index, c.Detail = h.Index, h.Unknown
			return c
		}
	}
	why := j.unlooked(Leftover)
	switch {
	case why == "" && len(j.stocks(isOthers)) > 0:
		c.Evidence = "none on record"
	case why == "":
		c.Evidence = "GPU clean at your start"
	case j.goneEverywhere():
		c.Evidence = "nothing else was in use when it failed"
	default:
		c.Answer, c.Evidence = Unknown, why
	}
	return c
}

func (j judge) unlisted(leftover Cause) Cause {
	c := Cause{Name: Unlisted, Answer: No}
	stocks := j.stocks(isUnlisted)
	if len(stocks) == 0 {
		if j.strange() > 0 && !j.listed() {
			c.Answer, c.Evidence = Unknown, Size(j.strange())+" held by something when it failed"
			return c
		}
		unsure := func(h held) bool { return h.Unknown != "" && !live(h.Finding) }
		if i := slices.IndexFunc(j.held(), unsure); i >= 0 && !j.figured() {
			c.Answer, c.Evidence, c.Detail = Unknown, "whether all memory had a process could not be told",
				j.held()[i].Unknown
			return c
		}
		return j.absent(c, j.figured()) // what is strange is listed as processes
	}
	c = j.weigh(c, stocks)
	switch {
	case c.Answer == Yes && leftover.Answer == Yes && allLeftover(stocks):
		c.Evidence, c.With = "the same: no process is listed for it", Leftover
	case c.Answer == Yes && j.ownLeft(stocks):
		c.Evidence += ", left by your job"
	}
	return c
}

// ownLeft reports memory that came while the job ran and that nobody but the job can have left.
func (j judge) ownLeft(stocks []stock) bool {
	for _, s := range stocks {
		for _, h := range s.found {
			if h.start || h.Owner == nil || h.Owner.Job != j.Job.ID || j.Job.ID == 0 {
				return false
			}
		}
	}
	return len(stocks) > 0
}

// listed reports that every message whose rest mattered lists processes that account for it.
func (j judge) listed() bool {
	for _, a := range j.accounts {
		var sum uint64
		for _, p := range a.Others {
			if p.Memory.Known() && p.PID != a.PID {
				sum += p.Memory.Bytes
			}
		}
		if a.restMattered() && a.rest >= sum+significant {
			return false
		}
	}
	return true
}
