package diagnosis

import (
	"fmt"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
	"bookend/internal/slurm"
)

// weigh decides whether what was found mattered when it failed, as far as messages tell.
func (j judge) weigh(c Cause, stocks []stock) Cause {
	best := stocks[0]
	for _, s := range stocks[1:] {
		if s.bytes > best.bytes {
			best = s
		}
	}
	c.Index, c.Detail = j.index(best.gpu), best.detail()
	what := j.wording(best)
	judged, doubt := false, ""
	for _, s := range stocks {
		for _, a := range j.about(s.gpu) {
			judged = true
			switch {
			case a.card == nil && (a.restMattered() || a.Count > 1):
				doubt = "; on which GPU it failed is not known"
			case a.restMattered() && s.bytes >= significant:
				c.Answer, c.Index, c.Evidence, c.Detail = Yes, j.index(s.gpu), j.wording(s), s.detail()
				return c
			case !a.restKnown && a.short(), a.restMattered() && s.blurry != "":
				doubt = "; whether that mattered cannot be told"
			}
		}
	}
	switch {
	case doubt != "":
	case j.away():
		doubt = "; on which node it failed is not known"
	case judged && !j.balanced():
		doubt = "; whether that mattered cannot be told"
	}
	switch {
	case doubt != "":
		c.Answer, c.Evidence = Unknown, what+doubt
	case judged && j.ruledOut(best.gpu):
		c.Answer, c.Evidence = No, what+", but gone when it failed"
	case judged:
		c.Answer, c.Evidence = No, what+", but not decisive"
	default:
		return j.unweighed(c, best)
	}
	return c
}

// unweighed answers where no message tells of the card: by how much it was, and where it was little, by who looked.
func (j judge) unweighed(c Cause, best stock) Cause {
	what := j.wording(best)
	switch {
	case best.bytes >= significant && (best.start || c.Name != Unlisted):
		c.Answer, c.Evidence = Yes, what
	case best.bytes >= significant:
		c.Answer, c.Evidence = Unknown, what+"; not known since when"
	case best.blurry != "":
		c.Answer, c.Evidence = Unknown, "how much it held is unknown"
	case j.unlooked(c.Name) != "":
		c.Answer, c.Evidence = Unknown, what+" only; "+j.unlooked(c.Name)
	case c.Name != Leftover:
		c.Answer, c.Evidence = Unknown, what+" only"+j.between()
	default:
		c.Answer, c.Evidence = No, what+" only"
	}
	return c
}

// about returns the balances of this node that speak of a card, or may.
func (j judge) about(id gpu.ID) []account {
	var all []account
	for _, a := range j.accounts {
		if !a.away && (a.card == nil || a.card.Device.ID == id) {
			all = append(all, a)
		}
	}
	return all
}

// ruledOut: at every failure on this card that is on record nobody else held enough to matter.
func (j judge) ruledOut(id gpu.ID) bool {
	return j.throughout(id, func(a account) bool { return a.rest == 0 })
}

// dismissed: no failure on this card that is on record was for what others held.
func (j judge) dismissed(id gpu.ID) bool {
	return j.throughout(id, func(a account) bool { return !a.restMattered() })
}

// throughout: there are balances of a card, and each is so. Of several messages without a card only the last one's
// is known.
func (j judge) throughout(id gpu.ID, is func(account) bool) bool {
	all := j.about(id)
	for _, a := range all {
		if !a.restKnown || !is(a) || a.card == nil && a.Count > 1 {
			return false
		}
	}
	return len(all) > 0 && j.balanced() && !j.away()
}

func (j judge) goneEverywhere() bool {
	for _, c := range j.Cards {
		if !j.ruledOut(c.Device.ID) {
			return false
		}
	}
	return len(j.Cards) > 0
}

// wording says how much was seen when, and since when, as far as the owner may know.
func (j judge) wording(s stock) string {
	text := Size(s.bytes)
	if s.blurry != "" {
		text = "at least " + text
	}
	if !s.start {
		return text + " at the end of your job" + j.legally()
	}
	text += " when your job began"
	if h := s.found[0]; live(h.Finding) && h.Holder.Start > 0 && len(s.found) == 1 {
		text += j.clock(", since ", h.Holder.Start)
	}
	if o := s.found[0].Owner; o != nil && o.UID == j.Job.UID && o.Job != 0 && len(s.found) == 1 {
		text += fmt.Sprintf(", %sby %s", surely(o.Level), j.ownJob(o.Job))
	}
	return text + j.legally()
}

// ownJob names another job of the same user, or another run of the same.
func (j judge) ownJob(id slurm.JobID) string {
	if id == j.Job.ID {
		return "an earlier run of this job"
	}
	return fmt.Sprintf("your job %d", id)
}

func surely(l attrib.Level) string {
	if l == attrib.ByCgroup || l == attrib.BySighting {
		return ""
	}
	return "probably "
}

// detail names processes and jobs, for an admin.
func (s stock) detail() string {
	text := ""
	for _, h := range s.found {
		if text != "" {
			text += "; "
		}
		if text += fmt.Sprintf("%s %s", h.Code, figure(h.Bytes)); h.Holder != nil {
			text += fmt.Sprintf(" PID %d", h.Holder.PID)
		}
		if h.Owner != nil {
			text += fmt.Sprintf(" job %d (%s)", h.Owner.Job, h.Owner.Level)
		}
	}
	return text
}

// absent answers for something that neither end found: no, only where the messages leave no room for it at the failure,
// or where memory of the card was not what the job failed for.
func (j judge) absent(c Cause, excluded bool) Cause {
	why := j.unlooked(c.Name)
	switch {
	case j.away() && j.cleared():
		c.Evidence = "none when it failed"
	case j.goneEverywhere() && why == "":
		c.Evidence = "none at start, end or failure"
	case j.goneEverywhere():
		c.Evidence = "none when it failed"
	case why != "":
		c.Answer, c.Evidence = Unknown, why
	case excluded, j.startless() && j.addressSpace() != "":
		c.Evidence = "none at start or end"
	default:
		c.Answer, c.Evidence = Unknown, "none at start or end"+j.between()
	}
	return c
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
		return fmt.Sprintf("nobody looked at your job's %s (the %s does)", end, hook)
	}
	for _, c := range j.Cards {
		if !s.Curves[c.Device.ID].State.AtRest() {
			return fmt.Sprintf("GPU %d could not be judged at its %s", c.Index, end)
		}
	}
	if len(j.Cards) == 0 {
		return "which GPUs it had is not known"
	}
	return ""
}

// at names the card of a message.
func (j judge) at(c Cause, a account) Cause {
	if a.card != nil {
		c.Index = &a.card.Index
	}
	return c
}

// startless reports messages that speak of a program that could not even start.
func (j judge) startless() bool {
	return len(j.said(oom.Init)) > 0 && len(j.said(oom.Device)) == 0
}
