package stage

import (
	"errors"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/runlog"
	"bookend/internal/scontrol"
)

// slurmCall bounds each of a health check's calls of scontrol: with slurmctld down or hung one would take 10 to 20 s.
const slurmCall = 3 * time.Second

// settleDrain gives a drain of ours the reason in the place of Slurm's fixed text, and ends it where it may. Slurm is asked
// only while there is one that is not settled. What fails is told, and the next health check does it.
func (c *check) settleDrain() {
	if c.store == nil {
		return
	}
	in := drain.Input{
		Now: c.moment(), Epoch: c.epoch, Writer: drain.ByCheck,
		Rules: drain.Rules{By: c.cfg.Drain.ReasonBy, Resume: c.cfg.Drain.Resume.Enabled, After: c.cfg.Drain.Resume.After},
	}
	memory := c.drainMemory()
	runs, _ := c.store.Runs() // anew: an end may have come since; what is damaged is reported by whoever looks into it
	in.Memory, in.Exits = memory.Here(in.Now), drain.Exits(runs, in.Now)
	if !drain.Pending(in.Rules, in.Memory, in.Exits, in.Now.Wall) {
		return
	}
	until := c.env.Clock.Boot() + time.Duration(c.cfg.Deadlines.HealthCheck.Slurm)
	cmd := c.scontrol(drain.Conf(in.Memory, in.Exits), func() time.Duration {
		return c.left(min(slurmCall, until-c.env.Clock.Boot()), time.Duration(c.times.Outputs))
	})
	node, err := cmd.Node(c.job.Node)
	if err != nil {
		c.noReason(err)
		return
	}
	in.Node, in.Cards = node, c.seenByCard()
	c.carryOut(cmd, in, memory)
}

// carryOut decides, and does what was decided. What is remembered of it is written before anything is done: where the one
// fails the other is not begun.
func (c *check) carryOut(cmd scontrol.Command, in drain.Input, memory drain.Memory) {
	d := drain.Decide(in)
	if c.remember(memory, d.Intent) != nil {
		return
	}
	still := func(now drain.Node) bool {
		again := in
		again.Node = now
		wanted := drain.Decide(again)
		return wanted.Act == d.Act && wanted.Reason == d.Reason
	}
	var err error
	switch d.Act {
	case drain.Write:
		err = cmd.Drain(c.job.Node, d.Reason, still)
	case drain.Resume:
		err = cmd.Resume(c.job.Node, still)
	}
	if errors.Is(err, scontrol.ErrChanged) { // the next health check sees what has become of it
		d = drain.Decision{Act: drain.Leave, Why: err.Error(), After: d.Intent}
		err = nil
	}
	if err != nil {
		c.noReason(err)
		return
	}
	if d.Act == drain.Write || d.Act == drain.Resume {
		_ = c.remember(d.Intent, d.After) // told; the next health check finds what was done
	}
	if last := memory.Last; d.Act != drain.Leave || last == nil || last.Why != d.Why {
		c.drain = &d
	}
}

// drainEntry is the line of the log that says what was decided about the node's drain; false where there is no news.
func (h *hook) drainEntry() (runlog.Entry, bool) {
	if h.drain == nil {
		return runlog.Entry{}, false
	}
	e := h.entry(config.Info, "drain: "+string(h.drain.Act)+": "+h.drain.Why)
	if h.drain.Act == drain.Resume {
		e.Level = config.Warning
	}
	return e, true
}

// seenByCard says what this check saw of each card, as far as a drain is concerned. Only a card on which one look saw nothing,
// and that no job has, is clean; one that had to come to rest first counts for nothing.
func (c *check) seenByCard() map[gpu.ID]drain.Seen {
	cards := map[gpu.ID]drain.Seen{}
	if c.seen.At == 0 {
		return cards
	}
	book := c.book(c.seen.At)
	for _, card := range c.every {
		seen := drain.Seen{Memory: drain.Clean}
		switch against := c.against(card); {
		case given(card, book):
			seen = drain.Seen{Memory: drain.Unknown, Why: "a job still has it"}
		case against != "":
			seen = drain.Seen{Memory: drain.Dirty, Why: against}
		case !c.isClean(card):
			seen = drain.Seen{Memory: drain.Unknown, Why: "it could not be read, or has just come to rest"}
		}
		seen.Given = slices.ContainsFunc(c.records(), func(r ledger.Run) bool { return r.Given(card.Device.ID) })
		for _, h := range c.health {
			if h.Device == card.Device.ID || card.Device.Parent != "" && h.Device == card.Device.Parent {
				seen.Health = h
			}
		}
		cards[card.Device.ID] = seen
	}
	return cards
}

// against is what this check found on a card, empty for nothing. Its condition is judged apart.
func (c *check) against(card finding.Card) string {
	for _, f := range c.found {
		if f.GPU == card.Device.ID && (f.Code.Traits().Memory != "" || f.Code == code.Trespass || f.Code == code.Moving) {
			return string(f.Code)
		}
	}
	return ""
}
