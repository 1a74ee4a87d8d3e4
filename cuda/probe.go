package main

import (
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"bookend/internal/allocation"
	"bookend/internal/backendkit"
	"bookend/internal/child"
	"bookend/internal/gpu"
)

var cuda = allocation.Library{
	Name: "CUDA", Prefix: "cu", Means: gpu.StartCodes("CUDA"),
	Slow: " (persistence mode is off, or several start at once?)",
}

// serveProbe tests devices through CUDA. NVML has the free memory without a context, and the processes.
func serveProbe(s backendkit.Session) error {
	path, err := libraryPath(s.Req.Options[optionCUDA], "libcuda.so.1")
	if err != nil {
		return err
	}
	folder := s.Req.Probe.Empty
	unsafe := empty(folder)
	return allocation.Vendor{
		Library: &cuda, Path: path,
		Refuse: func(id gpu.ID) string {
			if isInstance(id) {
				return "MIG instances are not tested"
			}
			return unsafe
		},
		Setenv: func(visible string) { setenv(visible, folder) },
		Open: func(asked []gpu.Device) (devices []allocation.Device, fault *gpu.Fault, err error) {
			lib, fault, err := openLibrary(s)
			if err == nil && fault == nil {
				open := func(i int) allocation.Device { return lib.openTested(asked[i]) }
				devices, err = child.Parallel(len(asked), open)
			}
			return devices, fault, err
		},
	}.Serve(s)
}

// setenv replaces the environment: it keeps the driver to the GPUs named and away from a multi-process service.
// Threat: a user who runs this program by hand may have set any variable.
func setenv(visible, empty string) {
	os.Clearenv()
	os.Setenv("CUDA_VISIBLE_DEVICES", visible)
	os.Setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID") // a search by bus id needs none; it is the driver's tools' own
	// Otherwise the driver looks for a daemon in a directory that any user can make. In an empty one it finds none.
	os.Setenv("CUDA_MPS_PIPE_DIRECTORY", empty)
	os.Setenv("CUDA_CACHE_DISABLE", "1")
}

// empty returns why a directory may contain MPS. Threat: with a daemon in it the driver becomes its client, as root.
func empty(folder string) string {
	if folder == "" {
		return "no empty directory was named to keep away from MPS"
	}
	fd, err := unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Sprintf("open directory %q: %v", folder, err)
	}
	f := os.NewFile(uintptr(fd), folder)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Sprintf("look at directory %q: %v", folder, err)
	}
	if st.Uid != 0 && st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0 {
		return fmt.Sprintf("directory %q: others may write to it", folder)
	}
	if names, _ := f.Readdirnames(1); len(names) > 0 {
		return fmt.Sprintf("directory %q: not empty, so that MPS may be in it", folder)
	}
	return ""
}

func (l *library) openTested(asked gpu.Device) allocation.Device {
	if why := backendkit.Denied(nodes, asked); why != "" {
		return allocation.Device{Device: asked, Skip: why}
	}
	o := l.openAsked(asked)
	if o.fault != nil {
		return allocation.Device{Device: asked, Skip: o.fault.Detail}
	}
	d := o.devices[0]
	return allocation.Device{Device: d.Device, Skip: l.untestable(d), Read: func() (gpu.Reading, string) {
		no := l.forbidden(d) // first: as little time as can be lies between the process lists and the allocation
		r, _ := l.read(d)
		return r, no
	}}
}

func (l *library) untestable(d device) string {
	switch {
	case d.cut():
		return isCut
	case d.mig == nil:
		return "whether the GPU is in MIG mode is not known"
	case d.unjudged != "" && d.unjudged != isVGPU:
		return d.unjudged
	}
	return l.forbidden(d)
}

func (l *library) forbidden(d device) string {
	mode, failed := ask(d.handle.GetComputeMode, l, "nvmlDeviceGetComputeMode")
	switch {
	case failed != nil && optional(failed.ret):
		return "" // a GPU without compute modes accepts every process
	case failed != nil:
		return "compute mode: " + l.describe(*failed)
	case mode == nvml.COMPUTEMODE_PROHIBITED:
		return "compute mode PROHIBITED: no program can use the GPU (nvidia-smi -c 0 sets the default)"
	case mode != nvml.COMPUTEMODE_DEFAULT:
		return "compute mode EXCLUSIVE: a test could keep a job's process out"
	}
	return ""
}
