package main

/*
#include <stdint.h>

// A driver's process list, of any version: count goes in as the room and comes back as the number.
typedef int (*process_list)(void *device, unsigned int *count, void *infos);

static int call_process_list(void *function, uintptr_t device, unsigned int *count, void *infos) {
	return ((process_list)function)((void *)device, count, infos);
}
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// listing is one of the driver's process lists and the versions of the call that this driver has, newest first.
type listing struct {
	kind  gpu.Kind
	forms []form
	doubt string // of a driver whose newest version must not be used
}

// form is one version of a list call.
type form struct {
	name     string
	function unsafe.Pointer
	stride   int // bytes of an entry
}

// The entries: pid (4 bytes, 4 of padding), memory (8), and since version 2 GPU and compute instance (4 each).
const (
	strideV1 = 16
	strideV2 = 24
	// strideSlack is what drivers 535.43 to 535.86 write in version 3 although its entries have 24 bytes. The
	// buffer has room for it, or they would write beyond its end.
	strideSlack = 32
)

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
		for _, f := range []form{
			{name: list.name + "_v3", stride: strideV2},
			{name: list.name + "_v2", stride: strideV2},
			{name: list.name, stride: strideV1},
		} {
			if f.function = l.symbol(f.name); f.function != nil {
				entry.forms = append(entry.forms, f)
			}
		}
		if writesLongEntries(l.driver.Version) {
			entry.dropNewest(l.driver.Version)
		}
		found = append(found, entry)
	}
	return found
}

// dropNewest leaves version 2 alone of a driver that lays version 3 out wrongly.
func (l *listing) dropNewest(driver string) {
	if len(l.forms) == 0 || !strings.HasSuffix(l.forms[0].name, "_v3") {
		return
	}
	l.doubt = fmt.Sprintf("list not trusted: driver %s writes %s with longer entries than that has", driver, l.forms[0].name)
	l.forms = slices.DeleteFunc(l.forms, func(f form) bool { return !strings.HasSuffix(f.name, "_v2") })
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
		entries, ret := f.read(rawHandle(d.handle))
		if ret != nvml.SUCCESS {
			failed = &failure{f.name, ret}
			if ret == nvml.ERROR_FUNCTION_NOT_FOUND {
				continue
			}
			return nil, "", failed
		}
		mine, why := d.trusted(entries, l.pidMax, total)
		if why == "" {
			return mine, "", nil
		}
		failed, untrusted = nil, f.name+": "+why
	}
	if list.doubt != "" {
		return nil, list.doubt, nil
	}
	return nil, untrusted, failed
}

// read makes the call, with more room while the list outgrows it.
func (f form) read(device uintptr) ([]entry, nvml.Return) {
	for room := firstRoom; room <= maxRoom; room *= 4 {
		buffer := make([]byte, room*strideSlack)
		count := C.uint(room)
		ret := nvml.Return(C.call_process_list(f.function, C.uintptr_t(device), &count, unsafe.Pointer(&buffer[0])))
		if ret == nvml.ERROR_INSUFFICIENT_SIZE || ret == nvml.SUCCESS && int(count) > room {
			continue
		}
		if ret != nvml.SUCCESS {
			return nil, ret
		}
		return f.decode(buffer, int(count)), ret
	}
	return nil, nvml.ERROR_INSUFFICIENT_SIZE
}

func (f form) decode(buffer []byte, count int) []entry {
	entries := make([]entry, count)
	for i := range entries {
		b := buffer[i*f.stride:]
		entries[i] = entry{
			pid: binary.NativeEndian.Uint32(b), used: binary.NativeEndian.Uint64(b[8:]), at: place{nowhere, nowhere},
		}
		if f.stride >= strideV2 {
			entries[i].at = place{binary.NativeEndian.Uint32(b[16:]), binary.NativeEndian.Uint32(b[20:])}
		}
	}
	return entries
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
