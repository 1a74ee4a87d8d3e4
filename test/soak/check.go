package main

import (
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/look"
	"bookend/internal/settle"
	"bookend/internal/slurm"
	"bookend/test/soak/world"
)

// checks lets health checks come while the story goes on: none, or some at any time.
func (p *pair) checks() {
	for range p.rand.IntN(8) {
		p.node.After(time.Duration(p.rand.Int64N(int64(300*time.Second))), p.check)
	}
}

// check is one run of the health check: the real judgement, with eyes on the world. It follows package stage step by step.
func (p *pair) check() {
	if p.checking {
		return
	}
	p.checking = true
	h := &hook{pair: p, job: &world.Job{}, end: world.Epilog, began: p.node.Now, told: slurm.Job{Context: slurm.HealthCheck, Node: "n1"}}
	h.times, h.settle = p.cfg.Deadlines.HealthCheck.Hook(), p.cfg.Settle.Epilog
	if p.damaged && p.rand.IntN(5) < 2 {
		h.damage = drawDamage(p.rand, len(p.node.Cards), false)
	}
	h.runs(h.examine, func() { p.checking = false })
}

func (h *hook) examine() {
	h.sleep(h.between(time.Millisecond, 20*time.Millisecond))
	h.tally.checks++
	h.recallBaselines()
	glance := h.node.Snapshot(h.node.Cards)
	h.damage.spoil(&glance, 0)
	h.aroundAt = h.node.Now
	side := look.Once(h, glance)
	epoch := h.node.Epoch
	h.book.boot(epoch)
	book := h.asOf(glance.At)
	h.found = finding.Trespasses(h.sceneBetween(book, finding.Side{Snapshot: side.Snapshot, Processes: side.Processes, Neighbours: &glance}))
	h.blames()
	h.accusations()
	h.job.Cards = h.unclean(glance, book)
	if len(h.job.Cards) > 0 {
		h.residue()
	}
	h.book.sighted = h.book.sighted.With(epoch, glance, side.Processes).Bounded(h.book.level)
	h.settleRuns()
}

// asOf is the ledger for a look that is no run's end.
func (h *hook) asOf(at time.Duration) ledger.Book {
	return ledger.Between(h.book.runs, ledger.Now{At: at, Epoch: h.node.Epoch, Idle: uint64(h.cfg.Thresholds.Report), Sighted: h.book.sighted})
}

func (h *hook) sceneBetween(book ledger.Book, now finding.Side) finding.Scene {
	return finding.Scene{
		Job: h.told, Cards: h.cards, Now: now, Limits: h.limits, Baselines: h.baselines, Self: book.Self, Others: book.Others, Left: book.Left,
	}
}

// unclean are the cards that no job on record has and on which one look saw something.
func (h *hook) unclean(glance gpu.Snapshot, book ledger.Book) (cards []*world.Card) {
	expect, _ := finding.Expectations(nil, h.baselines, h.limits)
	rule := gpu.WatchRule{SlackBytes: uint64(h.cfg.Thresholds.Report), Expect: expect}
	for _, c := range h.node.Cards {
		clean := settle.JudgeDevice(rule, c.Device, []gpu.Snapshot{glance}).State == settle.Clean
		if !clean && !given(book, c) {
			cards = append(cards, c)
		}
	}
	return cards
}

func given(book ledger.Book, c *world.Card) bool {
	return slices.ContainsFunc(book.Others, func(r attrib.Record) bool { return r.Live() && r.MayHold(c.Device.ID) })
}

// residue watches those cards and says what lies there.
func (h *hook) residue() {
	for _, c := range h.job.Cards {
		h.cards = append(h.cards, finding.Card{Index: *c.Device.Minor, Device: c.Device})
	}
	h.look()
	book := h.asOf(h.now.Snapshot.At)
	h.cards = slices.DeleteFunc(h.cards, func(c finding.Card) bool { return given(book, h.card(c.Device.ID)) })
	h.found = finding.Compare(h.sceneBetween(book, h.now))
	h.blames()
	h.accusations()
	if h.damage.kind != whole || h.unjudged() || !h.ordered() {
		return
	}
	for _, card := range h.cards {
		c := h.card(card.Device.ID)
		h.unsaid(c, h.node.Stock(c, h.sawAt))
	}
}

// unsaid judges what a health check did not say: what is stuck on a card that nobody has must be said.
func (h *hook) unsaid(c *world.Card, stock world.Stock) {
	stuck := stock.Unlisted(world.Stuck)
	stuck -= h.asService(c, stuck)
	big := slices.ContainsFunc(stock, func(i world.Item) bool {
		return i.Fate == world.Stuck && !i.Unlisted && i.Bytes >= h.limits.Report && h.over(i) && !i.Creator.OfNode && i.Creator.Exe == ""
	})
	if h.sawAt >= c.Lost || c.Outside || !big && stuck < h.limits.Report+tolerance(stock)+h.hidden(stock) {
		return
	}
	h.names(c, stock, nil)
	h.tally.leaks++
	if !h.said(c) {
		h.fail(missedLeak, "%s between jobs: %s", c.Device.ID, inWords(stock))
	}
}

// accusations judges what is said to have been left behind by a job that is over: of a live job's process that is never true.
func (h *hook) accusations() {
	for _, f := range h.found {
		certain := f.Owner != nil && (f.Owner.Level == attrib.ByCgroup || f.Owner.Level == attrib.BySighting)
		if f.Code != code.Orphan || f.Holder == nil || !certain || len(f.Doubts) > 0 {
			continue
		}
		if p := h.node.Process(f.Holder.PID); p != nil && p.Job != nil && p.Job.Live && h.node.Started(p) == f.Holder.Start {
			h.fail(wrongBlame, "%s: process %d of live job %d is called left behind", f.GPU, p.PID, p.Job.ID)
		}
	}
}

// settleRuns closes the runs whose epilog never came.
func (h *hook) settleRuns() {
	site := h.node.Site.Sharing
	for _, u := range ledger.Unended(h.book.runs, ledger.Node{Epoch: h.node.Epoch, Shared: h.cfg.Slurm.SharedPartitions, Exclusive: func() bool {
		return site == world.Exclusive || site == world.Gang
	}}) {
		h.tally.settled++
		h.book.close(u.Run, ledger.End{At: max(u.Over, 1), Wall: time.Unix(1_700_000_000, 0).Add(h.node.Now), Unseen: u.Why, Presumed: u.Presumed})
	}
}
