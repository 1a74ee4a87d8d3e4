package main

import (
	"slices"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/soak/world"
)

// checks lets health checks come while the story goes on: none, or some at any time.
func (p *pair) checks() {
	for range p.rand.IntN(8) {
		p.node.After(time.Duration(p.rand.Int64N(int64(300*time.Second))), p.check)
	}
}

// check is one run of the health check: the real judgement, with an observer of the world.
func (p *pair) check() {
	if p.checking {
		return
	}
	p.checking = true
	told := slurm.Job{Context: slurm.HealthCheck, Node: "n1"}
	h := p.newHook(&world.Job{}, told, len(p.node.Cards), false)
	h.runs(h.examine, func() { p.checking = false })
}

// examine is the health check's way: one look at every card, and a closer one at those that no job has and that are not
// clean. What each of them shows is judged as of that look.
func (h *hook) examine() {
	h.sleep(h.between(time.Millisecond, 20*time.Millisecond))
	h.tally.checks++
	h.remember()
	h.book.boot(h.Seen.Epoch)
	if n := len(h.book.runs); n > 0 && h.damage.kind == damagedRecord {
		h.book.damage(h.rand.IntN(n))
		h.missed = h.node.Now
	}
	before := len(h.book.damaged)
	glance := h.node.Snapshot(h.node.Cards)
	h.damage.spoil(&glance, 0)
	h.seen.around = h.node.Now
	h.job.Cards = h.node.Cards
	h.Seen.Cards = h.cardsOf()
	h.Seen.Side = judge.Glance(h, glance)
	h.Node = h.nodeOfHost()
	c := h.checkOf()
	h.Judgement = judge.JudgeCheck(c)
	h.idle()
	h.keep()
	h.blames()
	h.accusations()
	h.bystanders()
	h.lodgers()
	h.resumes(c)
	h.book.seenClear(before, c.Clear())
	if unclean := c.Unclean(); len(unclean) > 0 {
		h.closer(c, unclean)
	}
	h.settleRuns()
}

// checkOf returns the case of a check, which goes on where the last one ended, and keeps where this one ends.
func (h *hook) checkOf() judge.Check {
	c := judge.Check{Last: h.lastCheck}
	var since *gpu.KernelMark
	if c.Last != nil {
		since = c.Last.Kernel
	}
	h.condition(since)
	c.Case = h.Case
	now := &record.Check{Epoch: h.Seen.Epoch, Health: h.Seen.Health}
	if log := h.Seen.Kernel; log.Unknown == "" {
		now.Kernel, now.Boot = &log.Last, log.Epoch.Boot
	}
	h.lastCheck = now
	return c
}

// resumes judges for which GPUs the check would resume a drained node: never for one that a live job on record has.
func (h *hook) resumes(c judge.Check) {
	for id, seen := range c.DrainSeen(h.Judgement) {
		for _, j := range h.node.Jobs {
			if seen.Clean && j.Live && j.Has(h.card(id)) && h.onRecord(j) {
				h.fail(breach, "%s counts as clean though job %d has it", id, j.ID)
			}
		}
	}
}

// closer watches those cards and judges what is said of them.
func (h *hook) closer(c judge.Check, cards []record.Assigned) {
	h.job.Cards = nil
	for _, card := range cards {
		own := h.card(card.Device.ID)
		h.job.Cards = append(h.job.Cards, own)
		for _, j := range h.node.Jobs {
			if j.Live && j.Has(own) && h.onRecord(j) && h.damage.kind != unread {
				h.fail(breach, "%s is watched though job %d has it", card.Device.ID, j.ID)
			}
		}
	}
	h.look(cards)
	c.Residue = &judge.Residue{Cards: h.Seen.Cards, Side: h.Seen.Side, Node: *h.nodeOfHost()}
	h.Judgement = judge.JudgeCheck(c)
	free, all := c.Free(), h.Found
	h.Found = slices.DeleteFunc(slices.Clone(all), func(f record.Finding) bool {
		free := slices.ContainsFunc(free, func(card record.Assigned) bool { return card.Device.ID == f.GPU })
		return f.Code == catalog.Trespass || !free // which was judged as of the look at all cards
	})
	h.blames()
	h.accusations()
	h.lodgers()
	h.Found = all
	if h.damage.kind != whole || h.unjudged() || !h.ordered() {
		return
	}
	for _, card := range free {
		h.unsaid(h.card(card.Device.ID), "between jobs")
	}
}

// nodeOfHost is what the records say, with those of the host's other node.
func (h *hook) nodeOfHost() *judge.Node {
	node, other := h.nodeNow(), judge.Node{}
	for _, j := range h.node.Lodgers {
		run := record.Run{Job: j.Told(h.node.Site, slurm.Prolog), Epoch: h.node.Epoch,
			Start: &record.End{At: h.node.Boottime(j.Allocated)}}
		run.Key = run.NewKey()
		for _, c := range j.Cards {
			run.Devices = append(run.Devices, record.Assigned{Index: *c.Device.Minor, Device: c.Device})
		}
		if !j.Live {
			run.Ends = []record.End{{At: h.node.Boottime(j.Ended)}}
		}
		other.Runs = append(other.Runs, run)
	}
	node.SameHost = append(node.SameHost, other)
	return node
}

// lodgers judges what is said of the jobs of the host's other node, which this one knows nothing of.
func (h *hook) lodgers() {
	for _, f := range h.Found {
		if f.Holder == nil || f.Unknown != "" || h.damage.kind != whole {
			continue
		}
		p := h.node.Process(f.Holder.PID)
		if p != nil && p.Job != nil && p.Job.Node != world.ThisNode && p.Job.Live {
			h.fail(wrongBlame, "%s of process %d, of the other node's job %d", f.Code, p.PID, p.Job.ID)
		}
	}
}

// accusations judges what is said to have been left behind by a job that is over: of a live job's process that is never
// true.
func (h *hook) accusations() {
	for _, f := range h.Found {
		certain := f.Owner != nil && f.Owner.Level.Certain()
		if f.Code != catalog.Orphan || f.Holder == nil || !certain || len(f.Doubts) > 0 {
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
	node := attribution.Node{Epoch: h.node.Epoch, Shared: h.cfg.Slurm.SharedPartitions, Exclusive: func() bool {
		return site == world.Exclusive || site == world.Gang
	}}
	for _, c := range h.node.Cards {
		node.GPUs = append(node.GPUs, c.Device.ID)
	}
	for _, u := range attribution.Unended(h.book.runs, node) {
		h.tally.settled++
		h.book.close(u.Run, record.End{At: max(u.Over, 1), Wall: h.node.Wall(), Unseen: u.Why, Presumed: u.Presumed})
	}
}
