package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/backendkit"
	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

type device struct {
	gpu.Device
	handle   nvml.Device
	card     nvml.Device // the whole GPU, for a MIG instance too
	mig      *bool       // whether the GPU is in MIG mode; nil if unknown
	instance uint32      // the GPU instance that a MIG instance is part of, or nowhere
	shared   bool        // other MIG instances are part of that GPU instance
	unjudged string      // see gpu.Memory
}

// nowhere is the driver's value for no GPU instance, or for one that it does not report.
const nowhere = ^uint32(0)

// mostInstances bounds the MIG instances of a GPU and the numbers of its GPU instances; at present it has up to 7.
const mostInstances = 64

// opened is the result of opening a device or an index of the node: the device with its MIG instances, or the fault.
type opened struct {
	devices []device
	fault   *gpu.Fault
}

func isInstance(id gpu.ID) bool { return strings.HasPrefix(string(id), "MIG-") }

func (d device) cut() bool { return d.Parent == "" && d.mig != nil && *d.mig }

func (l *library) openIndex(i int) opened {
	card, fault := l.openGPU(gpu.Device{}, "nvmlDeviceGetHandleByIndex_v2",
		func() (nvml.Device, nvml.Return) { return l.api.DeviceGetHandleByIndex(i) })
	if fault != nil {
		return opened{fault: fault}
	}
	instances, failed := l.instances(card)
	if failed != nil {
		fault = l.about(card.Device, *failed)
	}
	return opened{append([]device{card}, instances...), fault}
}

// openAsked opens one device by its bus id, which attaches no other GPU, or by its id if the bus id is unknown.
func (l *library) openAsked(asked gpu.Device) opened {
	name, call := "nvmlDeviceGetHandleByUUID",
		func() (nvml.Device, nvml.Return) { return l.api.DeviceGetHandleByUUID(string(asked.ID)) }
	if asked.BusID != "" {
		name, call = "nvmlDeviceGetHandleByPciBusId_v2",
			func() (nvml.Device, nvml.Return) { return l.api.DeviceGetHandleByPciBusId(string(asked.BusID)) }
	}
	card, fault := l.openGPU(asked, name, call)
	if fault != nil {
		return opened{fault: fault}
	}
	devices, failed := []device{card}, (*failure)(nil)
	if isInstance(asked.ID) {
		devices, failed = l.instances(card)
	}
	i := slices.IndexFunc(devices, func(d device) bool { return asked.ID == "" || d.ID == asked.ID })
	switch {
	case i >= 0:
		return opened{devices: devices[i : i+1]}
	case failed != nil:
		return opened{fault: l.about(asked, *failed)} // it may be the instance that could not be opened
	}
	// Another device is at its bus id: a GPU was exchanged, an instance destroyed or created again.
	return opened{fault: &gpu.Fault{Code: gpu.FaultNoDevice, Device: asked.ID, BusID: asked.BusID,
		Detail: "not found at its bus id"}}
}

func (l *library) openGPU(asked gpu.Device, name string, call func() (nvml.Device, nvml.Return)) (device, *gpu.Fault) {
	handle, failed := ask(call, l, name)
	if failed == nil && asked.BusID == "" && isInstance(asked.ID) {
		handle, failed = ask(handle.GetDeviceHandleFromMigDeviceHandle, l,
			"nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
	}
	if failed != nil {
		return device{}, l.about(asked, *failed)
	}
	return l.identify(handle, asked)
}

// identify reads a GPU's ids and name. It fails without a UUID if the device is lost or was not requested by id.
func (l *library) identify(handle nvml.Device, asked gpu.Device) (device, *gpu.Fault) {
	d := device{Device: gpu.Device{ID: asked.ID, BusID: asked.BusID, Vendor: gpu.NVIDIA.Name}, handle: handle,
		card: handle}
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
	if pci, failed := ask(handle.GetPciInfo, l, "nvmlDeviceGetPciInfo_v3"); failed == nil {
		d.BusID = busID(pci)
	}
	d.Name, _ = ask(handle.GetName, l, "nvmlDeviceGetName")
	if minor, failed := ask(handle.GetMinorNumber, l, "nvmlDeviceGetMinorNumber"); failed == nil {
		d.Minor = &minor
	}
	mode, failed := ask(func() (int, nvml.Return) {
		current, _, ret := handle.GetMigMode()
		return current, ret
	}, l, "nvmlDeviceGetMigMode")
	if failed == nil || optional(failed.ret) { // a GPU or driver that does not support MIG has it off
		on := failed == nil && mode == nvml.DEVICE_MIG_ENABLE
		d.mig = &on
	}
	d.unjudged = l.unjudged(d)
	return d, nil
}

// nodes is where the vendor's libraries open the device nodes.
const nodes = "/dev"

// about returns the fault of a requested device, or the driver's fault if asked is empty. A fault that may come from
// denied access to the device nodes, as after a reload of systemd, is marked as such.
func (l *library) about(asked gpu.Device, f failure) *gpu.Fault {
	fault := gpu.Fault{Code: faultCode(f.ret), Device: asked.ID, BusID: asked.BusID, Detail: l.describe(f)}
	vague := fault.Code == gpu.FaultDriver || fault.Code == gpu.FaultNoDriver || fault.Code == gpu.FaultNoDevice
	if why := backendkit.Denied(nodes, asked); vague && why != "" {
		fault.Code, fault.Detail = gpu.FaultForbidden, fault.Detail+"; "+why
	}
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
	id, _ := gpu.ParseBusID(string(text)) // if unknown, the hook identifies the device by its id
	return id
}

// instances opens a GPU's MIG instances, whose indexes have gaps. A failure means that some could not be opened.
func (l *library) instances(card device) ([]device, *failure) {
	if !card.cut() {
		return nil, nil
	}
	most, worst := ask(card.handle.GetMaxMigDeviceCount, l, "nvmlDeviceGetMaxMigDeviceCount")
	var found []device
	on := map[uint32]int{}
	for i := range min(most, mostInstances) {
		d, failed := l.instance(card, i)
		switch {
		case failed == nil:
			found = append(found, d)
			on[d.instance]++
		case failed.ret != nvml.ERROR_NOT_FOUND && failed.ret != nvml.ERROR_INVALID_ARGUMENT: // those are gaps
			worst = failed
		}
	}
	for i, d := range found {
		found[i].shared = on[d.instance] > 1
		if found[i].shared && d.unjudged == "" {
			found[i].unjudged = fmt.Sprintf("it shares the memory of GPU instance %d with other compute instances",
				d.instance)
		}
	}
	return found, worst
}

func (l *library) instance(card device, i int) (device, *failure) {
	d := card
	d.Parent, d.instance = card.ID, nowhere
	var failed *failure
	d.handle, failed = ask(func() (nvml.Device, nvml.Return) { return card.handle.GetMigDeviceHandleByIndex(i) }, l,
		"nvmlDeviceGetMigDeviceHandleByIndex")
	if failed != nil {
		return d, failed
	}
	uuid, failed := ask(d.handle.GetUUID, l, "nvmlDeviceGetUUID")
	if failed != nil {
		return d, failed
	}
	d.ID = gpu.ID(uuid)
	if name, failed := ask(d.handle.GetName, l, "nvmlDeviceGetName"); failed == nil {
		d.Name = name
	}
	n, failed := ask(d.handle.GetGpuInstanceId, l, "nvmlDeviceGetGpuInstanceId")
	if failed == nil && n >= 0 && n < mostInstances {
		d.instance = uint32(n)
	}
	return d, nil
}

// Reasons why a device's memory does not show what a job left behind.
const (
	isCut  = "the GPU is in MIG mode: what it holds is its instances'"
	isNUMA = "the operating system keeps files in this GPU's memory"
	isVGPU = "a vGPU: its memory is a share of a GPU that other guests use"
)

// onGrace are the models that are attached to the CPU's memory bus, by the word after the vendor's.
var onGrace = []string{"GH200", "GB200", "GB300", "GB10"}

// unjudged returns the reason for a GPU. If the driver does not report its addressing mode, its name decides.
func (l *library) unjudged(card device) string {
	mode, failed := ask(card.handle.GetVirtualizationMode, l, "nvmlDeviceGetVirtualizationMode")
	if failed == nil && mode == nvml.GPU_VIRTUALIZATION_MODE_VGPU {
		return isVGPU
	}
	addressing, failed := ask(card.handle.GetAddressingMode, l, "nvmlDeviceGetAddressingMode")
	if failed == nil && addressing.Value == uint32(nvml.DEVICE_ADDRESSING_MODE_ATS) ||
		failed != nil && namesGrace(card.Name) {
		return isNUMA
	}
	return ""
}

func namesGrace(name string) bool {
	words := strings.Fields(strings.TrimPrefix(name, "NVIDIA "))
	return len(words) > 0 && slices.Contains(onGrace, words[0])
}
