package main

import (
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/serve"
	"bookend/internal/wire"
)

// session is one request being served.
type session struct {
	serve.Session
	lib     *library
	slots   []opened         // nil until the driver said how many
	opening time.Duration    // how long the last attempt took, while something could not be opened
	last    gpu.Snapshot     // the newest look
	wholes  map[gpu.ID]whole // of a recording
}

// answer serves a request.
func answer(asked serve.Session) error {
	if asked.Req.Op == wire.Probe {
		return serveProbe(asked)
	}
	lib, fault, err := openLibrary(asked.Req.Options[optionNVML])
	if err != nil {
		return err
	}
	if fault != nil {
		return asked.Finish(*fault)
	}
	s := session{Session: asked, lib: lib}
	if s.Req.Op == wire.Record {
		s.wholes = map[gpu.ID]whole{}
		err = s.Record(s.record, s.unused)
	} else if err = s.Watch(&s); err == nil {
		err = s.tellHealth(s.End())
	}
	if err != nil {
		return err
	}
	return s.Finish()
}

// Look reads every device, side by side.
func (s *session) Look() (gpu.Snapshot, error) {
	type answer struct {
		reading gpu.Reading
		faults  []gpu.Fault
	}
	devices, faults, err := s.open()
	if err != nil {
		return gpu.Snapshot{}, err
	}
	answers, err := serve.Parallel(len(devices), func(i int) answer {
		reading, faults := s.lib.read(devices[i], lists)
		return answer{reading, faults}
	})
	look := gpu.Snapshot{At: s.Boot(), Driver: s.lib.driver, Readings: []gpu.Reading{}, Faults: faults}
	for _, a := range answers {
		look.Readings = append(look.Readings, a.reading)
		look.Faults = append(look.Faults, a.faults...)
	}
	s.last = look
	return look, err
}

// open opens every device that is not open, and so tries again what failed in an earlier look: one failed call
// proves nothing. Each has a thread of its own: attaching costs 6.5 ms and more a GPU, and the driver overlaps
// it. What is open stays so: reading it again is the retry.
func (s *session) open() ([]device, []gpu.Fault, error) {
	switch {
	case s.slots != nil:
	case s.Req.All:
		count, failed := ask(s.lib.api.DeviceGetCount, s.lib, "nvmlDeviceGetCount_v2")
		if failed != nil {
			return nil, []gpu.Fault{*s.lib.about(gpu.Device{}, *failed)}, nil
		}
		s.slots = make([]opened, count)
	default:
		s.slots = make([]opened, len(s.Req.Devices))
		for i, d := range s.Req.Devices {
			s.slots[i].asked = d
		}
	}
	open := func(o opened) bool { return len(o.devices) > 0 }
	if !slices.ContainsFunc(s.slots, func(o opened) bool { return !open(o) }) {
		devices, faults := s.gather()
		return devices, faults, nil
	}
	begin := s.Boot()
	results, err := serve.Parallel(len(s.slots), func(i int) opened {
		switch slot := s.slots[i]; {
		case open(slot):
			return slot
		case s.Req.All:
			return s.lib.openIndex(i)
		default:
			return s.lib.openAsked(slot.asked)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	s.slots = results
	devices, faults := s.gather()
	if s.opening = s.Boot() - begin; len(faults) == 0 {
		s.opening = 0
	}
	return devices, faults, nil
}

// gather keeps each device once: a request may name one twice, by its bus id and by its id.
func (s *session) gather() (devices []device, faults []gpu.Fault) {
	seen := map[gpu.ID]bool{}
	for _, slot := range s.slots {
		for _, d := range slot.devices {
			if !seen[d.ID] {
				devices = append(devices, d)
			}
			seen[d.ID] = true
		}
		if slot.fault != nil {
			faults = append(faults, *slot.fault)
		}
	}
	return devices, faults
}

// Slow is how long the last attempt to open devices took, while one could not be opened.
func (s *session) Slow() time.Duration { return s.opening }

// Watched are the devices that have to come to rest: also those that could not be opened so far.
func (s *session) Watched() []gpu.Device {
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
