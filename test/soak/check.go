package main

import (
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/test/soak/world"
)

// checks lets health checks come while the story goes on: none, or some at any time.
func (p *pair) checks() {
	for range p.rand.IntN(8) {
		p.node.After(time.Duration(p.rand.Int64N(int64(300*time.Second))), p.check)
	}
}

// check is one run of the health check: the real judgement, with eyes on the world.
func (p *pair) check() {
	if p.checking {
		return
	}
	p.checking = true
	told := slurm.Job{Context: slurm.HealthCheck, Node: "n1"}
	h := p.newHook(&world.Job{}, world.Epilog, told, len(p.node.Cards), false)
	h.runs(h.examine, func() { p.checking = false })
}

// examine is the health check's way: one look at every card, and a closer one at those that no job has and that are not
// clean. What each of them shows is judged as of that look.
func (h *hook) examine() {
	h.sleep(h.between(time.Millisecond, 20*time.Millisecond))
	h.tally.checks++
	h.remember()
	glance := h.node.Snapshot(h.node.Cards)
	h.damage.spoil(&glance, 0)
	h.seen.around = h.node.Now
	h.job.Cards = h.node.Cards
	h.Seen.Cards = h.cardsOf()
	h.Seen.Side = judge.Glance(h, glance)
	h.book.boot(h.Seen.Epoch)
	h.Node = h.nodeNow()
	c := judge.Check{Case: h.Case}
	h.Judgement = judge.JudgeCheck(c)
	h.blames()
	h.accusations()
	if unclean := c.Unclean(); len(unclean) > 0 {
		h.closer(c, unclean)
	}
	h.settleRuns()
}

// closer watches those cards and judges what is said of them.
func (h *hook) closer(c judge.Check, cards []finding.Card) {
	h.job.Cards = nil
	for _, card := range cards {
		own := h.card(card.Device.ID)
		h.job.Cards = append(h.job.Cards, own)
		for _, r := range h.book.runs {
			if r.Running(h.book.runs) && h.openOn(own, r) {
				h.fail(breach, "%s is watched though job %d has it", card.Device.ID, r.Job.ID)
			}
		}
	}
	h.look(cards)
	c.Residue = &judge.Residue{Cards: h.Seen.Cards, Side: h.Seen.Side, Node: *h.nodeNow()}
	h.Judgement = judge.JudgeCheck(c)
	free, all := c.Free(), h.Found
	h.Found = slices.DeleteFunc(slices.Clone(all), func(f finding.Finding) bool {
		free := slices.ContainsFunc(free, func(card finding.Card) bool { return card.Device.ID == f.GPU })
		return f.Code == code.Trespass || !free // which was judged as of the look at all cards
	})
	h.blames()
	h.accusations()
	h.Found = all
	if h.damage.kind != whole || h.unjudged() || !h.ordered() {
		return
	}
	for _, card := range free {
		h.unsaid(h.card(card.Device.ID), "between jobs")
	}
}

// accusations judges what is said to have been left behind by a job that is over: of a live job's process that is never
// true.
func (h *hook) accusations() {
	for _, f := range h.Found {
		certain := f.Owner != nil && (f.Owner.Level == finding.ByCgroup || f.Owner.Level == finding.BySighting)
		if f.Code != code.Orphan || f.Holder == nil || !certain || len(f.Doubts) > 0 {
			continue
		}
		p := h.node.Process(f.Holder.PID)
		if p != nil && p.Job != nil && p.Job.Live && h.node.Started(p) == f.Holder.Start {
			h.fail(wrongBlame, "%s: process %d of live job %d is called left behind", f.GPU, p.PID, p.Job.ID)
		}
	}
}

// settleRuns closes the runs whose epilog never came.
func (h *hook) settleRuns() {
	site := h.node.Site.Sharing
	node := ledger.Node{Epoch: h.node.Epoch, Shared: h.cfg.Slurm.SharedPartitions, Exclusive: func() bool {
		return site == world.Exclusive || site == world.Gang
	}}
	for _, c := range h.node.Cards {
		node.GPUs = append(node.GPUs, c.Device.ID)
	}
	for _, u := range ledger.Unended(h.book.runs, node) {
		h.tally.settled++
		h.book.close(u.Run, ledger.End{At: max(u.Over, 1), Wall: h.wall(), Unseen: u.Why, Presumed: u.Presumed})
	}
}
