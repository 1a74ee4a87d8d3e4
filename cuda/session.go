package main

import (
	"errors"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/routine"
	"bookend/internal/settle"
	"bookend/internal/wire"
)

// reserve is kept between the last look and the deadline: one call was measured to block for 380 ms while
// another process's memory was torn down, and a watch that its alarm ends looks like a hang.
const reserve = 400 * time.Millisecond

// session is one request being served.
type session struct {
	req     wire.Request
	out     *wire.Writer
	boot    func() time.Duration // CLOCK_BOOTTIME
	lib     *library
	slots   []opened         // nil until the driver said how many
	opening time.Duration    // how long the last attempt took, while something could not be opened
	last    gpu.Snapshot     // the newest look
	wholes  map[gpu.ID]whole // of a recording
}

func hello() wire.Reply {
	return wire.Reply{Kind: wire.KindHello, Hello: &wire.Hello{Backend: gpu.NVIDIA.Name, Version: version}}
}

// serve answers a request. Hello goes first: without it a hang would not show how far this program came.
func serve(req wire.Request, out *wire.Writer, boot func() time.Duration) error {
	end := boot() + req.Deadline() - reserve
	if err := out.Write(hello()); err != nil {
		return err
	}
	if req.Op == wire.Probe {
		return serveProbe(req, out, boot)
	}
	lib, fault, err := openLibrary(req.Options[optionNVML])
	if err != nil {
		return err
	}
	if fault != nil {
		return finish(out, *fault)
	}
	s := session{req: req, out: out, boot: boot, lib: lib}
	if req.Op == wire.Record {
		err = s.record()
	} else if err = s.watch(end); err == nil {
		err = s.tellHealth(end)
	}
	if err != nil {
		return err
	}
	return finish(out)
}

func finish(out *wire.Writer, faults ...gpu.Fault) error {
	for _, f := range faults {
		if err := out.Write(wire.Reply{Kind: wire.KindFault, Fault: &f}); err != nil {
			return err
		}
	}
	return out.Write(wire.Reply{Kind: wire.KindDone})
}

// tooLong says of an error in writing that the answer has no room left for that line.
func tooLong(err error) bool {
	var problem *wire.Error
	return errors.As(err, &problem) && problem.Problem == wire.TooLong
}

// watch looks until the rule says that it is enough, no more would fit the answer, or time is up. A snapshot
// is a watch of one look.
func (s *session) watch(end time.Duration) error {
	var looks []gpu.Snapshot
	for {
		look, err := s.look()
		if err != nil {
			return err
		}
		looks = append(looks, look)
		err = s.out.Write(wire.Reply{Kind: wire.KindSnapshot, Snapshot: &look})
		if tooLong(err) && len(looks) > 1 {
			return nil // the looks that were sent stand; the hook sees that they do not settle
		}
		if err != nil {
			return err
		}
		if s.req.Op != wire.Watch || settle.Done(s.req.Watch, s.watched(), looks) {
			return nil
		}
		now := s.boot()
		// The last look falls on Max.
		pause := min(settle.Pause(len(looks)), looks[0].At+s.req.Watch.Max-now)
		if now+pause+s.opening > end { // a card slow to say no must not run into the alarm
			return nil
		}
		time.Sleep(pause)
	}
}

func (s *session) look() (gpu.Snapshot, error) {
	type answer struct {
		reading gpu.Reading
		faults  []gpu.Fault
	}
	devices, faults, err := s.open()
	if err != nil {
		return gpu.Snapshot{}, err
	}
	answers, err := inParallel(len(devices), func(i int) answer {
		reading, faults := s.lib.read(devices[i], lists)
		return answer{reading, faults}
	})
	look := gpu.Snapshot{At: s.boot(), Driver: s.lib.driver, Readings: []gpu.Reading{}, Faults: faults}
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
	case s.req.All:
		count, failed := ask(s.lib.api.DeviceGetCount, s.lib, "nvmlDeviceGetCount_v2")
		if failed != nil {
			return nil, []gpu.Fault{*s.lib.about(gpu.Device{}, *failed)}, nil
		}
		s.slots = make([]opened, count)
	default:
		s.slots = make([]opened, len(s.req.Devices))
		for i, d := range s.req.Devices {
			s.slots[i].asked = d
		}
	}
	open := func(o opened) bool { return len(o.devices) > 0 }
	if !slices.ContainsFunc(s.slots, func(o opened) bool { return !open(o) }) {
		devices, faults := s.gather()
		return devices, faults, nil
	}
	begin := s.boot()
	results, err := inParallel(len(s.slots), func(i int) opened {
		switch slot := s.slots[i]; {
		case open(slot):
			return slot
		case s.req.All:
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
	if s.opening = s.boot() - begin; len(faults) == 0 {
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

// inParallel calls f for 0 to n-1 at once and returns the results in order. A panic is returned as an error: half an
// answer would look like a whole one.
func inParallel[T any](n int, f func(int) T) ([]T, error) {
	results := make([]T, n)
	ended := make(chan *routine.Panic, n)
	for i := range n {
		routine.Go(func(p *routine.Panic) { ended <- p }, func() {
			results[i] = f(i)
			ended <- nil
		})
	}
	for range n {
		if defect := <-ended; defect != nil {
			return nil, defect
		}
	}
	return results, nil
}
