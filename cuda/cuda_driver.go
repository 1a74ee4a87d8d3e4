package main

/*
#include <stdlib.h>

#include "cuda_driver.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"bookend/internal/backendkit"
)

// cudaSoname is the name by which the dynamic linker finds CUDA's library.
const cudaSoname = "libcuda.so.1"

type cudaDevice C.int

type outcome = backendkit.Outcome

func result(call string, code C.int) *outcome { return cuda.Returned(call, int(code)) }

// prepareCUDA sets the environment that CUDA reads when it is initialised.
// Threat: a user who runs this program by hand may have set any variable.
func prepareCUDA(visible, empty string) error {
	list, folder := C.CString(visible), C.CString(empty)
	defer C.free(unsafe.Pointer(list))
	defer C.free(unsafe.Pointer(folder))
	if C.cuda_environment(list, folder) != 0 {
		return errors.New("prepare the environment: out of memory")
	}
	return nil
}

// startCUDA loads the library and initialises it, which takes 100 to 300 ms per GPU.
func startCUDA(path string) *outcome {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [512]C.char
	if C.cuda_load(name, &why[0], C.size_t(len(why))) != 0 {
		return &outcome{Of: &cuda, Call: backendkit.Load, Text: C.GoString(&why[0])}
	}
	return result("cuInit", C.cuda_init())
}

func cudaName(code int) string {
	name := C.cuda_name(C.int(code))
	if name == nil {
		return ""
	}
	return C.GoString(name)
}

func cudaByBus(bus string) (cudaDevice, *outcome) {
	name := C.CString(bus)
	defer C.free(unsafe.Pointer(name))
	var d C.int
	failed := result("cuDeviceGetByPCIBusId", C.cuda_by_bus(name, &d))
	return cudaDevice(d), failed
}

// uuid returns a device's UUID in the form that an id has after "GPU-" or "MIG-".
func (d cudaDevice) uuid() (string, *outcome) {
	var b [16]C.uchar
	failed := result("cuDeviceGetUuid", C.cuda_uuid(C.int(d), &b[0]))
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
func (d cudaDevice) contextless() (bool, *outcome) {
	var can C.int
	failed := result("cuDeviceGetAttribute", C.cuda_virtual(C.int(d), &can))
	return can != 0, failed
}

func (d cudaDevice) granularity() (uint64, *outcome) {
	var n C.size_t
	failed := result("cuMemGetAllocationGranularity", C.cuda_granularity(C.int(d), &n))
	return uint64(n), failed
}

func (d cudaDevice) create(bytes uint64) (handle uint64, failed *outcome) {
	var h C.ulonglong
	failed = result("cuMemCreate", C.cuda_create(C.int(d), C.size_t(bytes), &h))
	return uint64(h), failed
}

func cudaRelease(handle uint64) *outcome {
	return result("cuMemRelease", C.cuda_release(C.ulonglong(handle)))
}
