package main

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/soak/world"
)

// judge compares what a hook said with what is true, as of its last look.
func (h *hook) judge() {
	h.tally.hooks++
	if h.damage.kind != whole {
		h.tally.damaged++
	}
	h.say()
	if h.damage.kind == unwritten || h.damage.kind == forgotten || h.damage.kind == damagedRecord || h.job.NoProlog || h.seen.last == 0 {
		h.missed = h.node.Now
	}
	h.drains()
	h.deadly()
	h.blames()
	h.bystanders()
	if h.Phase == slurm.Prolog {
		if h.damage.kind == whole && !h.unjudged() {
			for _, c := range h.job.Cards {
				h.unsaid(c, fmt.Sprint("at the start of job ", h.job.ID))
			}
		}
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

// keepStart remembers what lay on the job's cards: the first prolog counts, or the newest of a run without a name of
// its own, for which each prolog seems to be another run's.
func (h *hook) keepStart() {
	old := h.starts[h.job]
	s := &start{
		job: h.job, whole: h.damage.kind == whole, on: h.damage.kind != unwritten, again: old != nil,
		cards: map[*world.Card]startOn{},
	}
	for _, c := range h.job.Cards {
		stock := h.node.Stock(c, h.seen.last)
		unlisted := stock.Unlisted(world.Stuck, world.Alive)
		asService := h.asService(c, unlisted)
		if h.node.Site.NUMA { // nothing shows it
			asService = unlisted
		}
		s.cards[c] = startOn{stock: stock, asService: asService, said: h.said(c)}
	}
	if s.on {
		h.prologs[h.Seen.Side.Snapshot.At] = s
	}
	if old == nil || !old.on || h.unnamed() && s.on {
		h.starts[h.job] = s
	}
}

// startOnRecord is the start that an end was compared with: that of its record. A record that was lost leaves another
// prolog's of the job, where there was one.
func (h *hook) startOnRecord() *start {
	if h.Past.Before != nil {
		if s := h.prologs[h.Past.Before.Snapshot.At]; s != nil && s.job == h.job {
			return s
		}
	}
	return h.starts[h.job]
}

func (h *hook) drains() {
	if h.Exit == 0 {
		return
	}
	h.tally.drains++
	for i, f := range h.Found {
		if h.Drains(i) {
			h.drain(f)
		}
	}
}

// drain judges one. That jobs take turns on a card only records can tell: where some were lost, no more is asked of
// a drain than that what it is for stays.
func (h *hook) drain(f record.Finding) {
	c := h.card(f.GPU)
	if c == nil || !h.job.Has(c) {
		h.fail(falseDrain, "%s for %s, which is none of job %d's GPUs", f.Code, f.GPU, h.job.ID)
		return
	}
	if f.Code == catalog.Lost {
		if h.seen.last < c.Lost {
			h.fail(falseDrain, "%s is not lost", c.Device.ID)
		}
		return
	}
	if f.Code.Traits().Condition {
		h.untrustworthy(f, c)
		return
	}
	if f.Code == catalog.NoAnswer {
		if h.damage.kind != driverError {
			h.fail(falseDrain, "%s answers", c.Device.ID)
		}
		return
	}
	stock, s := h.node.Stock(c, h.seen.last), h.startOnRecord()
	stays := stock.Of(world.Stuck, world.Passing)
	switch {
	case h.node.Site.AMD:
		h.fail(falseDrain, "%s on %s, whose driver nobody has tried", f.Code, c.Device.ID)
	case h.Phase == slurm.Prolog:
		h.fail(falseDrain, "%s at a start", f.Code)
	case h.node.SharedByRight(h.job, c) && (h.node.Site.Sharing != world.Gang || h.ordered() && h.sharesOnRecord(c)):
		h.fail(falseDrain, "%s on %s, which others may use", f.Code, c.Device.ID)
	case h.cleared(c, stock): // the design lets the doubt end so
	case stays < h.limits.Drain:
		h.fail(falseDrain, "%s on %s, where %d MiB stay: %s", f.Code, c.Device.ID, stays/world.MiB, inWords(stock))
	case h.nameless() && h.Past.Before != nil &&
		h.Past.Before.Snapshot.At < h.node.Boottime(h.job.Allocated): // an earlier run's
	case s == nil || !s.on || h.Past.Before == nil:
		h.fail(breach, "%s on %s without a record of the start of job %d", f.Code, c.Device.ID, h.job.ID)
	case s != h.prologs[h.Past.Before.Snapshot.At]:
		h.fail(breach, "%s on %s by a record that is not of the start of job %d", f.Code, c.Device.ID, h.job.ID)
	case s.cards[c].said:
		h.fail(breach, "%s on %s, of which the start of job %d had something to say", f.Code, c.Device.ID, h.job.ID)
	case s.cards[c].dirty() >= h.limits.Report:
		const words = "%s on %s, which was not clean at the start of job %d: %s"
		h.fail(breach, words, f.Code, c.Device.ID, h.job.ID, inWords(s.cards[c].stock))
	}
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

// unsaid judges what was not said at a start, or by a health check: what is stuck on a card must be.
func (h *hook) unsaid(c *world.Card, when string) {
	stock := h.node.Stock(c, h.seen.last)
	stuck := stock.Unlisted(world.Stuck)
	stuck -= h.asService(c, stuck)
	big := slices.ContainsFunc(stock, func(i world.Item) bool { return h.big(i) && h.over(i) && !h.waits(i) })
	h.names(c, stock, nil)
	if c.Outside || h.seen.last >= c.Lost || !big && stuck < h.limits.Report+tolerance(stock)+h.hidden(stock) {
		return
	}
	h.tally.leaks++
	if !h.said(c) {
		h.fail(missedLeak, "%s %s: %s", c.Device.ID, when, inWords(stock))
	}
}

// big is what is stuck, listed and worth a finding.
func (h *hook) big(i world.Item) bool {
	return i.Fate == world.Stuck && !i.Unlisted && i.Bytes >= h.limits.Report
}

// waits is what may be a server of MPS without clients, by its name and by how little it has: a health check lets it be.
func (h *hook) waits(i world.Item) bool {
	const idle = 128 * world.MiB
	named := i.Creator.Name == world.MPSProgram || i.Creator.Exe != ""
	return h.Phase == slurm.HealthCheck && named && i.Least() <= idle
}

// names judges what must be said of each stuck process by itself, whatever else goes on on its GPU: one that was listed
// there all the time that the hook watched.
func (h *hook) names(c *world.Card, stock, before world.Stock) {
	if h.Seen.Side.Curves[c.Device.ID].Span < time.Duration(h.settle.Flat) || h.seen.last >= c.Lost {
		return // what was not watched long enough is only said to be moving
	}
	for _, i := range stock {
		p := i.Creator
		stuck := i.Fate == world.Stuck && p.Stays() && h.watched(i)
		alone := stuck && i.Way == world.Plain && i.Bytes >= h.limits.Report
		if !alone || c.Outside || h.waits(i) || before.Has(i.Chunk) || !h.over(i) {
			continue
		}
		h.tally.named++
		named := func(f record.Finding) bool { return f.GPU == c.Device.ID && f.Holder != nil && f.Holder.PID == p.PID }
		if !slices.ContainsFunc(h.Found, named) {
			h.fail(missedLeak, "%s: process %d is not named: %s", c.Device.ID, p.PID, inWords(stock))
		}
	}
}

// unjudged reports a site on which memory means little, or belongs to several by right.
func (h *hook) unjudged() bool {
	s := h.node.Site
	switch s.Sharing {
	case world.SharedByName, world.SharedByMPS, world.SharedShards:
		return true
	}
	return s.NUMA
}

// leak judges an epilog: what is stuck on a card and was not there before must be said, and drain where it is due.
func (h *hook) leak(c *world.Card) {
	s := h.startOnRecord()
	unknown := s != nil && !s.whole || s == nil && h.nameless()
	if h.damage.kind != whole || h.unjudged() || h.seen.last >= c.Lost || unknown {
		return
	}
	stock := h.node.Stock(c, h.seen.last)
	var before world.Stock
	if s != nil {
		before = s.cards[c].stock
	}
	stuck := stock.Sum(func(i world.Item) bool { // that was not there before: a job need not leave its card cleaner
		return i.Unlisted && i.Fate == world.Stuck && !before.Has(i.Chunk)
	})
	fresh := stuck >= max(before.Unlisted(), h.learned(c))+h.limits.Report+tolerance(stock, before)+h.hidden(stock)
	for _, i := range stock {
		fresh = fresh || h.big(i) && !before.Has(i.Chunk) && h.over(i) && !h.reborn(i, before)
	}
	h.names(c, stock, before)
	if !fresh {
		return
	}
	h.tally.leaks++
	if !h.said(c) {
		const words = "%s at the end of job %d: %s; at its start: %s"
		h.fail(missedLeak, words, c.Device.ID, h.job.ID, inWords(stock), inWords(before))
		return
	}
	if h.due(c, s, stock) {
		h.tally.due++
		if h.Exit == 0 {
			h.fail(missedDrain, "%s at the end of job %d: %s", c.Device.ID, h.job.ID, inWords(stock))
		}
	}
}

// over reports that the records can show an item's job to be over: without its epilog one that has ended looks like one
// that lives, and may be on the card by right.
func (h *hook) over(i world.Item) bool {
	j := i.Creator.Job
	if j == nil { // he may claim to be of such a job, or be taken for one's of his user that has the card too
		return (i.Creator.Env == 0 || h.ordered()) && !h.passesFor(i)
	}
	if j == h.job {
		return true
	}
	return h.ordered() && j.Closed > 0 && j.Closed <= h.seen.began && (i.Creator.Cgroup.Found() || !h.passesFor(i))
}

func (h *hook) said(c *world.Card) bool {
	return slices.ContainsFunc(h.Found, func(f record.Finding) bool {
		if f.Owner != nil && f.Owner.Level == record.ByRecorder || f.Code == catalog.Unjudged || f.Code == catalog.XidFatal {
			return false
		}
		return f.GPU == c.Device.ID && (f.Code != catalog.Trespass || h.Phase == slurm.HealthCheck)
	})
}

// due reports whether all that the design asks of a drain is there, and nothing that might speak against it: it is
// for judging the judge, so it asks for more than that.
func (h *hook) due(c *world.Card, s *start, stock world.Stock) bool {
	site := h.node.Site
	switch {
	case h.Past.Turn == judge.Repeated, h.cut(), !h.ordered(), h.seen.slowUntil > 0:
		return false
	case s == nil || !s.on || s.reruns > 0 || len(s.cards[c].stock) > 0 || h.job.Allocated < h.node.Loaded:
		return false
	case h.unnamed() && (s.again || h.job.Restarts > 0):
		return false
	case site.MIG, site.AMD, site.InJob, site.Sharing != world.Exclusive:
		return false
	}
	for _, j := range h.node.Jobs {
		if j != h.job && (j.Live || j.Closed == 0 || j.Closed > h.seen.began) {
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
		plain := i.Way != world.Managed && i.Way != world.Imported && h.plainly(i)
		if i.Fate != world.Stuck || i.Since > h.seen.began || !plain {
			return false
		}
		if !i.Unlisted && (!stock.Moves() || h.alone(i)) {
			held += i.Bytes
		}
	}
	if unlisted := stock.Unlisted(); unlisted >= h.limits.Report+tolerance(stock)+mayLearn(stock) {
		if held += unlisted - tolerance(stock); h.candidates(stock) > 0 || stock.Moves() {
			return false
		}
	}
	moves := slices.ContainsFunc(h.job.Cards, func(c *world.Card) bool { return h.node.Stock(c, h.seen.last).Moves() })
	if moves && slices.ContainsFunc(stock, h.asksForTime) {
		return false // a second watch may have too little time after one that some card made last
	}
	return held >= h.limits.Drain && c.Changed < h.seen.began && h.node.Departed < h.seen.began
}

// asksForTime reports memory that is watched for the flat time once more: of a dead PID, or of a process that names a job
// of which nothing else tells.
func (h *hook) asksForTime(i world.Item) bool {
	names := func(p *world.Process) bool { return p.Env != 0 && p.Env != h.job.ID && p.Env != h.job.Het }
	return i.Creator.Dead || names(i.Creator) || slices.ContainsFunc(i.Holders, names)
}

// mayLearn is how much of a stock may pass for what the driver holds for the listed: what samples of jobs that were made
// to leave memory without a process may have taught, up to a bound for each.
func mayLearn(stock world.Stock) (sum uint64) {
	const most = 64 * world.MiB
	for _, i := range stock {
		if !i.Unlisted {
			sum += most
		}
	}
	return sum
}

// alone reports an item that proves by itself that its GPU is unusable, whatever the total does.
func (h *hook) alone(i world.Item) bool {
	const mayFall = 64 * world.MiB // within the seconds of a watch and those that follow
	most := i.Least()
	if i.Moves() {
		most -= min(most, mayFall)
	}
	return i.Way == world.Plain && !i.Tides() && h.watched(i) && most >= h.limits.Drain
}

// watched reports an item that was there for the whole watch. A process that started within a tick of the first look
// cannot be told from one that took its PID since.
func (h *hook) watched(i world.Item) bool { return i.Since+record.Tick < h.seen.first }

// plainly reports that nothing about an item's holders speaks for anybody but the ended job, or nobody. In a container
// a process may be of any user.
func (h *hook) plainly(i world.Item) bool {
	for _, p := range i.Holders {
		if !p.AliveAt(h.seen.last) {
			continue
		}
		apart := p.Container != "" || p.OtherPIDs
		anothers := p.Env != 0 && p.Job == nil || p.Job != nil && p.Job != h.job
		if apart && p.UID != h.job.UID || p.Exiting || p.UID == 0 || p.Service != "" || anothers {
			return false
		}
	}
	return true
}

// candidates counts who has the driver open, is not listed here, and keeps nothing of this stock or, if he does, is not
// the only one. Of the ended job's own there may be any number.
func (h *hook) candidates(stock world.Stock) (others int) {
	keepers, strangers := 0, false
	for _, p := range h.node.Processes() {
		listed := slices.ContainsFunc(stock, func(i world.Item) bool { return !i.Unlisted && i.Creator == p })
		switch {
		case !p.Control || p.Service != "" || listed:
		case slices.ContainsFunc(stock, func(i world.Item) bool { return slices.Contains(i.Holders, p) }):
			keepers++
			strangers = strangers || p.Job != h.job
		default:
			others++
		}
	}
	if strangers {
		others += keepers - 1
	}
	return others
}

func (h *hook) card(id gpu.ID) *world.Card {
	for _, c := range h.node.Cards {
		if c.Device.ID == id {
			return c
		}
	}
	return nil
}
