package main

import (
	"runtime"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/wire"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// record looks again and again until nobody listens. Each look has an alarm of its own. Without persistence mode the
// driver unloads a GPU that nobody has open: the session ends with the last process, so that it can.
func (s *session) record() error {
	s.wholes = map[gpu.ID]whole{}
	// The thread that waits for the end of stdin can take the alarm. Handing a locked thread's work on and back takes
	// more than the work.
	runtime.UnlockOSThread()
	runtime.GOMAXPROCS(1)
	for next := s.boot(); ; next = max(next+s.req.Watch.Every, s.boot()) {
		time.Sleep(next - s.boot())
		if err := setAlarm(s.req.Watch.Every + s.req.Deadline()); err != nil {
			return err
		}
		devices, faults, err := s.open()
		if err != nil {
			return err
		}
		look := gpu.Snapshot{Driver: s.lib.driver, Readings: []gpu.Reading{}, Faults: faults}
		for _, d := range devices { // one after another: waking a thread for each takes more than reading it
			reading, faults := s.recorded(d)
			look.Readings, look.Faults = append(look.Readings, reading), append(look.Faults, faults...)
		}
		look.At = s.boot()
		s.out.Renew()
		if err := s.out.Write(wire.Reply{Kind: wire.KindSnapshot, Snapshot: &look}); err != nil {
			return err
		}
		if s.unused(look) {
			return nil
		}
	}
}

// whole is a reading of all process lists.
type whole struct {
	gpu.Reading
	at    time.Duration
	first []gpu.Process // of the first list alone
}

// holds is how long a reading of all lists is believed while nothing speaks against it.
const holds = 5 * time.Second

// recorded is read, with how busy the device is. Each list costs as much as all the rest: while a device's memory and
// its first list are as they were, the others are not asked.
func (s *session) recorded(d device) (gpu.Reading, []gpu.Fault) {
	now, last := s.boot(), s.wholes[d.ID]
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

// unused reports that nobody uses the devices of a look, and that one of them is to unload when nobody does.
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
