package main

import (
	"fmt"

	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// read takes one look at a device. What cannot be read is unknown, with the driver's reason; a reason that
// says more than "not supported" is a fault of the device too.
func (l *library) read(d device) (gpu.Reading, []gpu.Fault) {
	r := gpu.Reading{Device: d.Device, NVIDIA: d.nvidia}
	memory, failed := l.memory(d.handle)
	r.Memory = memory
	r.Memory.Unjudged = d.unjudged
	if d.cut() {
		r.Memory.Unjudged, r.Processes, r.ProcessesUnknown = isCut, []gpu.Process{}, isCut
		return r, l.deviceFaults(d, nil, failed)
	}
	faults := l.deviceFaults(d, nil, failed)
	if failed != nil && failed.ret == nvml.ERROR_GPU_IS_LOST {
		// Each further call to a dead card may wait for a timeout of the driver's own.
		r.Processes, r.ProcessesUnknown = []gpu.Process{}, l.describe(*failed)
		return r, faults
	}
	processes, why, failed := l.processes(d, memory.Total)
	r.Processes, r.ProcessesUnknown = processes, why
	return r, l.deviceFaults(d, faults, failed)
}

// deviceFaults adds a failure to a device's faults, once a kind.
func (l *library) deviceFaults(d device, faults []gpu.Fault, failed *failure) []gpu.Fault {
	if failed == nil || failed.ret == nvml.ERROR_NOT_SUPPORTED {
		return faults
	}
	for _, f := range faults {
		if f.Code == faultCode(failed.ret) {
			return faults
		}
	}
	return append(faults, *l.about(d.Device, *failed))
}

// memory reads a device's memory, by the newer call where the driver has it: only that one tells the driver's
// own share from the rest. Drivers before 510 have the older one alone.
func (l *library) memory(handle nvml.Device) (gpu.Memory, *failure) {
	v2, failed := ask(handle.GetMemoryInfo_v2, l, "nvmlDeviceGetMemoryInfo_v2")
	if failed == nil {
		return l.memoryV2(v2), nil
	}
	if failed.ret != nvml.ERROR_FUNCTION_NOT_FOUND && failed.ret != nvml.ERROR_ARGUMENT_VERSION_MISMATCH {
		return unknownMemory(l.describe(*failed)), failed
	}
	v1, failed := ask(handle.GetMemoryInfo, l, "nvmlDeviceGetMemoryInfo")
	if failed != nil {
		return unknownMemory(l.describe(*failed)), failed
	}
	if why := impossible(v1.Total, v1.Used, v1.Free, 0); why != "" {
		return unknownMemory("nvmlDeviceGetMemoryInfo: " + why), nil
	}
	return gpu.Memory{
		Total: gpu.Bytes(v1.Total), Used: gpu.Bytes(v1.Used), Free: gpu.Bytes(v1.Free),
		Reserved:        gpu.Unknown("the driver counts it as used"),
		UsedHasReserved: true,
	}, nil
}

func (l *library) memoryV2(m nvml.Memory_v2) gpu.Memory {
	if why := impossible(m.Total, m.Used, m.Free, m.Reserved); why != "" {
		return unknownMemory("nvmlDeviceGetMemoryInfo_v2: " + why)
	}
	return gpu.Memory{
		Total: gpu.Bytes(m.Total), Reserved: gpu.Bytes(m.Reserved), Used: gpu.Bytes(m.Used), Free: gpu.Bytes(m.Free),
	}
}

// mostMemory is more than any device has, and less than the hook takes for garbage: 1 PiB.
const mostMemory = 1 << 50

// impossible says why figures cannot be memory of one device. Their sum is not checked: the driver reads them
// one after another.
func impossible(total uint64, parts ...uint64) string {
	if total == 0 || total > mostMemory {
		return fmt.Sprintf("a device with %d bytes", total)
	}
	for _, part := range parts {
		if part > total {
			return fmt.Sprintf("%d bytes of %d", part, total)
		}
	}
	return ""
}

func unknownMemory(why string) gpu.Memory {
	no := gpu.Unknown(why)
	return gpu.Memory{Total: no, Reserved: no, Used: no, Free: no}
}
