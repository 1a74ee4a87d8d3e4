package main

import (
	"strings"

	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// device is an open GPU or MIG instance.
type device struct {
	gpu.Device
	handle nvml.Device
	nvidia *gpu.NVIDIA
}

// openIndex opens the i-th card of the node and its MIG instances.
func (l *library) openIndex(i int) opened {
	handle, failed := ask(func() (nvml.Device, nvml.Return) { return l.api.DeviceGetHandleByIndex(i) }, l,
		"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
	if failed != nil {
		fault := l.fault(*failed)
		return opened{fault: &fault}
	}
	card, fault := l.identify(handle, gpu.Device{})
	if fault != nil {
		return opened{fault: fault}
	}
	return opened{devices: append([]device{card}, l.instances(card)...)}
}

// openAsked opens one device by its bus id, which attaches no other GPU, or by its id where that is all there is.
func (l *library) openAsked(asked gpu.Device) opened {
	instance := isInstance(asked.ID)
	var handle nvml.Device
	var failed *failure
	switch {
	case asked.BusID != "":
		handle, failed = ask(func() (nvml.Device, nvml.Return) {
			return l.api.DeviceGetHandleByPciBusId(string(asked.BusID))
		}, l, "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId")
	case instance:
		handle, failed = l.parentOf(asked.ID)
	default:
		handle, failed = l.byUUID(asked.ID)
	}
	if failed != nil {
		return opened{fault: l.about(asked, *failed)}
	}
	card, fault := l.identify(handle, asked)
	switch {
	case fault != nil:
		return opened{fault: fault}
	case instance:
		return l.pick(asked, l.instances(card))
	}
	return l.pick(asked, []device{card})
}

func (l *library) byUUID(id gpu.ID) (nvml.Device, *failure) {
	return ask(func() (nvml.Device, nvml.Return) { return l.api.DeviceGetHandleByUUID(string(id)) }, l,
		"nvmlDeviceGetHandleByUUID")
}

// parentOf finds the card of a MIG instance.
func (l *library) parentOf(id gpu.ID) (nvml.Device, *failure) {
	handle, failed := l.byUUID(id)
	if failed != nil {
		return nil, failed
	}
	return ask(handle.GetDeviceHandleFromMigDeviceHandle, l, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
}

// pick returns the device that was asked for. Another one at its bus id (a card was exchanged, an instance
// made anew) is not it.
func (l *library) pick(asked gpu.Device, found []device) opened {
	for _, d := range found {
		if asked.ID == "" || d.ID == asked.ID {
			return opened{devices: []device{d}}
		}
	}
	return opened{fault: &gpu.Fault{Code: gpu.FaultNoDevice, Device: asked.ID, BusID: asked.BusID,
		Detail: "not found at its bus id"}}
}

// identify reads what names a card. Without its UUID there is nothing to call it by, unless it was asked for
// by one.
func (l *library) identify(handle nvml.Device, asked gpu.Device) (device, *gpu.Fault) {
	d := device{Device: gpu.Device{ID: asked.ID, BusID: asked.BusID, Vendor: vendor}, handle: handle, nvidia: &gpu.NVIDIA{}}
	if isInstance(asked.ID) {
		d.ID = asked.Parent
	}
	uuid, failed := ask(handle.GetUUID, l, "nvmlDeviceGetUUID")
	if failed != nil && (d.ID == "" || faultCode(failed.ret) == gpu.FaultLost) {
		return d, l.about(asked, *failed)
	}
	if failed == nil {
		d.ID = gpu.ID(uuid)
	}
	pci, failed := ask(handle.GetPciInfo, l, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo")
	if failed == nil {
		d.BusID = busID(pci)
	}
	d.Name, _ = ask(handle.GetName, l, "nvmlDeviceGetName")
	d.Minor = l.number(handle.GetMinorNumber, "nvmlDeviceGetMinorNumber")
	d.nvidia.NVMLIndex = l.number(handle.GetIndex, "nvmlDeviceGetIndex")
	d.nvidia.MIGMode = l.migMode(handle)
	return d, nil
}

func (l *library) number(call func() (int, nvml.Return), name string) *int {
	n, failed := ask(call, l, name)
	if failed != nil {
		return nil
	}
	return &n
}

// migMode returns nil where it is not known. A card or driver that cannot do MIG has it off.
func (l *library) migMode(handle nvml.Device) *bool {
	mode, failed := ask(func() (int, nvml.Return) {
		current, _, ret := handle.GetMigMode()
		return current, ret
	}, l, "nvmlDeviceGetMigMode")
	if failed != nil && failed.ret != nvml.ERROR_NOT_SUPPORTED && failed.ret != nvml.ERROR_FUNCTION_NOT_FOUND {
		return nil
	}
	on := failed == nil && mode == nvml.DEVICE_MIG_ENABLE
	return &on
}

// instances opens a card's MIG instances. Their indexes have holes.
func (l *library) instances(card device) []device {
	if card.nvidia.MIGMode == nil || !*card.nvidia.MIGMode {
		return nil
	}
	most, failed := ask(card.handle.GetMaxMigDeviceCount, l, "nvmlDeviceGetMaxMigDeviceCount")
	if failed != nil {
		return nil
	}
	var found []device
	for i := range min(most, 64) { // the driver's figure bounds nothing: a card has 7 at present
		handle, failed := ask(func() (nvml.Device, nvml.Return) { return card.handle.GetMigDeviceHandleByIndex(i) }, l,
			"nvmlDeviceGetMigDeviceHandleByIndex")
		if failed != nil {
			continue
		}
		d := device{Device: card.Device, handle: handle, nvidia: card.nvidia}
		uuid, failed := ask(handle.GetUUID, l, "nvmlDeviceGetUUID")
		if failed != nil {
			continue
		}
		d.ID, d.Parent = gpu.ID(uuid), card.ID
		if name, failed := ask(handle.GetName, l, "nvmlDeviceGetName"); failed == nil {
			d.Name = name
		}
		found = append(found, d)
	}
	return found
}

// about is the fault of a device that was asked for.
func (l *library) about(asked gpu.Device, f failure) *gpu.Fault {
	fault := l.fault(f)
	fault.Device, fault.BusID = asked.ID, asked.BusID
	return &fault
}

// isInstance tells a MIG instance's id from a card's.
func isInstance(id gpu.ID) bool { return strings.HasPrefix(string(id), "MIG-") }

func busID(pci nvml.PciInfo) gpu.BusID {
	text := make([]byte, 0, len(pci.BusId))
	for _, c := range pci.BusId {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	id, err := gpu.ParseBusID(string(text))
	if err != nil {
		return "" // unknown: the hook identifies the device by its id
	}
	return id
}
