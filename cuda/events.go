package main

import (
	"cmp"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"bookend/internal/gpu"
)

// eventCodes are the events that report faults. An Xid's number comes with it; the others have a code of their own.
var eventCodes = map[uint64]int{
	nvml.EventTypeXidCriticalError:      0,
	nvml.EventTypeDramRetirementEvent:   gpu.EventDRAMRetired,
	nvml.EventTypeDramRetirementFailure: gpu.EventDRAMNotRetired,
	nvml.EventTypeNonFatalPoisonError:   gpu.EventPoison,
	nvml.EventTypeFatalPoisonError:      gpu.EventFatalPoison,
	nvml.EventTypeGpuUnavailableError:   gpu.EventUnavailable,
	nvml.EventTypeGpuRecoveryAction:     gpu.EventRecovery,
}

// events is the driver's queue of events on the recorded GPUs. Without support for it, as in old drivers, it is empty.
type events struct {
	set     nvml.EventSet // nil if there is none
	devices []device      // registered, or found to be without support
}

// Bounds of one sample: of the events that it passes on, and those that it takes from the queue, where they seem new.
const (
	mostEvents = 64
	mostTaken  = 10_000
)

// register asks for events on devices that were opened since the last sample. No device is asked twice.
func (e *events) register(l *library, devices []device) {
	if len(devices) == len(e.devices) {
		return
	}
	for _, d := range devices {
		known := slices.ContainsFunc(e.devices, func(o device) bool { return o.ID == d.ID })
		if known || d.Parent != "" || d.cut() { // no event tells which MIG instance it is about
			continue
		}
		e.devices = append(e.devices, d)
		offered, failed := ask(d.handle.GetSupportedEventTypes, l, "nvmlDeviceGetSupportedEventTypes")
		var types uint64
		for bit := range eventCodes {
			types |= bit & offered
		}
		if failed != nil || types == 0 {
			continue
		}
		if e.set == nil {
			e.set, failed = ask(l.api.EventSetCreate, l, "nvmlEventSetCreate")
		}
		if failed == nil && e.set != nil && l.symbol("nvmlDeviceRegisterEvents") != nil {
			_ = d.handle.RegisterEvents(types, e.set) // without it the kernel log still shows the errors
		}
	}
}

// take returns what arrived since the last sample, without waiting. A queue that fails is not asked again.
func (e *events) take(l *library) (all []gpu.Event) {
	for n := 0; e.set != nil && n < mostTaken; n++ {
		got, failed := ask(func() (nvml.EventData, nvml.Return) { return e.set.Wait(0) }, l, "nvmlEventSetWait_v2")
		switch {
		case failed != nil && failed.ret == nvml.ERROR_TIMEOUT:
			return all
		case failed != nil:
			e.set = nil
			return all
		}
		code, is := eventCodes[got.EventType]
		i := slices.IndexFunc(e.devices, func(d device) bool { return rawHandle(d.handle) == rawHandle(got.Device) })
		if is && i >= 0 && len(all) < mostEvents {
			number := int(min(got.EventData, uint64(gpu.UnknownXid)))
			all = append(all, gpu.Event{Device: e.devices[i].ID, Code: cmp.Or(code, number, gpu.UnknownXid)})
		}
	}
	return all
}
