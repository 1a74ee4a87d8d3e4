package session

import (
	"maps"
	"slices"
	"time"

	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/wire"
)

// Glance looks once at every GPU of the node, and reads who is on them: a health check's first target. Without a
// reading there is no more than the list of GPUs.
func (d *Driver) Glance(i Inventory) judge.Seen {
	seen := judge.Seen{Epoch: i.Epoch, Given: i.Given}
	if len(i.Cards) == 0 {
		return seen
	}
	timeout := d.Left(time.Duration(d.Times.Driver), d.Reserve())
	answer := d.askBackend(wire.Request{
		Bookend: wire.Version, Op: wire.Snapshot, All: true, DeadlineMillis: timeout.Milliseconds(),
		Health: true, Options: d.Config.NVIDIA.ForLooks(),
	})
	seen.Looks, seen.Health = d.looks, answer.Health
	var all gpu.Snapshot
	if n := len(answer.Snapshots); n > 0 {
		all = answer.Snapshots[n-1]
	}
	seen.Cards = withReadings(i.Cards, all)
	if len(all.Readings) == 0 {
		d.Mismatched(i)
		seen.Side.Snapshot = all
		return seen
	}
	seen.Side = judge.Glance(d, all)
	return seen
}

// LookCloser watches some of those GPUs until they settle: a health check's second target. The others were seen at the
// glance.
func (d *Driver) LookCloser(c judge.Check, cards []finding.Card) judge.Residue {
	others := c.Seen.Side.Snapshot
	others.Readings = slices.DeleteFunc(slices.Clone(others.Readings), func(r gpu.Reading) bool {
		return slices.ContainsFunc(cards, func(card finding.Card) bool { return card.Device.ID == r.Device.ID })
	})
	d.first.neighbours = &others
	side, cards := d.Look(c.Case, cards)
	return judge.Residue{Cards: cards, Side: side}
}

// everyCard are the GPUs that the driver has, with Slurm's numbers of them: as those of a job that has all. A number
// that is not certain is -1.
func everyCard(cards []gpu.Card, n config.NVIDIA, list slurmconf.List) []finding.Card {
	numbers := map[gpu.BusID]int{}
	for _, d := range slurmconf.Devices(slurm.Job{GPUIndexes: indexesOf(n, list)}, cards, n, list).Devices {
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
func indexesOf(n config.NVIDIA, list slurmconf.List) (indexes []int) {
	if len(n.GPUMap) > 0 {
		return slices.Sorted(maps.Keys(n.GPUMap))
	}
	for i := range list.GPUs {
		indexes = append(indexes, i)
	}
	return indexes
}

// withReadings joins the driver's own list of GPUs with what a look at all of them saw: MIG instances stand for the GPU
// they are part of, and Slurm's numbers of them are not known.
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
