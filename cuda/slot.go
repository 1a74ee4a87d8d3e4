package main

import (
	"bookend/internal/gpu"
	"bookend/internal/wire"
)

// slot is one device that was asked for, or one index of the node where all were, and what became of it.
type slot struct {
	asked gpu.Device // empty for an index
	try   func() opened
	opened
}

// opened is a device, with its MIG instances where all were asked for, or why it could not be opened.
type opened struct {
	devices []device
	fault   *gpu.Fault
}

// slots lists what a request asks for, without touching any card.
func (l *library) slots(req wire.Request) ([]slot, *gpu.Fault) {
	if !req.All {
		slots := make([]slot, len(req.Devices))
		for i, d := range req.Devices {
			slots[i] = slot{asked: d, try: func() opened { return l.openAsked(d) }}
		}
		return slots, nil
	}
	count, failed := ask(l.api.DeviceGetCount, l, "nvmlDeviceGetCount_v2")
	if failed != nil {
		fault := l.fault(*failed)
		return nil, &fault
	}
	slots := make([]slot, count)
	for i := range slots {
		slots[i].try = func() opened { return l.openIndex(i) }
	}
	return slots, nil
}

// open opens every device that is not open, and so tries again what failed in an earlier look: one failed call
// proves nothing. Each has a thread of its own: attaching costs 6.5 ms and more a GPU, and the driver overlaps
// it. What is open stays so: reading it again is the retry.
func (s *session) open() ([]device, []gpu.Fault, error) {
	if s.slots == nil {
		var fault *gpu.Fault
		if s.slots, fault = s.lib.slots(s.req); fault != nil {
			return nil, []gpu.Fault{*fault}, nil
		}
	}
	var closed []*slot
	for i := range s.slots {
		if len(s.slots[i].devices) == 0 {
			closed = append(closed, &s.slots[i])
		}
	}
	begin := s.boot()
	results, err := inParallel(len(closed), nil, func(i int) opened { return closed[i].try() })
	s.opening = s.boot() - begin
	for i, r := range results {
		closed[i].opened = *r
	}
	devices, faults := gather(s.slots)
	if len(faults) == 0 {
		s.opening = 0
	}
	return devices, faults, err
}

// gather keeps each device once: a request may name one twice, by its bus id and by its id.
func gather(slots []slot) ([]device, []gpu.Fault) {
	var devices []device
	var faults []gpu.Fault
	seen := map[gpu.ID]bool{}
	for _, s := range slots {
		for _, d := range s.devices {
			if !seen[d.ID] {
				devices = append(devices, d)
			}
			seen[d.ID] = true
		}
		if s.fault != nil {
			faults = append(faults, *s.fault)
		}
	}
	return devices, faults
}

// watched are the devices that have to come to rest: also those that could not be opened so far.
func (s *session) watched() []gpu.Device {
	if s.slots == nil {
		return []gpu.Device{{}} // the driver did not say how many there are
	}
	var all []gpu.Device
	for _, slot := range s.slots {
		if len(slot.devices) == 0 {
			all = append(all, slot.asked)
		}
		for _, d := range slot.devices {
			all = append(all, d.Device)
		}
	}
	return all
}
