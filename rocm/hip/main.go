// Command bookend-hip makes test allocations on AMD GPUs. It takes the request of a backend (package wire), of which it
// serves only op probe. It is not a backend: it reads the GPU's processes from the files that bookend-amd reads, right
// before it takes memory, and takes none if another process is there. It loads ROCm's HIP library, which opens
// /dev/kfd: while it runs it is one of the driver's processes.
//
// It was written from ROCm's documentation and tested with a library made from that, not on real hardware. It runs if
// amd.hip_library names the library.
//
// Exit codes: those of package serve.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"bookend/internal/backendkit"
	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/nodefiles"
	"bookend/internal/protocol"
)

var version = "devel" // set by the linker

func main() {
	p := backendkit.Program{
		Name: "bookend-hip", Vendor: gpu.AMD.Name, Version: version,
		Boot: child.SystemClock().Boot, Exit: os.Exit, Answer: answer,
	}
	os.Exit(p.Run(os.Args[1:]))
}

type prober struct {
	*backendkit.Tests
	nodefiles.AMDDriver
}

func answer(s backendkit.Session) error {
	o := s.Req.Options
	p := &prober{s.Tests(), nodefiles.AMDDriver{Proc: o["proc"], Sys: o["sys"]}}
	if s.Req.Op != protocol.Probe || p.Proc == "" || p.Sys == "" || o["hip_library"] == "" {
		return fmt.Errorf("serve %q: only test allocations, with proc, sys and hip_library", s.Req.Op)
	}
	asked, err := p.Admit(untestable)
	if err != nil {
		return err
	}
	if len(asked) == 0 {
		return p.Skip(nil, "")
	}
	var ids []string
	for _, d := range asked {
		ids = append(ids, string(d.ID))
	}
	if err := prepare(strings.Join(ids, ",")); err != nil {
		return err
	}
	begin := s.Boot()
	failed, ok, err := backendkit.Await(p.Tests, func() (*backendkit.Outcome, error) {
		return start(o["hip_library"]),
			nil
	})
	took := s.Boot() - begin
	switch {
	case err != nil:
		return err
	case !ok:
		return p.Skip(asked, fmt.Sprintf("HIP did not start within %v", took.Round(100*time.Millisecond)))
	}
	for _, d := range asked {
		result := backendkit.Skipped(d.ID, "")
		result.Times.Init = took
		if failed != nil {
			backendkit.Fail(&result, *failed)
		} else {
			p.test(d, &result)
		}
		p.Tell(result)
	}
	return p.Skip(nil, "")
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

func (p *prober) test(d gpu.Device, result *gpu.Probe) {
	if !p.More() {
		backendkit.Skip(result, backendkit.OutOfTime)
		return
	}
	number, failed := byBus(string(d.BusID))
	var step uint64
	if failed == nil {
		step, failed = number.granularity()
	}
	if failed != nil {
		backendkit.Fail(result, *failed)
		return
	}
	release, why := p.Lock(d.ID)
	if why != "" {
		backendkit.Skip(result, why)
		return
	}
	defer release()
	step = max(step, 1)
	step = (backendkit.SearchStep + step - 1) / step * step // rounded up to the driver's granularity
	result.Method = gpu.Contextless
	backendkit.Search(&vacancy{p, d, number, &result.Times}, step, p.Req.Probe.Gap, result)
	if result.Error != nil && result.Error.Code == notSupported {
		*result = backendkit.Skipped(d.ID, "its memory cannot be had by hipMemCreate")
	}
}

// vacancy is a device's free memory, as long as no other process is on the device.
type vacancy struct {
	*prober
	device gpu.Device
	number device
	times  *gpu.ProbeTimes
}

// Free returns the free memory right before a block is taken, or why the device is not free any more.
func (v *vacancy) Free() (uint64, string) {
	cards, err := nodefiles.AMD(v.Sys)
	if err != nil {
		return 0, err.Error()
	}
	users, unknown := v.Users(cards, func(nodefiles.AMDDevice, uint64) bool { return true })
	if unknown != "" {
		return 0, "who is on the GPU is not known: " + unknown
	}
	for _, c := range cards {
		if c.ID != v.device.ID {
			continue
		}
		for pid := range users[c.Key] {
			if !v.Known[pid] {
				return 0, fmt.Sprintf("another process is on the GPU: %d", pid)
			}
		}
		free := c.Memory().Free
		return free.Bytes, free.Unknown
	}
	return 0, "the driver has no such GPU"
}

// Take implements serve.Room.
func (v *vacancy) Take(bytes uint64) *backendkit.Outcome {
	begin := v.Boot()
	failed := v.number.take(bytes)
	v.times.Search += v.Boot() - begin
	return failed
}
