package allocation

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>

#include "driver.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"

	"bookend/internal/gpu"
)

// device is a GPU in the library's numbering.
type device C.int

// returned returns the outcome of a call, nil for code 0.
func (l *Library) returned(call string, code C.int) *outcome {
	if code == 0 {
		return nil
	}
	return &outcome{of: l, call: l.Prefix + call, code: int(code)}
}

// start loads the library and initialises it, which takes CUDA 100 to 300 ms per GPU.
func (l *Library) start(path string) *outcome {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [512]C.char
	if C.driver_load(name, &why[0], C.size_t(len(why))) != 0 {
		return &outcome{of: l, call: gpu.Load, text: C.GoString(&why[0])}
	}
	return l.returned("Init", C.driver_init())
}

// nameOf returns the library's own name for a code, empty if it has none.
func nameOf(code int) string {
	name := C.driver_name(C.int(code))
	if name == nil {
		return ""
	}
	return C.GoString(name)
}

func (l *Library) byBus(bus string) (device, *outcome) {
	name := C.CString(bus)
	defer C.free(unsafe.Pointer(name))
	var d C.int
	failed := l.returned("DeviceGetByPCIBusId", C.driver_by_bus(name, &d))
	return device(d), failed
}

// uuid returns a device's UUID in the form that an id has after "GPU-".
func (l *Library) uuid(d device) (string, *outcome) {
	var b [16]C.uchar
	failed := l.returned("DeviceGetUuid", C.driver_uuid(C.int(d), &b[0]))
	var text strings.Builder
	for i, c := range b {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text.WriteByte('-')
		}
		fmt.Fprintf(&text, "%02x", byte(c))
	}
	return text.String(), failed
}

// contextless reports whether memory can be allocated without a context, which would take 500 MiB and 170 ms.
func (l *Library) contextless(d device) (bool, *outcome) {
	var can C.int
	failed := l.returned("DeviceGetAttribute", C.driver_contextless(C.int(d), &can))
	return can != 0, failed
}

func (l *Library) granularity(d device) (uint64, *outcome) {
	var n C.size_t
	failed := l.returned("MemGetAllocationGranularity", C.driver_granularity(C.int(d), &n))
	return uint64(n), failed
}

func (l *Library) create(d device, bytes uint64) (handle uint64, failed *outcome) {
	var h C.ulonglong
	failed = l.returned("MemCreate", C.driver_create(C.int(d), C.size_t(bytes), &h))
	return uint64(h), failed
}

func (l *Library) release(handle uint64) *outcome {
	return l.returned("MemRelease", C.driver_release(C.ulonglong(handle)))
}
