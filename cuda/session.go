package main

import (
	"slices"
	"time"

	"bookend/internal/backendkit"
	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/protocol"
)

type session struct {
	backendkit.Session
	lib    *library
	slots  []opened         // nil until the driver reported how many
	last   gpu.Snapshot     // the newest sample
	wholes map[gpu.ID]whole // while recording
}

func answer(asked backendkit.Session) error {
	if asked.Req.Op == protocol.Probe {
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
	if s.Req.Op == protocol.Record {
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

// Look opens and reads each GPU in its own thread: attaching takes 6.5 ms and more each, and the driver overlaps it.
func (s *session) Look() (gpu.Snapshot, error) {
	type answer struct {
		reading gpu.Reading
		faults  []gpu.Fault
	}
	if fault := s.list(); fault != nil {
		return s.blank(*fault), nil
	}
	answers, err := child.Parallel(len(s.slots), func(i int) (all []answer) {
		for _, d := range s.open(i) {
			reading, faults := s.lib.read(d, lists)
			all = append(all, answer{reading, faults})
		}
		return all
	})
	if err != nil {
		return gpu.Snapshot{}, err
	}
	_, faults := s.gather()
	look := s.blank(faults...)
	for _, a := range slices.Concat(answers...) {
		if _, twice := look.Reading(a.reading.Device.ID); twice {
			continue
		}
		look.Readings, look.Faults = append(look.Readings, a.reading), append(look.Faults, a.faults...)
	}
	s.last = look
	return look, nil
}

func (s *session) blank(faults ...gpu.Fault) gpu.Snapshot {
	return gpu.Snapshot{At: s.Boot(), Driver: s.lib.driver, Readings: []gpu.Reading{}, Faults: faults}
}

// list prepares a slot for each requested device, or returns why the driver does not report how many there are.
func (s *session) list() *gpu.Fault {
	switch {
	case s.slots != nil:
	case s.Req.All:
		count, failed := ask(s.lib.api.DeviceGetCount, s.lib, "nvmlDeviceGetCount_v2")
		if failed != nil {
			return s.lib.about(gpu.Device{}, *failed)
		}
		s.slots = make([]opened, count)
	default:
		s.slots = make([]opened, len(s.Req.Devices))
		for i, d := range s.Req.Devices {
			s.slots[i].asked = d
		}
	}
	return nil
}

// open opens a slot that is not open, again after a failed sample. An open one stays open: reading it is the retry.
func (s *session) open(i int) []device {
	slot := &s.slots[i]
	if len(slot.devices) > 0 {
		return slot.devices
	}
	begin := s.Boot()
	if s.Req.All {
		*slot = s.lib.openIndex(i)
	} else {
		*slot = s.lib.openAsked(slot.asked)
	}
	slot.took = s.Boot() - begin
	return slot.devices
}

// gather returns each device once: a request may name one twice, by its bus id and by its id.
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

// Slow returns the longest of the last attempts to open the devices that could not be opened.
func (s *session) Slow() (longest time.Duration) {
	for _, slot := range s.slots {
		if len(slot.devices) == 0 {
			longest = max(longest, slot.took)
		}
	}
	return longest
}

// Watched returns the devices that have to settle, including those that could not be opened so far.
func (s *session) Watched() []gpu.Device {
	if s.slots == nil {
		return []gpu.Device{{}} // the driver did not report how many there are
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
