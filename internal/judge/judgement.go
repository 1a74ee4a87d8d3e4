package judge

import (
	"fmt"
	"slices"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/policy"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

func (j Judgement) With(c Case, more ...record.Finding) Judgement {
	return c.decide(slices.Concat(j.Found, more))
}

// Late returns the judgement with findings made after the verdict: they are reported but do not change it.
func (j Judgement) Late(more ...record.Finding) Judgement {
	j.Found, j.Judged = slices.Concat(j.Found, more), slices.Clone(j.Judged)
	for _, f := range more {
		action := config.Warn
		if entry, _ := catalog.Lookup(f.Code); entry.Severity == catalog.Note {
			action = config.Note
		}
		j.Judged = append(j.Judged, record.Judged{Action: action})
	}
	return j
}

// Stopped returns the verdict of a hook that is stopped for f, and had reached the exit code.
func Stopped(exit int, f record.Finding) record.Verdict {
	return record.Verdict{Action: config.Warn, Exit: exit, Code: f.Code}
}

func (c Case) decide(found []record.Finding) Judgement {
	found = c.repeated(untried(c.Seen.Cards, found))
	v := policy.Decide(c.Config, c.Phase, c.Job, found)
	if c.Phase == slurm.HealthCheck && v.Action == config.Drain && Occupied(c) != "" {
		v.Action, v.Held = config.Warn, Occupied(c)
	}
	// If it is unknown, scontrol is right in both cases: without expedited requeue it drains as an exit code does.
	if c.Expedited == slurm.Yes || c.Expedited == slurm.Unknown {
		v = policy.Spare(v, found)
	}
	return Judgement{found, v}
}

// AsksExpedited reports whether slurm.conf decides the exit status: an epilog drains, and no fault justifies a restart.
func (c Case) AsksExpedited(j Judgement) bool {
	return c.Phase == slurm.Epilog && c.Expedited == "" && policy.Spare(j.Verdict, j.Found).ByScontrol
}

// untried adds the doubt about drivers never measured to the findings on their GPUs and on the driver as a whole.
func untried(cards []record.Assigned, found []record.Finding) []record.Finding {
	found = slices.Clone(found)
	for _, card := range cards {
		why := gpu.VendorOf(card.Device).Untried
		for i, f := range found {
			concerns := f.GPU == "" || f.GPU == card.Device.ID
			if why != "" && concerns && f.Unknown == "" && !slices.Contains(f.Doubts, why) {
				found[i].Doubts = append(slices.Clone(f.Doubts), why)
			}
		}
	}
	return found
}

func (c Case) repeated(found []record.Finding) []record.Finding {
	if c.Node == nil {
		return found
	}
	self := c.Self()
	self.Epoch = c.Seen.Epoch
	if c.Phase == slurm.Prolog {
		self.Start = &record.End{At: c.At}
	}
	for i, f := range found {
		if c.Phase == slurm.HealthCheck { // only what it may drain for asks
			found[i].Repeated = c.asksRepeat(f) && policy.MetByCheck(c.Node.Check, self, c.At, f)
			continue
		}
		unread := f.GPU != "" && c.Node.Doubt(c.Job.ID, f.GPU) != "" // another job may have run in between
		found[i].Repeated = c.asksRepeat(f) && !unread && policy.MetLast(c.Node.Runs, c.Node.Check, self, c.At, f)
	}
	return found
}

// AsksRepeat reports whether policy depends on the last other job's findings, which the node's records have.
func (c Case) AsksRepeat(j Judgement) bool { return slices.ContainsFunc(j.Found, c.asksRepeat) }

func (c Case) asksRepeat(f record.Finding) bool {
	action := c.Config.Action(c.Phase, c.Job.Partition, f.Code)
	return f.Unknown == "" && (action == config.Repeat || action == config.Drain && c.Phase == slurm.HealthCheck)
}

// Once returns what was found and is not among earlier findings, each once.
func Once(found, earlier []record.Finding) (news []record.Finding) {
	for _, f := range found {
		same := func(o record.Finding) bool {
			return o.Code == f.Code && o.GPU == f.GPU && o.Observed == f.Observed && o.Unknown == f.Unknown
		}
		if !slices.ContainsFunc(slices.Concat(earlier, news), same) {
			news = append(news, f)
		}
	}
	return news
}

// Doubt says why the first finding that was to drain did not, empty if none was held back.
func (j Judgement) Doubt() string {
	for i, f := range j.Found {
		if why := j.Of(i).Why; why != "" {
			return fmt.Sprintf("%s: %s", f.Code, why)
		}
	}
	return ""
}
