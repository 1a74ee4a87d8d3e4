package main

import (
	"fmt"
	"slices"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/settle"
	"bookend/test/soak/world"
)

// judge compares what a hook said with what is true, as of its last look.
func (h *hook) judge() {
	h.tally.hooks++
	if h.damage.kind != whole {
		h.tally.damaged++
	}
	h.say()
	if h.damage.kind == unwritten || h.damage.kind == forgotten || h.job.NoProlog || h.sawAt == 0 {
		h.ordered = false
	}
	for _, j := range h.node.Jobs {
		h.ordered = h.ordered && !j.NoEpilog && !j.NoProlog
	}
	h.drains()
	h.blames()
	if h.end == world.Prolog {
		h.atStart()
		h.keepStart()
		return
	}
	for _, c := range h.job.Cards {
		h.leak(c)
	}
	if s := h.starts[h.job]; s != nil {
		s.reruns++
	}
}

// keepStart remembers what lay on the job's cards: the first prolog counts.
func (h *hook) keepStart() {
	if h.starts[h.job] != nil && h.starts[h.job].on {
		return
	}
	s := &start{stock: map[*world.Card]world.Stock{}, whole: h.damage.kind == whole, on: h.damage.kind != unwritten}
	for _, c := range h.job.Cards {
		s.stock[c] = h.node.Stock(c, h.sawAt)
	}
	h.starts[h.job] = s
}

// drains judges every finding that drained.
func (h *hook) drains() {
	if h.verdict.Exit == 0 {
		return
	}
	h.tally.drains++
	for i, j := range h.verdict.Judged {
		if j.Action == config.Drain {
			h.drain(h.found[i])
		}
	}
}

// drain judges one. That jobs take turns on a card only records can tell: where some were lost, no more is asked of
// a drain than that what it is for stays.
func (h *hook) drain(f finding.Finding) {
	c := h.card(f.GPU)
	if c == nil || !h.job.Has(c) {
		h.fail(falseDrain, "%s for %s, which is none of job %d's cards", f.Code, f.GPU, h.job.ID)
		return
	}
	if f.Code == code.Lost {
		if h.sawAt < c.Lost {
			h.fail(falseDrain, "%s is not lost", c.Device.ID)
		}
		return
	}
	stock, s := h.node.Stock(c, h.sawAt), h.starts[h.job]
	stays := stock.Of(world.Stuck, world.Passing)
	switch {
	case h.end == world.Prolog:
		h.fail(falseDrain, "%s at a start", f.Code)
	case h.node.SharedByRight(h.job, c) && (h.node.Site.Sharing != world.Gang || h.ordered && h.sharesOnRecord(c)):
		h.fail(falseDrain, "%s on %s, which others may use", f.Code, c.Device.ID)
	case stays < h.limits.Drain:
		h.fail(falseDrain, "%s on %s, where %d MiB stay: %s", f.Code, c.Device.ID, stays/world.MiB, inWords(stock))
	case (s == nil || !s.on) && h.nameless():
	case s == nil || !s.on:
		h.fail(breach, "%s on %s without a record of the start of job %d", f.Code, c.Device.ID, h.job.ID)
	case s.stock[c].Of(world.Stuck, world.Alive) >= h.limits.Report+tolerance(s.stock[c]):
		h.fail(breach, "%s on %s, which was not clean at the start of job %d: %s", f.Code, c.Device.ID, h.job.ID, inWords(s.stock[c]))
	}
}

// nameless reports a run that Slurm gives no name of its own (22.05): its epilog takes the newest open record of the
// job id, which may be an earlier run's that was left open.
func (h *hook) nameless() bool {
	return h.job.Restarts > 0 && !h.node.Site.SLUIDs && !h.node.Site.StartTimes
}

// tolerance is by how much a balance of a card may be off: the driver's share of a client was measured to lie within
// 1 MiB, and services' figures wander by a page.
func tolerance(stocks ...world.Stock) uint64 {
	most := 0
	for _, s := range stocks {
		most = max(most, len(s))
	}
	return uint64(most) * 3 * world.MiB
}

// atStart judges a prolog: what is stuck on a card must be said.
func (h *hook) atStart() {
	if h.damage.kind != whole || h.unjudged() {
		return
	}
	for _, c := range h.job.Cards {
		stock := h.node.Stock(c, h.sawAt)
		stuck := stock.Unlisted(world.Stuck)
		if stuck <= finding.MaxBaseline && h.node.Shows(c) {
			stuck = 0 // a service may be taken for its holder
		}
		big := slices.ContainsFunc(stock, func(i world.Item) bool {
			return i.Fate == world.Stuck && !i.Unlisted && i.Bytes >= h.limits.Report && h.over(i)
		})
		if (big || stuck >= h.limits.Report+tolerance(stock)) && h.sawAt < c.Lost {
			h.tally.leaks++
			if !h.said(c) {
				h.fail(missedLeak, "%s at the start of job %d: %s", c.Device.ID, h.job.ID, inWords(stock))
			}
		}
	}
}

// unjudged reports a site on which memory means little, or belongs to several by right.
func (h *hook) unjudged() bool {
	s := h.node.Site
	return s.NUMA || s.OldDriver || s.Sharing == world.SharedByName || s.Sharing == world.SharedByMPS || s.Sharing == world.SharedShards
}

// leak judges an epilog: what is stuck on a card and was not there before must be said, and drain where it is due.
func (h *hook) leak(c *world.Card) {
	s := h.starts[h.job]
	if h.damage.kind != whole || h.unjudged() || h.sawAt >= c.Lost || s != nil && !s.whole || s == nil && h.nameless() {
		return
	}
	stock := h.node.Stock(c, h.sawAt)
	var before world.Stock
	if s != nil {
		before = s.stock[c]
	}
	var stuck uint64 // that was not there before: a job need not leave its card cleaner
	for _, i := range stock {
		if i.Unlisted && i.Fate == world.Stuck && !before.Has(i.Chunk) && !shared(stock) {
			stuck += i.Held()
		}
	}
	fresh := stuck >= before.Unlisted()+h.limits.Report+tolerance(stock, before)
	for _, i := range stock {
		fresh = fresh || i.Fate == world.Stuck && !i.Unlisted && i.Bytes >= h.limits.Report && !before.Has(i.Chunk) && h.over(i)
	}
	if !fresh {
		return
	}
	h.tally.leaks++
	if !h.said(c) {
		h.fail(missedLeak, "%s at the end of job %d: %s; at its start: %s", c.Device.ID, h.job.ID, inWords(stock), inWords(before))
		return
	}
	if h.due(c, s, stock) {
		h.tally.due++
		if h.verdict.Exit == 0 {
			h.fail(missedDrain, "%s at the end of job %d: %s", c.Device.ID, h.job.ID, inWords(stock))
		}
	}
}

// over reports that the records can show an item's job to be over: without its epilog one that has ended looks like one
// that lives, and may be on the card by right.
func (h *hook) over(i world.Item) bool {
	j := i.Creator.Job
	if j == nil { // he may claim to be of such a job, or be taken for one's of his user that has the card too
		return (i.Creator.Env == 0 || h.ordered) && !h.passesFor(i)
	}
	return j == h.job || h.ordered && j.Closed > 0 && j.Closed <= h.began
}

func (h *hook) said(c *world.Card) bool {
	return slices.ContainsFunc(h.found, func(f finding.Finding) bool { return f.GPU == c.Device.ID && f.Code != code.Trespass })
}

// due reports whether all that the design asks of a drain is there, and nothing that might speak against it: it is
// for judging the judge, so it asks for more than that.
func (h *hook) due(c *world.Card, s *start, stock world.Stock) bool {
	site := h.node.Site
	if h.again || !h.ordered || s == nil || !s.on || s.reruns > 0 || site.MIG || site.InJob || site.Sharing != world.Exclusive || len(s.stock[c]) > 0 || h.slowUntil > 0 {
		return false
	}
	for _, j := range h.node.Jobs {
		if j != h.job && (j.Live || j.Closed == 0 || j.Closed > h.began) {
			return false
		}
	}
	for _, p := range h.node.Processes() { // one of the node's own that looks like nobody's, or that came meanwhile
		if p.OfNode && p.Control && (p.Service == "" || p.Start > h.job.Allocated) {
			return false
		}
	}
	var held uint64
	for _, i := range stock {
		if i.Fate != world.Stuck || i.Since > h.began || i.Moves() || i.Way == world.Managed || i.Way == world.Imported || !h.plainly(i) {
			return false
		}
		if !i.Unlisted {
			held += i.Bytes
		}
	}
	if unlisted := stock.Unlisted(); unlisted >= h.limits.Report+tolerance(stock) {
		if held += unlisted - tolerance(stock); h.candidates(stock) > 0 {
			return false
		}
	}
	return held >= h.limits.Drain && c.Changed < h.began && h.node.Departed < h.began
}

// plainly reports that nothing about an item's holders speaks for anybody but the ended job, or nobody.
func (h *hook) plainly(i world.Item) bool {
	for _, p := range i.Holders {
		if p.AliveAt(h.sawAt) && (p.State == "D" || p.UID == 0 || p.Service != "" || p.Env != 0 && p.Job == nil || p.Job != nil && p.Job != h.job) {
			return false
		}
	}
	return true
}

// candidates counts who has the driver open, is not listed here, and keeps nothing of this stock or, if he does, is not
// the only one.
func (h *hook) candidates(stock world.Stock) (others int) {
	keepers := 0
	for _, p := range h.node.Processes() {
		listed := slices.ContainsFunc(stock, func(i world.Item) bool { return !i.Unlisted && i.Creator == p })
		switch {
		case !p.Control || p.Service != "" || listed:
		case slices.ContainsFunc(stock, func(i world.Item) bool { return slices.Contains(i.Holders, p) }):
			keepers++
		default:
			others++
		}
	}
	return others + max(0, keepers-1)
}

// blames judges every owner that is named on evidence which counts as such.
func (h *hook) blames() {
	for _, f := range h.found {
		if f.Owner == nil || f.Owner.Level == attrib.ByEnvironment || f.Owner.Level == attrib.None {
			continue
		}
		c := h.card(f.GPU)
		if c == nil {
			continue
		}
		h.tally.blamed++
		right, about := h.blamed(f, c)
		switch {
		case right:
		case f.Owner.Level == attrib.ByExclusive: // worded "probably", and counted
			h.tally.misguessed++
		default:
			h.fail(wrongBlame, "%s on %s: job %d by %s; %s", f.Code, c.Device.ID, f.Owner.Job, f.Owner.Level, inWords(about))
		}
	}
}

// blamed reports whether a finding's owner may be right, and what it is about.
func (h *hook) blamed(f finding.Finding, c *world.Card) (right bool, about world.Stock) {
	for _, i := range h.node.Stock(c, h.sawAt) {
		listed := false
		if f.Holder != nil {
			i.Listed(h.sawAt, func(p *world.Process) { listed = listed || p.PID == f.Holder.PID })
		}
		if f.Holder != nil && listed || f.Holder == nil && i.Unlisted {
			about = append(about, i)
		}
	}
	if len(about) == 0 && f.Code == code.Trespass {
		return true, nil // the look at other cards is an older one
	}
	for _, i := range about {
		for _, j := range h.node.Blamable(i.Chunk) {
			if j.ID == f.Owner.Job || f.Owner.Job == 0 && f.Owner.SLUID == j.SLUID || doubted(f, j) {
				return true, about
			}
		}
	}
	return false, about
}

// doubted reports that a finding says itself that it may be that job's.
func doubted(f finding.Finding, j *world.Job) bool {
	return slices.Contains(f.Doubts, fmt.Sprintf("job %d could own it as well", j.ID))
}

func (h *hook) card(id gpu.ID) *world.Card {
	for _, c := range h.node.Cards {
		if c.Device.ID == id {
			return c
		}
	}
	return nil
}

// inWords tells what lies on a card.
func inWords(s world.Stock) string {
	text := ""
	for _, i := range s {
		whose := "nobody's"
		if j := i.Creator.Job; j != nil {
			whose = fmt.Sprintf("job %d's", j.ID)
		}
		text += fmt.Sprintf("[%d MiB of process %d, %s, %s, way %d, unlisted %v]", i.Bytes/world.MiB, i.Creator.PID, whose, i.Fate, i.Way, i.Unlisted)
	}
	if text == "" {
		return "nothing there"
	}
	return text
}

// say tells a listener what the hook made of it all.
func (h *hook) say() {
	if h.tell == nil {
		return
	}
	say := func(format string, args ...any) { h.tell(h.node.Boottime(h.node.Now), fmt.Sprintf(format, args...)) }
	say("%s of job %d (%s): %s, exit %d, last look at %.3f s", h.end, h.job.ID, h.damage, h.verdict.Action, h.verdict.Exit, h.node.Boottime(h.sawAt).Seconds())
	for _, c := range h.cards {
		curve := h.now.Curves[c.Device.ID]
		r, _ := h.now.Snapshot.Reading(c.Device.ID)
		say("  %s: %s, %d looks over %.2f s, used %d MiB, listed %v", c.Device.ID, curve.State, curve.Looks, curve.Span.Seconds(), r.Memory.Used.Bytes/world.MiB, r.Processes)
		if curve.State == settle.Clean && len(h.node.Stock(h.card(c.Device.ID), h.sawAt)) > 0 {
			say("  in truth: %s", inWords(h.node.Stock(h.card(c.Device.ID), h.sawAt)))
		}
	}
	for i, f := range h.found {
		say("  %s %s %d MiB %q", f.Code, f.GPU, f.Bytes.Bytes/world.MiB, f.Unknown)
		if f.Holder != nil {
			say("    holder %+v", f.Holder.Process)
		}
		if f.Owner != nil {
			say("    owner job %d %s, %s", f.Owner.Job, f.Owner.SLUID, f.Owner.Level)
		}
		for _, other := range f.Candidates {
			say("    candidate %+v", other.Process)
		}
		say("    doubts %q, action %s", f.Doubts, h.verdict.Judged[i].Action)
	}
}

// passesFor reports a process without a mark whose user has a live job on the card by right.
func (h *hook) passesFor(i world.Item) bool {
	return slices.ContainsFunc(h.node.Jobs, func(j *world.Job) bool {
		return j != h.job && (j.Live || j.Closed == 0) && j.UID == i.Creator.UID && j.Has(i.Card)
	})
}

// sharesOnRecord reports another job of the card that has begun, as far as records tell: of one whose prolog is still to
// come no hook can know.
func (h *hook) sharesOnRecord(c *world.Card) bool {
	return slices.ContainsFunc(h.book.runs, func(r ledger.Run) bool {
		has := slices.ContainsFunc(r.Devices, func(d ledger.Assigned) bool { return d.Device.ID == c.Device.ID })
		return r.Job.ID != h.job.ID && !r.Closed() && has
	})
}

// shared reports memory that two processes are listed for: as much of the rest cannot be told.
func shared(stock world.Stock) bool {
	return slices.ContainsFunc(stock, func(i world.Item) bool { return i.Way == world.Imported })
}
