package main

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>

#include "hip.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	"bookend/internal/backendkit"
)

const (
	outOfMemory  = 2
	notSupported = 801
)

var hip = backendkit.Library{
	Own: func(code int) string {
		if name := C.hip_name(C.int(code)); name != nil {
			return C.GoString(name)
		}
		return ""
	},
	Nobody: 46, // CUDA's, for a device that accepts no new contexts; HIP has no such code, and none is 46
	Full:   func(o backendkit.Outcome) bool { return o.Code == outOfMemory && o.Call == "hipMemCreate" },
	Means: []backendkit.Meaning{
		backendkit.Means(0, backendkit.Load, "no HIP library", "The linker could not load ROCm's HIP library.",
			"Install ROCm's runtime (libamdhip64.so), or correct amd.hip_library in the configuration."),
		backendkit.Means(backendkit.Lacks, "", "missing function",
			"The HIP library lacks a function that ROCm has since 5.3.",
			"Use a newer ROCm, or switch the test off (amd.hip_library: empty)."),
		backendkit.Means(outOfMemory, "hipInit", "hipErrorOutOfMemory",
			"ROCm could not start for lack of the host's memory or address space, not of the GPU's.",
			"Look for an address-space limit of slurmd's (LimitAS, ulimit -v) and for a host without free memory."),
		backendkit.Means(outOfMemory, "", "hipErrorOutOfMemory",
			"The GPU gave no block of memory although the driver counts it as free.",
			"Find what holds the GPU (/sys/class/kfd/kfd/proc); if nothing does, reboot the node."),
		backendkit.Means(100, "", "hipErrorNoDevice", "ROCm sees none of the GPUs although the driver lists them.",
			"Check that /dev/kfd and /dev/dri/renderD* may be opened, and the kernel's log (dmesg)."),
		backendkit.Means(101, "", "hipErrorInvalidDevice", "ROCm does not know the GPU that the driver lists.",
			"See rocminfo and the kernel's log (dmesg)."),
		backendkit.Means(notSupported, "", "hipErrorNotSupported", "The GPU or driver cannot do what was asked.",
			"Switch the test off (amd.hip_library: empty)."),
	},
}

// prepare sets the environment that ROCm reads when it is initialised.
// Threat: a user who runs this program by hand may have set any variable.
func prepare(visible string) error {
	list := C.CString(visible)
	defer C.free(unsafe.Pointer(list))
	if C.hip_environment(list) != 0 {
		return errors.New("prepare the environment: out of memory")
	}
	return nil
}

func start(path string) *backendkit.Outcome {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [512]C.char
	if C.hip_load(name, &why[0], C.size_t(len(why))) != 0 {
		return &backendkit.Outcome{Of: &hip, Call: backendkit.Load, Text: C.GoString(&why[0])}
	}
	return hip.Returned("hipInit", int(C.hip_init()))
}

type device C.int

func byBus(bus string) (device, *backendkit.Outcome) {
	name := C.CString(bus)
	defer C.free(unsafe.Pointer(name))
	var d C.int
	failed := hip.Returned("hipDeviceGetByPCIBusId", int(C.hip_by_bus(name, &d)))
	return device(d), failed
}

func (d device) granularity() (uint64, *backendkit.Outcome) {
	var n C.size_t
	failed := hip.Returned("hipMemGetAllocationGranularity", int(C.hip_granularity(C.int(d), &n)))
	return uint64(n), failed
}

func (d device) take(bytes uint64) *backendkit.Outcome {
	var handle unsafe.Pointer
	if failed := hip.Returned("hipMemCreate", int(C.hip_create(C.int(d), C.size_t(bytes), &handle))); failed != nil {
		return failed
	}
	return hip.Returned("hipMemRelease", int(C.hip_release(handle)))
}
