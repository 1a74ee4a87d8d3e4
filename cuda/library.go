package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
*/
import "C"

import (
	"cmp"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"bookend/internal/backendkit"
	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Configuration keys that this backend receives.
const (
	optionNVML = "nvml_library"
	optionCUDA = "cuda_library"
)

// library is the vendor's library, loaded and initialised. A process loads only one: go-nvml's calls are bound to it.
type library struct {
	handle unsafe.Pointer // of dlopen
	api    nvml.Interface
	driver gpu.Driver
}

// Initialising the library is tried again after an error of no known kind, so that a hiccup is no fault of the driver.
const (
	initTries = 3
	initPause = 500 * time.Millisecond
)

// openLibrary loads and initialises the requested library (none: the linker's). An error means a bad request.
func openLibrary(asked backendkit.Session) (*library, *gpu.Fault, error) {
	path, err := libraryPath(asked.Req.Options[optionNVML], gpu.NVIDIA.Library)
	if err != nil {
		return nil, nil, err
	}
	l := &library{api: nvml.New(nvml.WithLibraryPath(path))}
	if fault := l.load(path); fault != nil {
		return nil, fault, nil
	}
	if failed := l.start(asked); failed != nil {
		return nil, l.about(gpu.Device{}, *failed), nil
	}
	l.driver.Version, _ = ask(l.api.SystemGetDriverVersion, l, "nvmlSystemGetDriverVersion")
	l.driver.Library, _ = ask(l.api.SystemGetNVMLVersion, l, "nvmlSystemGetNVMLVersion")
	return l, nil, nil
}

func (l *library) start(asked backendkit.Session) *failure {
	for try := 1; ; try++ {
		begin := asked.Boot()
		_, failed := ask(func() (bool, nvml.Return) { return true, l.api.Init() }, l, "nvmlInit_v2")
		again := asked.Boot() - begin + 2*initPause // one that is slow to fail must not run into the alarm
		if failed == nil || faultCode(failed.ret) != gpu.FaultDriver || try == initTries || asked.Left() < again {
			return failed
		}
		time.Sleep(initPause)
	}
}

// libraryPath rejects relative paths, which the linker would search for in directories of its own choice.
func libraryPath(asked, soname string) (string, error) {
	switch {
	case asked == "":
		return soname, nil
	case !filepath.IsAbs(asked):
		return "", fmt.Errorf("open library %q: not an absolute path", asked)
	}
	return asked, nil
}

// load opens the library before go-nvml does, to keep the linker's message, which shows if the driver is missing.
func (l *library) load(path string) *gpu.Fault {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	runtime.LockOSThread() // dlerror is about this thread's last call
	defer runtime.UnlockOSThread()
	l.handle = C.dlopen(name, C.RTLD_LAZY|C.RTLD_GLOBAL)
	if l.handle != nil {
		return nil
	}
	why := C.GoString(C.dlerror())
	fault := gpu.Fault{Code: gpu.FaultForbidden, Detail: backendkit.Bounded("dlopen: " + why)}
	if why == path+": cannot open shared object file: No such file or directory" {
		fault.Code = gpu.FaultNoLibrary // for a missing dependency the message names that instead of path
	}
	return &fault
}

// symbol finds a function, nil for none: calling a missing one through go-nvml would end the process with 127.
func (l *library) symbol(name string) unsafe.Pointer {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	return C.dlsym(l.handle, s)
}

// failure is a call that did not succeed. A function that the library lacks fails with FUNCTION_NOT_FOUND.
type failure struct {
	call string
	ret  nvml.Return
}

func ask[T any](call func() (T, nvml.Return), l *library, name string) (T, *failure) {
	var none T
	if l.symbol(name) == nil {
		return none, &failure{name, nvml.ERROR_FUNCTION_NOT_FOUND}
	}
	value, ret := call()
	if ret != nvml.SUCCESS {
		return none, &failure{name, ret}
	}
	return value, nil
}

// describe returns a failure in the driver's words. They are in the library's own memory, so they are cloned.
func (l *library) describe(f failure) string {
	text := ""
	if l.symbol("nvmlErrorString") != nil {
		text = strings.Clone(f.ret.Error())
	}
	if f.ret == nvml.ERROR_FUNCTION_NOT_FOUND {
		text = "the driver lacks this function"
	}
	return backendkit.Bounded(fmt.Sprintf("%s: %s (%d)", f.call, text, int(f.ret)))
}

// faultCodes are the codes with a fault of their own; any other is the driver's.
var faultCodes = map[nvml.Return]gpu.FaultCode{
	nvml.ERROR_DRIVER_NOT_LOADED:         gpu.FaultNoDriver,
	nvml.ERROR_LIBRARY_NOT_FOUND:         gpu.FaultNoLibrary,
	nvml.ERROR_LIB_RM_VERSION_MISMATCH:   gpu.FaultMismatch,
	nvml.ERROR_NOT_FOUND:                 gpu.FaultNoDevice,
	nvml.ERROR_GPU_NOT_FOUND:             gpu.FaultNoDevice,
	nvml.ERROR_GPU_IS_LOST:               gpu.FaultLost,
	nvml.ERROR_RESET_REQUIRED:            gpu.FaultReset,
	nvml.ERROR_FUNCTION_NOT_FOUND:        gpu.FaultNoSymbol,
	nvml.ERROR_NO_PERMISSION:             gpu.FaultForbidden,
	nvml.ERROR_OPERATING_SYSTEM:          gpu.FaultForbidden, // a cgroup forbids the device node
	nvml.ERROR_MEMORY:                    gpu.FaultForbidden, // of the host
	nvml.ERROR_INSUFFICIENT_RESOURCES:    gpu.FaultForbidden,
	nvml.ERROR_INVALID_ARGUMENT:          gpu.FaultForbidden, // of the request
	nvml.ERROR_ARGUMENT_VERSION_MISMATCH: gpu.FaultForbidden,
}

func faultCode(ret nvml.Return) gpu.FaultCode { return cmp.Or(faultCodes[ret], gpu.FaultDriver) }
