package main

import (
	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// device is an open GPU or MIG instance.
type device struct {
	gpu.Device
	handle   nvml.Device
	nvidia   *gpu.NVML
	at       place  // of a MIG instance
	shared   bool   // other compute instances use the same GPU instance
	unjudged string // see gpu.Memory
}

// openIndex opens the i-th card of the node and its MIG instances.
func (l *library) openIndex(i int) opened {
	handle, failed := ask(func() (nvml.Device, nvml.Return) { return l.api.DeviceGetHandleByIndex(i) }, l,
		"nvmlDeviceGetHandleByIndex_v2")
	if failed != nil {
		fault := l.fault(*failed)
		return opened{fault: &fault}
	}
	card, fault := l.identify(handle, gpu.Device{})
	if fault != nil {
		return opened{fault: fault}
	}
	instances, failed := l.instances(card)
	if failed != nil {
		fault = l.about(card.Device, *failed)
	}
	return opened{devices: append([]device{card}, instances...), fault: fault}
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
		}, l, "nvmlDeviceGetHandleByPciBusId_v2")
	case instance:
		handle, failed = l.parentOf(asked)
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
		return l.openInstance(asked, card)
	case asked.ID != "" && asked.ID != card.ID:
		return opened{fault: missing(asked)}
	}
	return opened{devices: []device{card}}
}

func (l *library) byUUID(id gpu.ID) (nvml.Device, *failure) {
	return ask(func() (nvml.Device, nvml.Return) { return l.api.DeviceGetHandleByUUID(string(id)) }, l,
		"nvmlDeviceGetHandleByUUID")
}

// missing says that another device than the one asked for is at its bus id: a card was exchanged, an instance
// destroyed or made anew.
func missing(asked gpu.Device) *gpu.Fault {
	return &gpu.Fault{Code: gpu.FaultNoDevice, Device: asked.ID, BusID: asked.BusID, Detail: "not found at its bus id"}
}

// identify reads what names a card. Without its UUID there is nothing to call it by, unless it was asked for
// by one.
func (l *library) identify(handle nvml.Device, asked gpu.Device) (device, *gpu.Fault) {
	d := device{Device: gpu.Device{ID: asked.ID, BusID: asked.BusID, Vendor: gpu.NVIDIA.Name}, handle: handle,
		nvidia: &gpu.NVML{}}
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
	pci, failed := ask(handle.GetPciInfo, l, "nvmlDeviceGetPciInfo_v3")
	if failed == nil {
		d.BusID = busID(pci)
	}
	d.Name, _ = ask(handle.GetName, l, "nvmlDeviceGetName")
	d.Minor = l.number(handle.GetMinorNumber, "nvmlDeviceGetMinorNumber")
	d.nvidia.NVMLIndex = l.number(handle.GetIndex, "nvmlDeviceGetIndex")
	d.nvidia.MIGMode = l.migMode(handle)
	d.unjudged = l.unjudged(d)
	return d, nil
}

func (l *library) number(call func() (int, nvml.Return), name string) *int {
	n, failed := ask(call, l, name)
	if failed != nil {
		return nil
	}
	return &n
}

// about is the fault of a device that was asked for.
func (l *library) about(asked gpu.Device, f failure) *gpu.Fault {
	fault := l.fault(f)
	fault.Device, fault.BusID = asked.ID, asked.BusID
	return &fault
}

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
