package main

import (
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/wire"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// healthLeast is the time before the end of the looks' time below which nobody's condition is asked. The calls take
// some 4 ms together, but one that meets another process's teardown was measured to block for 380 ms.
const healthLeast = 300 * time.Millisecond

// tellHealth reads the condition of the devices that were asked for, and what accounting kept, if that was asked for
// and time is left. The looks were sent: whatever happens here costs them nothing.
func (s *session) tellHealth(end time.Duration) error {
	if !s.req.Health && !s.req.Accounting && !s.req.StartAccounting || end-s.boot() < healthLeast {
		return nil
	}
	cards := s.cards()
	if len(cards) == 0 {
		return nil
	}
	answers, err := inParallel(len(cards), nil, func(i int) []gpu.Health { return s.checkUp(cards[i], end) })
	if err != nil {
		return err
	}
	var all []gpu.Health
	for _, a := range answers {
		all = append(all, *a...)
	}
	return s.sendHealth(all)
}

// sendHealth gives up the longest part, and then all, where the looks have taken the answer's room.
func (s *session) sendHealth(all []gpu.Health) error {
	err := s.out.Write(wire.Reply{Kind: wire.KindHealth, Health: all})
	if !tooLong(err) {
		return err
	}
	for i := range all {
		if a := &all[i].Accounting; len(a.Processes) > 0 {
			a.Processes, a.Unknown = nil, "no room for its processes in the answer"
		}
	}
	if err = s.out.Write(wire.Reply{Kind: wire.KindHealth, Health: all}); tooLong(err) {
		return nil
	}
	return err
}

// card is one physical card and those devices of the request that are on it: itself, or its MIG instances.
type card struct {
	lib     *library
	id      gpu.ID
	handle  nvml.Device
	devices []device
	// lost is the driver's word that the card is gone. Each further call to a dead card may wait for a timeout of the
	// driver's own, so none is made.
	lost string
}

// cards are those of the open devices, each once.
func (s *session) cards() []*card {
	var all []*card
	devices, _ := gather(s.slots)
	for _, d := range devices {
		id := d.Device.ID
		if d.Parent != "" {
			id = d.Parent
		}
		i := slices.IndexFunc(all, func(c *card) bool { return c.id == id })
		if i < 0 {
			i, all = len(all), append(all, &card{lib: s.lib, id: id})
		}
		c := all[i]
		c.devices = append(c.devices, d)
		if d.Parent == "" {
			c.handle = d.handle
		}
		if c.lost == "" {
			c.lost = s.lostIn(d)
		}
	}
	return all
}

// lostIn returns what the newest look said of a device that was lost in it.
func (s *session) lostIn(d device) string {
	for _, f := range s.last.Faults {
		if f.Code == gpu.FaultLost && (f.Device == d.ID || f.BusID != "" && f.BusID == d.BusID) {
			return f.Detail
		}
	}
	return ""
}

// checkUp reads a card once for all its devices. Its compute mode is each device's own.
func (s *session) checkUp(c *card, end time.Duration) []gpu.Health {
	c.open()
	common := []gpu.Fact{}
	if s.req.Health {
		common = c.examine(c.handle, ofCard)
	}
	accounting := s.account(c, end)
	all := make([]gpu.Health, 0, len(c.devices))
	for _, d := range c.devices {
		facts := slices.Clone(common)
		if s.req.Health {
			facts = append(facts, c.examine(d.handle, ofDevice)...)
		}
		all = append(all, gpu.Health{Device: d.ID, Facts: facts, Accounting: accounting})
	}
	return all
}

// open takes the handle of a card of which only instances were asked for.
func (c *card) open() {
	if c.handle != nil || c.lost != "" {
		return
	}
	handle, failed := ask(c.devices[0].handle.GetDeviceHandleFromMigDeviceHandle, c.lib,
		"nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
	if failed != nil {
		c.lost = c.lib.describe(*failed) // nothing can be asked of it, lost or not
		return
	}
	c.handle = handle
}

// examine holds a card's or an instance's examinations one after another.
func (c *card) examine(handle nvml.Device, all []examination) []gpu.Fact {
	facts := []gpu.Fact{}
	for _, e := range all {
		if c.lost != "" {
			facts = append(facts, e.facts(nil, bounded("not asked: "+c.lost))...)
			continue
		}
		values, failed := ask(func() ([]string, nvml.Return) { return e.read(c.lib, handle) }, c.lib, e.source)
		switch {
		case failed != nil && optional(failed.ret):
			facts = append(facts, c.examine(handle, e.instead)...)
		case failed != nil:
			facts = append(facts, e.facts(nil, c.refused(*failed))...)
		case values == nil:
			facts = append(facts, e.facts(nil, e.source+": an answer that cannot be")...)
		default:
			facts = append(facts, e.facts(values, "")...)
		}
	}
	return facts
}

// refused gives a failure in the driver's words, and remembers the one after which nothing more is asked.
func (c *card) refused(f failure) string {
	words := c.lib.describe(f)
	if f.ret == nvml.ERROR_GPU_IS_LOST {
		c.lost = words
	}
	return words
}
