package stage

import (
	"maps"
	"slices"
	"time"

	"bookend/internal/backend"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/look"
	"bookend/internal/numbering"
	"bookend/internal/slurm"
	"bookend/internal/wire"
)

// lookAround asks the driver once for every card of the node, and reads who is on them.
func (c *check) lookAround() {
	if !c.driverAnswers() {
		return
	}
	defer c.leaveContact()
	if !c.meet() {
		return
	}
	c.inventory()
	if len(c.cards) == 0 {
		return
	}
	c.recallBaselines()
	listed := c.cards
	c.cards = nil
	c.glance()
	c.every = withReadings(listed, c.seen)
	if len(c.seen.Readings) == 0 {
		c.mismatched(c.library)
		return
	}
	c.side = look.Once(c, c.seen)
	c.healthLook = c.seen
}

// glance is that one look.
func (c *check) glance() {
	timeout := c.left(time.Duration(c.times.Driver), c.reserve())
	answer := backend.Ask(backend.Params{
		Path: c.cfg.Backend, Root: c.env.EUID == 0,
		Started: c.started(opBackend), Answered: func() { c.contact.met(true) },
	}, wire.Request{
		Bookend: wire.Version, Op: wire.Snapshot, All: true, DeadlineMillis: timeout.Milliseconds(),
		Health: c.cfg.Look.Health, Options: options(c.cfg.NVIDIA),
	})
	c.looks += len(answer.Snapshots)
	c.health = answer.Health
	c.troubles(answer)
	if n := len(answer.Snapshots); n > 0 {
		c.seen = answer.Snapshots[n-1]
	}
}

// everyCard are the GPUs that the driver has, with Slurm's numbers of them: as those of a job that has all. A number that is
// not certain is -1.
func everyCard(cards []gpu.Card, n config.NVIDIA, list numbering.List) []finding.Card {
	numbers := map[gpu.BusID]int{}
	for _, d := range numbering.Devices(slurm.Job{GPUIndexes: indexesOf(n, list)}, cards, n, list).Devices {
		numbers[d.Device.BusID] = d.Index
	}
	var all []finding.Card
	for _, c := range cards {
		if c.Excluded {
			continue
		}
		index, known := numbers[c.Device.BusID]
		if !known {
			index = -1
		}
		all = append(all, finding.Card{Index: index, Device: c.Device})
	}
	return all
}

// indexesOf are the numbers that Slurm may give out on this node.
func indexesOf(n config.NVIDIA, list numbering.List) (indexes []int) {
	if n.GPUOrder == config.OrderMap {
		return slices.Sorted(maps.Keys(n.GPUMap))
	}
	for i := range max(list.Count, len(list.GPUs)) {
		indexes = append(indexes, i)
	}
	return indexes
}

// withReadings joins the driver's own list of GPUs with what a look at all of them saw: MIG instances stand for the GPU they
// are part of, and Slurm's numbers of them are not known.
func withReadings(cards []finding.Card, s gpu.Snapshot) (all []finding.Card) {
	cut := map[gpu.ID]bool{}
	for _, r := range s.Readings {
		if r.Device.Parent != "" {
			cut[r.Device.Parent] = true
		}
	}
	number := map[gpu.BusID]int{}
	for _, c := range cards {
		number[c.Device.BusID] = c.Index
	}
	unread := slices.Clone(cards)
	for _, r := range s.Readings {
		unread = slices.DeleteFunc(unread, func(c finding.Card) bool { return c.Device.BusID == r.Device.BusID })
		if cut[r.Device.ID] {
			continue
		}
		index, known := number[r.Device.BusID]
		if !known || r.Device.Parent != "" {
			index = -1
		}
		all = append(all, finding.Card{Index: index, Device: r.Device})
	}
	return append(all, unread...)
}

// given are the GPUs that Slurm gives out, or may: what is on another is no job's leftover, and nothing for Slurm to know.
func (c *check) given() []finding.Card {
	if c.slurms == nil {
		return c.every
	}
	return slices.DeleteFunc(slices.Clone(c.every), func(card finding.Card) bool {
		slurms, listed := c.slurms[card.Device.BusID]
		return listed && !slurms
	})
}

// addOn adds a finding on a card; a number that is not certain is none.
func (c *check) addOn(f finding.Finding) {
	if f.Index != nil && *f.Index < 0 {
		f.Index = nil
	}
	c.add(f)
}

// faultsOf adds what the driver said against cards that are not looked at again: of one look nothing is certain.
func (c *check) faultsOf(cards []finding.Card) {
	for _, f := range c.seen.Faults {
		found := finding.FromFault(f)
		found.Doubts = []string{"seen in one look only"}
		for _, card := range cards {
			if f.Device != "" && f.Device == card.Device.ID || f.BusID != "" && f.BusID == card.Device.BusID {
				found.GPU, found.Index = card.Device.ID, &card.Index
				c.addOn(found)
				break
			}
		}
	}
}
