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

// kernel is a program of the GPU's, loaded for the current context.
type kernel unsafe.Pointer

// enter makes the device's context the current one of this thread. It takes some 500 MiB of the device's memory.
func (l *Library) enter(d device) *outcome {
	return l.returned("DevicePrimaryCtxRetain", C.driver_enter(C.int(d)))
}

func (l *Library) leave(d device) { C.driver_leave(C.int(d)) }

// compile makes kernels of a text in PTX, by their names in it. It needs a context.
func (l *Library) compile(text string, names ...string) (made []kernel, failed *outcome) {
	source := C.CString(text)
	defer C.free(unsafe.Pointer(source))
	var module unsafe.Pointer
	failed = l.returned("ModuleLoadData", C.driver_load_kernels(source, &module))
	for i := 0; failed == nil && i < len(names); i++ {
		name := C.CString(names[i])
		var k unsafe.Pointer
		failed = l.returned("ModuleGetFunction", C.driver_kernel(module, name, &k))
		C.free(unsafe.Pointer(name))
		made = append(made, kernel(k))
	}
	return made, failed
}

// room returns how much memory is free, in bytes, as the context sees it.
func (l *Library) room() (uint64, *outcome) {
	var free C.size_t
	failed := l.returned("MemGetInfo", C.driver_room(&free))
	return uint64(free), failed
}

func (l *Library) alloc(bytes uint64) (at uint64, failed *outcome) {
	var a C.ulonglong
	failed = l.returned("MemAlloc", C.driver_take(C.size_t(bytes), &a))
	return uint64(a), failed
}

func (l *Library) drop(at uint64) { C.driver_drop(C.ulonglong(at)) }

// clear sets words of the device's memory to 0.
func (l *Library) clear(at, words uint64) *outcome {
	return l.returned("MemsetD8", C.driver_clear(C.ulonglong(at), C.size_t(8*words)))
}

// copy reads words of the device's memory.
func (l *Library) copy(to []uint64, at uint64) *outcome {
	bytes := C.size_t(8 * len(to))
	return l.returned("MemcpyDtoH", C.driver_copy(unsafe.Pointer(&to[0]), C.ulonglong(at), bytes))
}

// launch starts a kernel; idle reports whether it has ended, or failed.
func (l *Library) launch(k kernel, arguments [4]uint64) *outcome {
	return l.returned("LaunchKernel", C.driver_run(unsafe.Pointer(k), (*C.ulonglong)(unsafe.Pointer(&arguments[0]))))
}

func (l *Library) idle() (bool, *outcome) {
	const notReady = 600 // CUDA_ERROR_NOT_READY
	code := C.driver_query()
	if code == notReady {
		return false, nil
	}
	return true, l.returned("StreamQuery", code)
}
