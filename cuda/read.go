package main

/*
#include <stdint.h>

// A list of a device's, of any version: count goes in as the room and comes back as the number.
typedef int (*device_list)(void *device, unsigned int *count, void *entries);

static int call_list(void *function, uintptr_t device, unsigned int *count, void *entries) {
	return ((device_list)function)((void *)device, count, entries);
}
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// read takes one sample of a device. What cannot be read is unknown; an error but "not supported" is a fault too. If
// the memory was read, an error of no known kind from a process list is not: some drivers lack that list alone.
func (l *library) read(d device) (gpu.Reading, []gpu.Fault) {
	r := gpu.Reading{Device: d.Device, Parts: d.cut(), Processes: []gpu.Process{}}
	memory, failed := l.memory(d.handle)
	r.Memory = memory
	r.Memory.Unjudged = d.unjudged
	faults := l.deviceFaults(d, nil, failed)
	switch {
	case d.cut():
		r.Memory.Unjudged, r.ProcessesUnknown = isCut, isCut
	case failed != nil && failed.ret == nvml.ERROR_GPU_IS_LOST:
		r.ProcessesUnknown = l.describe(*failed) // each further call may wait for a timeout of the driver
	default:
		r.Processes, r.ProcessesUnknown, failed = l.processes(d, memory.Total)
		if failed != nil && faultCode(failed.ret) != gpu.FaultDriver {
			faults = l.deviceFaults(d, faults, failed)
		}
	}
	return r, faults
}

// busy reads a device's utilization, nil if unknown: MIG instances have none.
func (l *library) busy(d device) *gpu.Busy {
	used, failed := ask(d.handle.GetUtilizationRates, l, "nvmlDeviceGetUtilizationRates")
	if failed != nil || used.Gpu > 100 || used.Memory > 100 {
		return nil
	}
	return &gpu.Busy{GPU: int(used.Gpu), Memory: int(used.Memory)}
}

func (l *library) deviceFaults(d device, faults []gpu.Fault, failed *failure) []gpu.Fault {
	if failed == nil || failed.ret == nvml.ERROR_NOT_SUPPORTED ||
		slices.ContainsFunc(faults, func(f gpu.Fault) bool { return f.Code == faultCode(failed.ret) }) {
		return faults
	}
	return append(faults, *l.about(d.Device, *failed))
}

// memory reads a device's memory with the call that reports the driver's share separately; drivers before 510 lack it.
func (l *library) memory(handle nvml.Device) (gpu.Memory, *failure) {
	const call = "nvmlDeviceGetMemoryInfo_v2"
	m, failed := ask(handle.GetMemoryInfo_v2, l, call)
	var why string
	if failed != nil {
		why = l.describe(*failed)
	} else if impossible := impossible(m.Total, m.Used, m.Free, m.Reserved); impossible != "" {
		why = call + ": " + impossible
	}
	if why != "" {
		no := gpu.Unknown(why)
		return gpu.Memory{Total: no, Reserved: no, Used: no, Free: no}, failed
	}
	return gpu.Memory{
		Total: gpu.Bytes(m.Total), Reserved: gpu.Bytes(m.Reserved), Used: gpu.Bytes(m.Used), Free: gpu.Bytes(m.Free),
	}, nil
}

// mostMemory is 1 PiB: more than any device has, and less than the hook rejects as impossible.
const mostMemory = 1 << 50

// impossible returns why figures cannot be one device's memory. The sum is not checked: the driver reads them in turn.
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

// lists are the driver's process lists, called directly: go-nvml doubles its room without end, and checks nothing.
var lists = []struct {
	kind gpu.Kind
	call string
}{
	{gpu.Compute, "nvmlDeviceGetComputeRunningProcesses"},
	{gpu.Graphics, "nvmlDeviceGetGraphicsRunningProcesses"},
	{gpu.MPS, "nvmlDeviceGetMPSComputeRunningProcesses"},
}

// processes reads and merges the lists. If one cannot be read, the others count; if one cannot be true, none counts.
func (l *library) processes(d device, total gpu.Figure) ([]gpu.Process, string, *failure) {
	merged := []gpu.Process{}
	var why string
	var worst *failure
	for _, list := range lists {
		entries, untrusted, failed := l.list(list.call, d, total)
		switch {
		case untrusted != "":
			return []gpu.Process{}, untrusted, worst
		case failed != nil && list.kind != gpu.Compute && optional(failed.ret):
			continue // a driver without this list has no such processes, or lists them as compute
		case failed != nil:
			worst, why = failed, l.describe(*failed)
		}
		merged = merge(merged, list.kind, entries)
	}
	return merged, why, worst
}

func optional(ret nvml.Return) bool {
	return ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_FUNCTION_NOT_FOUND
}

// merge adds a list to others by PID. An MPS client is in two, with the same memory: the larger figure counts.
func merge(all []gpu.Process, kind gpu.Kind, entries []entry) []gpu.Process {
	for _, e := range entries {
		memory := gpu.Bytes(e.used)
		if e.used == notAvailable {
			memory = gpu.Unknown("the driver does not say")
		}
		i, found := slices.BinarySearchFunc(all, int(e.pid), func(p gpu.Process, pid int) int { return p.PID - pid })
		if !found {
			all = slices.Insert(all, i, gpu.Process{PID: int(e.pid), Memory: memory, Kinds: []gpu.Kind{kind}})
			continue
		}
		p := &all[i]
		p.Kinds = append(p.Kinds, kind)
		if !p.Memory.Known() || memory.Known() && memory.Bytes > p.Memory.Bytes {
			p.Memory = memory
		}
	}
	return all
}

type entry struct {
	pid      uint32
	used     uint64 // bytes, or notAvailable
	instance uint32 // the GPU instance; nowhere without MIG
}

// notAvailable is NVML_VALUE_NOT_AVAILABLE.
const notAvailable = ^uint64(0)

// stride is the size of an entry in bytes: pid (4, and 4 of padding), memory (8), GPU and compute instance (4 each).
// Version 1, of drivers before 450, is not read.
const stride = 24

// strideSlack is what drivers 535.43 to 535.86 write per entry in version 3, although entries have 24 bytes. The buffer
// has room for it, or they would write beyond its end. The first entry is still right; the second begins with the
// first's zeros and reads as process 0, so version 2 is tried.
const strideSlack = 32

// list reads one list with the newest version of the call whose answer can be trusted.
func (l *library) list(call string, d device, total gpu.Figure) ([]entry, string, *failure) {
	failed, untrusted := &failure{call, nvml.ERROR_FUNCTION_NOT_FOUND}, ""
	for _, name := range []string{call + "_v3", call + "_v2"} {
		buffer, count, refused := l.fill(name, d.handle)
		switch {
		case refused != nil && refused.ret == nvml.ERROR_FUNCTION_NOT_FOUND:
			continue
		case refused != nil:
			return nil, "", refused
		}
		entries := make([]entry, count)
		for i := range entries {
			b, u32 := buffer[i*stride:], binary.NativeEndian.Uint32
			entries[i] = entry{pid: u32(b), used: binary.NativeEndian.Uint64(b[8:]), instance: u32(b[16:])}
		}
		mine, why := d.trusted(entries, total)
		if why == "" {
			return mine, "", nil
		}
		failed, untrusted = nil, fmt.Sprintf("%s: list not trusted: %s", name, why)
	}
	return nil, untrusted, failed
}

// firstRoom is the entries offered at first: the driver's table has 950. maxRoom limits a list that keeps growing.
const (
	firstRoom = 1024
	maxRoom   = 16 * firstRoom
)

// fill calls a list function, with more room while the list does not fit, and returns the entries' bytes and number.
func (l *library) fill(name string, device nvml.Device) ([]byte, int, *failure) {
	function := l.symbol(name)
	if function == nil {
		return nil, 0, &failure{name, nvml.ERROR_FUNCTION_NOT_FOUND}
	}
	for room := firstRoom; room <= maxRoom; room *= 4 {
		buffer := make([]byte, room*strideSlack)
		count := C.uint(room)
		ret := nvml.Return(C.call_list(function, C.uintptr_t(rawHandle(device)), &count, unsafe.Pointer(&buffer[0])))
		switch {
		case ret == nvml.SUCCESS && int(count) <= room:
			return buffer, int(count), nil
		case ret != nvml.SUCCESS && ret != nvml.ERROR_INSUFFICIENT_SIZE:
			return nil, 0, &failure{name, ret}
		}
	}
	return nil, 0, &failure{name, nvml.ERROR_INSUFFICIENT_SIZE}
}

// trusted returns the entries that belong to the device, each once, or why the list cannot be true: some drivers lay
// out entries differently from what their version says, and the numbers are then neither processes nor bytes. Some
// drivers list for a MIG instance everything on its GPU.
func (d device) trusted(entries []entry, total gpu.Figure) (mine []entry, why string) {
	most, instance := uint64(mostMemory), d.Parent != ""
	if total.Known() {
		most = total.Bytes
	}
	seen := map[uint32]uint64{}
	for _, e := range entries {
		switch before, twice := seen[e.pid]; {
		case e.pid == 0 || e.pid > gpu.MaxPID:
			return nil, fmt.Sprintf("process %d of at most %d", e.pid, gpu.MaxPID)
		case instance && (d.shared || d.instance == nowhere || e.instance == nowhere):
			return nil, fmt.Sprintf("no telling on which MIG instance process %d is", e.pid)
		case instance && e.instance != d.instance: // a sibling's process
		case e.used != notAvailable && e.used > most:
			return nil, fmt.Sprintf("process %d with %d bytes of %d", e.pid, e.used, most)
		case twice && before != e.used:
			return nil, fmt.Sprintf("process %d twice, with %d and %d bytes", e.pid, before, e.used)
		case !twice:
			mine = append(mine, e)
			seen[e.pid] = e.used
		}
	}
	return mine, ""
}

// rawHandle takes the driver's own handle out of go-nvml's, which has it in an exported field of an unexported type. If
// go-nvml changes that, every test panics here. Only the driver interprets the handle: the runtime would report an odd
// one as a fault of its own if it were a Go pointer.
func rawHandle(handle nvml.Device) uintptr {
	v := reflect.ValueOf(handle)
	if v.Kind() != reflect.Struct || !v.FieldByName("Handle").IsValid() {
		panic(fmt.Sprintf("go-nvml device is a %s without a handle", v.Type()))
	}
	return v.FieldByName("Handle").Pointer()
}
