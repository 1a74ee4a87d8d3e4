package main

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/wire"
)

const (
	// neighboursMost is the longest wait for the node's other cards. Four that are attached take 30 ms, and one that
	// tears memory down was measured to block for 380 ms; attaching one without persistence takes seconds, which is
	// not worth a hook's time.
	neighboursMost = time.Second
	// neighboursShare of the deadline is the most they get.
	neighboursShare = 4
	// neighboursLeast is the time below which nobody is asked.
	neighboursLeast = 100 * time.Millisecond
)

// lookElsewhere looks once at the node's other devices, if that was asked for and time is left. Whatever happens
// from here on costs the looks that were sent nothing.
func (s *session) lookElsewhere(end time.Duration) error {
	if !s.req.Neighbours || s.req.All {
		return nil
	}
	if err := s.out.Write(wire.Reply{Kind: wire.KindWatched}); err != nil {
		return err
	}
	limit := min(neighboursMost, s.req.Deadline()/neighboursShare, end-s.boot())
	if limit < neighboursLeast {
		return nil
	}
	look, err := s.neighbours(limit)
	if err != nil {
		return err
	}
	if err := s.out.Write(wire.Reply{Kind: wire.KindNeighbours, Snapshot: &look}); err != nil && !tooLong(err) {
		return err
	}
	return nil
}

// neighbour is what was seen at one index of the node.
type neighbour struct {
	readings []gpu.Reading
	faults   []gpu.Fault
}

// neighbours looks at every index that is not one of the cards asked for, each on a thread of its own: one that does
// not answer in time is a fault of that index.
func (s *session) neighbours(limit time.Duration) (gpu.Snapshot, error) {
	look := gpu.Snapshot{Driver: s.lib.driver, Readings: []gpu.Reading{}}
	count, failed := ask(s.lib.api.DeviceGetCount, s.lib, "nvmlDeviceGetCount_v2")
	if failed != nil {
		look.At, look.Faults = s.boot(), []gpu.Fault{s.lib.fault(*failed)}
		return look, nil
	}
	var indexes []int
	for i := range count {
		if !s.ownIndex(i) {
			indexes = append(indexes, i)
		}
	}
	seen, err := inParallel(len(indexes), time.After(limit), func(k int) neighbour { return s.neighbourAt(indexes[k]) })
	for k, n := range seen {
		if n == nil {
			silent := fmt.Sprintf("no answer from the card at index %d within %v", indexes[k], limit)
			n = &neighbour{faults: []gpu.Fault{{Code: gpu.FaultDriver, Detail: silent}}}
		}
		look.Readings = append(look.Readings, n.readings...)
		look.Faults = append(look.Faults, n.faults...)
	}
	look.At = s.boot()
	return look, err
}

func (s *session) neighbourAt(i int) neighbour {
	n := neighbour{}
	found := s.lib.openIndex(i)
	if found.fault != nil {
		n.faults = append(n.faults, *found.fault)
	}
	for _, d := range found.devices {
		if s.own(d) {
			continue
		}
		reading, faults := s.lib.read(d)
		n.readings = append(n.readings, reading)
		n.faults = append(n.faults, faults...)
	}
	return n
}

// ownIndex reports whether a whole card that was asked for is open at this index.
func (s *session) ownIndex(i int) bool {
	return slices.ContainsFunc(s.slots, func(slot slot) bool {
		return slices.ContainsFunc(slot.devices, func(d device) bool {
			return d.Parent == "" && !d.cut() && d.nvidia.NVMLIndex != nil && *d.nvidia.NVMLIndex == i
		})
	})
}

// own reports whether a device was asked for. A request may have named it by its bus id alone, which an instance
// shares with its siblings, or by an older form of its id.
func (s *session) own(d device) bool {
	return slices.ContainsFunc(s.slots, func(slot slot) bool {
		asked := slot.asked
		whole := d.Parent == "" && !isInstance(asked.ID)
		if d.ID == asked.ID || whole && asked.BusID != "" && d.BusID == asked.BusID {
			return true
		}
		return slices.ContainsFunc(slot.devices, func(o device) bool {
			return d.ID == o.ID || d.Parent != "" && d.Parent == o.Parent && d.at == o.at && d.at.gi != nowhere
		})
	})
}
