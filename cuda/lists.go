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
	"unsafe"

	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// listing is one of the driver's process lists and the versions of the call that this driver has, newest first.
type listing struct {
	kind  gpu.Kind
	forms []form
}

// form is one version of a list call.
type form struct {
	name     string
	function unsafe.Pointer
}

// stride is the bytes of an entry: pid (4, and 4 of padding), memory (8), GPU and compute instance (4 each). Version 1,
// of drivers before 450, is not read.
const stride = 24

// strideSlack is what drivers 535.43 to 535.86 write in version 3 although its entries have 24 bytes. The buffer has
// room for it, or they would write beyond its end. The first entry is then right all the same, and the second begins
// with the first's zeros: process 0, so that version 2 is asked.
const strideSlack = 32

// firstRoom is the number of entries offered at first: the driver's own table ends at 950, and each call
// walks all its clients under its locks.
const firstRoom = 1024

// maxRoom ends a list that outgrows every offer.
const maxRoom = 16 * firstRoom

// listings finds the calls. They are made directly and not through go-nvml, which offers room for one entry
// first, doubles it without end, and takes version 3 without a check.
func (l *library) listings() []listing {
	var found []listing
	for _, list := range []struct {
		kind gpu.Kind
		name string
	}{
		{gpu.Compute, "nvmlDeviceGetComputeRunningProcesses"},
		{gpu.Graphics, "nvmlDeviceGetGraphicsRunningProcesses"},
		{gpu.MPS, "nvmlDeviceGetMPSComputeRunningProcesses"},
	} {
		entry := listing{kind: list.kind}
		for _, version := range []string{"_v3", "_v2"} {
			if function := l.symbol(list.name + version); function != nil {
				entry.forms = append(entry.forms, form{list.name + version, function})
			}
		}
		found = append(found, entry)
	}
	return found
}

// processes reads and merges the lists. When one cannot be read the others are still returned, with the reason why
// they are not all; when one cannot be true none is: they come from the same driver.
func (l *library) processes(d device, total gpu.Figure) ([]gpu.Process, string, *failure) {
	var lists []list
	var why string
	var worst *failure
	for _, listing := range l.lists {
		entries, untrusted, failed := l.list(listing, d, total)
		if untrusted != "" {
			return []gpu.Process{}, untrusted, worst
		}
		if failed != nil && listing.kind != gpu.Compute && optional(failed.ret) {
			continue // a driver without this list has none of these processes, or lists them as compute
		}
		if failed != nil {
			worst, why = failed, l.describe(*failed)
			continue
		}
		lists = append(lists, list{listing.kind, entries})
	}
	merged := merge(lists)
	if untrusted := overbooked(merged, total); untrusted != "" {
		return []gpu.Process{}, untrusted, worst
	}
	return merged, why, worst
}

func optional(ret nvml.Return) bool {
	return ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_FUNCTION_NOT_FOUND
}

// list reads one list by the newest version of the call whose answer can be trusted.
func (l *library) list(list listing, d device, total gpu.Figure) ([]entry, string, *failure) {
	failed := &failure{"nvmlDeviceGet " + string(list.kind) + " processes", nvml.ERROR_FUNCTION_NOT_FOUND}
	untrusted := ""
	for _, f := range list.forms {
		entries, ret := f.read(d.handle)
		if ret != nvml.SUCCESS {
			failed = &failure{f.name, ret}
			if ret == nvml.ERROR_FUNCTION_NOT_FOUND {
				continue
			}
			return nil, "", failed
		}
		mine, why := d.trusted(entries, total)
		if why == "" {
			return mine, "", nil
		}
		failed, untrusted = nil, f.name+": "+why
	}
	return nil, untrusted, failed
}

// fill calls a list function, with more room while the list outgrows it, and returns the entries' bytes and number.
func fill(function unsafe.Pointer, device nvml.Device) ([]byte, int, nvml.Return) {
	for room := firstRoom; room <= maxRoom; room *= 4 {
		buffer := make([]byte, room*strideSlack)
		count := C.uint(room)
		ret := nvml.Return(C.call_list(function, C.uintptr_t(rawHandle(device)), &count, unsafe.Pointer(&buffer[0])))
		switch {
		case ret == nvml.SUCCESS && int(count) <= room:
			return buffer, int(count), ret
		case ret != nvml.SUCCESS && ret != nvml.ERROR_INSUFFICIENT_SIZE:
			return nil, 0, ret
		}
	}
	return nil, 0, nvml.ERROR_INSUFFICIENT_SIZE
}

func (f form) read(device nvml.Device) ([]entry, nvml.Return) {
	buffer, count, ret := fill(f.function, device)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	entries := make([]entry, count)
	for i := range entries {
		b, u32 := buffer[i*stride:], binary.NativeEndian.Uint32
		entries[i] = entry{pid: u32(b), used: binary.NativeEndian.Uint64(b[8:]), at: place{u32(b[16:]), u32(b[20:])}}
	}
	return entries, ret
}

// rawHandle takes the driver's own handle out of go-nvml's, which keeps it in an exported field of an
// unexported type. A go-nvml that changes this panics here, in every test. The handle is the driver's to
// interpret: as a Go pointer the runtime would take an odd one for a fault of its own.
func rawHandle(handle nvml.Device) uintptr {
	v := reflect.ValueOf(handle)
	if v.Kind() != reflect.Struct || !v.FieldByName("Handle").IsValid() {
		panic(fmt.Sprintf("go-nvml device is a %s without a handle", v.Type()))
	}
	return v.FieldByName("Handle").Pointer()
}
