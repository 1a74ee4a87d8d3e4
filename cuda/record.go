package main

import (
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"bookend/internal/child"
	"bookend/internal/gpu"
)

func (s *session) record() (gpu.Snapshot, error) {
	if fault := s.list(); fault != nil {
		return s.snapshot(*fault), nil
	}
	if slices.ContainsFunc(s.slots, func(o opened) bool { return len(o.devices) == 0 }) {
		if _, err := child.Parallel(len(s.slots), s.open); err != nil {
			return gpu.Snapshot{}, err
		}
	}
	devices, faults := s.gather()
	look := s.snapshot(faults...)
	for _, d := range devices { // one after another: waking a thread for each takes longer than reading it
		reading, faults := s.recorded(d)
		look.Readings, look.Faults = append(look.Readings, reading), append(look.Faults, faults...)
	}
	look.At = s.Boot()
	return look, nil
}

type whole struct {
	gpu.Reading
	at    time.Duration
	first []gpu.Process // of the first list only
}

// holds is how long a reading of all lists stays valid if the memory and the first list do not change.
const holds = 5 * time.Second

// recorded reads a device and its utilization, and the other lists after holds or if memory or first list changed.
func (s *session) recorded(d device) (gpu.Reading, []gpu.Fault) {
	now, last := s.Boot(), s.wholes[d.ID]
	reading, faults := s.lib.read(d, lists[:1])
	same := func(a, b gpu.Process) bool { return a.PID == b.PID && a.Memory == b.Memory }
	if reading.ProcessesUnknown == "" && now-last.at < holds && reading.Memory == last.Memory &&
		slices.EqualFunc(reading.Processes, last.first, same) {
		reading.Processes = last.Processes
	} else {
		first := reading.Processes
		reading, faults = s.lib.read(d, lists)
		s.wholes[d.ID] = whole{reading, now, first}
	}
	used, failed := ask(d.handle.GetUtilizationRates, s.lib, "nvmlDeviceGetUtilizationRates")
	if failed == nil && used.Gpu <= 100 && used.Memory <= 100 {
		reading.Busy = &gpu.Busy{GPU: int(used.Gpu), Memory: int(used.Memory)}
	}
	return reading, faults
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
