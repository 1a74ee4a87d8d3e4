package main

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"bookend/internal/backendkit"
	"bookend/internal/child"
	"bookend/internal/gpu"
)

type session struct {
	backendkit.Session
	lib    *library
	slots  []opened     // nil until the driver reported how many
	last   gpu.Snapshot // the newest sample
	events events       // of a recording
}

func answer(asked backendkit.Session) error {
	if asked.Probes() {
		return serveProbe(asked)
	}
	lib, fault, err := openLibrary(asked)
	if err != nil {
		return err
	}
	if fault != nil {
		return asked.Finish(*fault)
	}
	s := session{Session: asked, lib: lib}
	if s.Records() {
		err = s.Record(s.sample, s.unused)
	} else if err = s.Watch(s.sample); err == nil {
		err = s.tellHealth()
	}
	if err != nil {
		return err
	}
	return s.Finish()
}

// sample opens and reads each GPU in its own thread: attaching takes 6.5 ms and more each, and the driver overlaps it.
// GPUs of a recording are open, and waking a thread for each takes longer than reading it.
func (s *session) sample() (look gpu.Snapshot, err error) {
	if fault := s.list(); fault != nil {
		return s.snapshot(*fault), nil
	}
	answers := make([][]answered, len(s.slots))
	empty := func(o opened) bool { return len(o.devices) == 0 }
	if s.Records() && !slices.ContainsFunc(s.slots, empty) {
		for i := range s.slots {
			answers[i] = s.read(i)
		}
	} else if answers, err = child.Parallel(len(s.slots), s.read); err != nil {
		return gpu.Snapshot{}, err
	}
	devices, faults := s.gather()
	s.last = s.snapshot(faults...)
	if s.Records() {
		s.events.register(s.lib, devices)
		s.last.Events = s.events.take(s.lib)
	}
	for _, a := range slices.Concat(answers...) {
		if _, twice := s.last.Reading(a.reading.Device.ID); !twice {
			s.last.Readings, s.last.Faults = append(s.last.Readings, a.reading), append(s.last.Faults, a.faults...)
		}
	}
	return s.last, nil
}

type answered struct {
	reading gpu.Reading
	faults  []gpu.Fault
}

func (s *session) read(slot int) (all []answered) {
	for _, d := range s.open(slot) {
		reading, faults := s.lib.read(d)
		if s.Records() {
			reading.Busy = s.lib.busy(d)
		}
		all = append(all, answered{reading, faults})
	}
	return all
}

// snapshot returns one without readings.
func (s *session) snapshot(faults ...gpu.Fault) gpu.Snapshot {
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
	}
	return nil
}

// open opens a slot that is not open, again after a failed sample. An open one stays open: reading it is the retry.
func (s *session) open(i int) []device {
	slot := &s.slots[i]
	switch {
	case len(slot.devices) > 0:
	case s.Req.All:
		*slot = s.lib.openIndex(i)
	default:
		*slot = s.lib.openAsked(s.Req.Devices[i])
	}
	return slot.devices
}

// gather returns each device once: a request may name one twice, by its bus id and by its id.
func (s *session) gather() (devices []device, faults []gpu.Fault) {
	for _, slot := range s.slots {
		for _, d := range slot.devices {
			if !slices.ContainsFunc(devices, func(o device) bool { return o.ID == d.ID }) {
				devices = append(devices, d)
			}
		}
		if slot.fault != nil {
			faults = append(faults, *slot.fault)
		}
	}
	return devices, faults
}

// unused reports whether no process uses the sampled devices, and the driver unloads one then (no persistence mode).
func (s *session) unused(look gpu.Snapshot) bool {
	for _, r := range look.Readings {
		if len(r.Processes) > 0 || r.ProcessesUnknown != "" && r.Memory.Unjudged != isCut {
			return false
		}
	}
	devices, _ := s.gather()
	return slices.ContainsFunc(devices, func(d device) bool {
		mode, failed := ask(d.card.GetPersistenceMode, s.lib, "nvmlDeviceGetPersistenceMode")
		return failed == nil && mode == nvml.FEATURE_DISABLED
	})
}
