package main

import (
	"slices"

	"bookend/internal/record"
	"bookend/test/soak/world"
)

// What no hook can know from its records and readings, and is therefore not asked for.

// unnamed reports a site whose Slurm gives a run no name of its own (22.05): an epilog takes the newest record of the
// job id.
func (h *hook) unnamed() bool { return !h.node.Site.SLUIDs && !h.node.Site.StartTimes }

// nameless reports a run whose epilog may find an earlier run's record, which was left open.
func (h *hook) nameless() bool { return h.job.Restarts > 0 && h.unnamed() }

// asService is how much of what nobody is listed for may pass for a service's: as much as a baseline may explain while
// one has the card open, and later in its epoch what was learned of it, for a look at a clean card asks nobody whether
// the service still runs.
func (h *hook) asService(c *world.Card, unlisted uint64) uint64 {
	if unlisted <= record.MaxBaseline && h.node.Shows(c) {
		return unlisted
	}
	return min(unlisted, h.learned(c))
}

// learned is what a card's baseline explains, where there was a service to learn it from.
func (h *hook) learned(c *world.Card) uint64 {
	if !c.Served {
		return 0
	}
	return h.Past.Baselines[c.Device.ID].Bytes
}

// passesFor reports a process without a mark whose user has a live job on the card by right, or one that lives on
// record: its epilog did not run, or left no record.
func (h *hook) passesFor(i world.Item) bool {
	live := slices.ContainsFunc(h.node.Jobs, func(j *world.Job) bool {
		return j != h.job && (j.Live || j.Closed == 0) && j.UID == i.Creator.UID && j.Has(i.Card)
	})
	return live || slices.ContainsFunc(h.book.runs, func(r record.Run) bool {
		return r.Job.UID == i.Creator.UID && h.openOn(i.Card, r)
	})
}

// sharesOnRecord reports another job of the card that has begun, as far as records tell: of one whose prolog is still
// to come no hook can know.
func (h *hook) sharesOnRecord(c *world.Card) bool {
	return slices.ContainsFunc(h.book.runs, func(r record.Run) bool { return h.openOn(c, r) })
}

// onRecord reports a job that a record without an end tells of.
func (h *hook) onRecord(j *world.Job) bool {
	return slices.ContainsFunc(h.book.runs, func(r record.Run) bool {
		return r.Job.ID == j.ID && r.Running(h.book.runs) && !r.Epoch.OtherBoot(h.node.Epoch)
	})
}

// openOn reports another job's record of this epoch that has the card and no end.
func (h *hook) openOn(c *world.Card, r record.Run) bool {
	has := slices.ContainsFunc(r.Devices, func(d record.Assigned) bool { return d.Device.ID == c.Device.ID })
	return r.Job.ID != h.job.ID && !r.Closed() && !r.Epoch.OtherBoot(h.node.Epoch) && has
}

// hidden is what a balance lacks because of shared memory: each process that shares it is listed for all of it, so that
// as much of the rest passes for theirs.
func (h *hook) hidden(stock world.Stock) uint64 {
	var sum uint64
	if h.node.Site.AMD {
		sum = world.DriversOwn
	}
	for _, i := range stock {
		listed := uint64(0)
		i.Listed(h.seen.last, func(*world.Process) { listed++ })
		sum += i.Bytes * (max(1, listed) - 1)
	}
	return sum
}

// reborn reports memory of a dead process whose PID the start listed for as much or more, of one that was dead too: of
// the dead nothing but a number and a figure is known, and less may be what is left of more.
func (h *hook) reborn(i world.Item, before world.Stock) bool {
	const asMuch = 8 * world.MiB
	return i.Creator.Dead && slices.ContainsFunc(before, func(b world.Item) bool {
		return b.Creator != i.Creator && b.Creator.PID == i.Creator.PID && i.Bytes <= b.Bytes+asMuch
	})
}

// cleared reports memory of a live job whose record is damaged, on a GPU that it was not given or did not use: a check
// has seen that GPU clear since.
func (h *hook) cleared(c *world.Card, stock world.Stock) bool {
	for _, d := range h.book.damaged {
		its := func(p *world.Process) bool { return p.Job != nil && p.Job.ID == d.Job }
		if !d.MayHold(c.Device.ID) && slices.ContainsFunc(stock, func(i world.Item) bool {
			return its(i.Creator) || slices.ContainsFunc(i.Holders, its)
		}) {
			return true
		}
	}
	return false
}
