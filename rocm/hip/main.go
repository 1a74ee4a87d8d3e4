// Command bookend-hip makes test allocations on AMD GPUs (package allocation). It takes the request of a backend
// (package protocol), of which it serves only op probe. It is not a backend: it reads the GPU's processes from the
// files that bookend-amd reads, right before it takes memory, and takes none if another process is there. It loads
// ROCm's HIP library, which opens /dev/kfd: while it runs it is one of the driver's processes.
//
// It was written from ROCm's documentation and tested with a library made from that, not on real hardware. It runs if
// amd.hip_library names the library.
//
// Exit codes: those of package backendkit.
package main

import (
	"fmt"
	"os"
	"strings"

	"bookend/internal/allocation"
	"bookend/internal/backendkit"
	"bookend/internal/gpu"
	"bookend/internal/nodefiles"
)

var version = "devel" // set by the linker

func main() {
	backendkit.Program{Name: "bookend-hip", Vendor: gpu.AMD.Name, Version: version, Answer: answer}.Main()
}

func answer(s backendkit.Session) error {
	o := s.Req.Options
	driver := nodefiles.AMDDriver{Proc: o["proc"], Sys: o["sys"]}
	if driver.Proc == "" || driver.Sys == "" || o["hip_library"] == "" {
		return fmt.Errorf("serve %q: proc, sys and hip_library are needed", s.Req.Op)
	}
	return allocation.Vendor{
		Library: &hip, Path: o["hip_library"], Refuse: untestable,
		// Threat: a user who runs this program by hand may have set any variable.
		Setenv: func(visible string) { os.Clearenv(); os.Setenv("ROCR_VISIBLE_DEVICES", visible) },
		Open: func(asked []gpu.Device) (devices []allocation.Device, _ *gpu.Fault, _ error) {
			for _, d := range asked {
				read := func() (gpu.Reading, string) { return read(driver, d.ID) }
				devices = append(devices, allocation.Device{Device: d, Read: read})
			}
			return devices, nil, nil
		},
	}.Serve(s)
}

// untestable returns why a device cannot be tested: ROCm is restricted to devices by their unique ids.
func untestable(id gpu.ID) string {
	switch {
	case strings.Contains(string(id), "/"):
		return "partitions are not tested"
	case !strings.HasPrefix(string(id), "GPU-"):
		return "the GPU has no unique id"
	}
	return ""
}

func read(driver nodefiles.AMDDriver, id gpu.ID) (gpu.Reading, string) {
	cards, err := nodefiles.AMD(driver.Sys)
	if err != nil {
		return gpu.Reading{}, err.Error()
	}
	users, unknown := driver.Users(cards, func(nodefiles.AMDDevice, uint64) bool { return true })
	for _, c := range cards {
		if c.ID == id {
			r, _ := c.Read(users[c.Key], unknown)
			return r, ""
		}
	}
	return gpu.Reading{}, "the driver has no such GPU"
}

var hip = allocation.Library{Name: "HIP", Prefix: "hip", Means: gpu.StartCodes("HIP")}
