package main

import (
	"fmt"
	"strings"
	"time"

	"bookend/internal/backendkit"
	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func (p *prober) untestable(d device) string {
	switch {
	case d.cut():
		return isCut
	case d.mig == nil:
		return "whether the GPU is in MIG mode is not known"
	case d.unjudged != "" && d.unjudged != isVGPU:
		return d.unjudged
	}
	return p.forbidden(d)
}

func (p *prober) forbidden(d device) string {
	mode, failed := ask(d.handle.GetComputeMode, p.lib, "nvmlDeviceGetComputeMode")
	switch {
	case failed != nil && optional(failed.ret):
		return "" // a GPU without compute modes accepts every process
	case failed != nil:
		return "compute mode: " + p.lib.describe(*failed)
	case mode == nvml.COMPUTEMODE_PROHIBITED:
		return "compute mode PROHIBITED lets no one in"
	case mode != nvml.COMPUTEMODE_DEFAULT:
		return "GPUs in an exclusive compute mode are not tested"
	}
	return ""
}

func (p *prober) test(d device, result *gpu.Probe) {
	if !p.More() {
		took := p.init.Round(time.Millisecond)
		backendkit.Skip(result, fmt.Sprintf("%s: CUDA took %v to start", backendkit.OutOfTime, took))
		return
	}
	if d.BusID == "" {
		backendkit.Skip(result, "its bus id is not known")
		return
	}
	number, failed := cudaByBus(string(d.BusID))
	if failed != nil {
		p.unseen(result, *failed)
		return
	}
	if other := strange(d, number); other != "" {
		backendkit.Skip(result, other)
		return
	}
	release, why := p.Lock(d.ID)
	if why != "" {
		backendkit.Skip(result, why)
		return
	}
	defer release()
	v := &vacancy{prober: p, device: d, number: number, times: &result.Times}
	v.search(result)
}

func strange(d device, number cudaDevice) string {
	uuid, failed := number.uuid()
	if failed != nil {
		return failed.Words()
	}
	if _, id, _ := strings.Cut(string(d.ID), "-"); !strings.EqualFold(id, uuid) {
		return fmt.Sprintf("CUDA has another GPU at its place: %s", uuid)
	}
	return ""
}

// vacancy is a device's free memory, as long as no other process is on the device.
type vacancy struct {
	*prober
	device device
	number cudaDevice
	times  *gpu.ProbeTimes
}

// search creates no context: that would take 500 MiB, and keep others off an exclusive GPU.
func (v *vacancy) search(result *gpu.Probe) {
	can, failed := v.number.contextless()
	var step uint64
	if failed == nil && can {
		step, failed = v.number.granularity()
	}
	switch {
	case failed != nil:
		backendkit.Fail(result, *failed)
	case can:
		result.Method = gpu.Contextless
		step = max(step, 1)
		step = (backendkit.SearchStep + step - 1) / step * step // rounded up to the driver's granularity
		backendkit.Search(v, step, v.Req.Probe.Gap, result)
	}
	if failed == nil && !can || result.Error != nil && result.Error.Code == cudaNotSupported {
		const why = "its memory cannot be had without a context, which a test does not make"
		*result = backendkit.Skipped(v.device.ID, why)
	}
}

// Free returns the free memory right before a block is taken, or why the device is not free any more.
func (v *vacancy) Free() (uint64, string) {
	if why := v.forbidden(v.device); why != "" {
		return 0, why
	}
	memory, _ := v.lib.memory(v.device.handle)
	processes, unknown, _ := v.lib.processes(v.device, lists, memory.Total)
	if unknown != "" {
		return 0, "who is on the GPU is not known: " + unknown
	}
	for _, process := range processes {
		if !v.Known[process.PID] {
			return 0, fmt.Sprintf("another process is on the GPU: %d", process.PID)
		}
	}
	return memory.Free.Bytes, memory.Free.Unknown
}

func (v *vacancy) Take(bytes uint64) *outcome {
	begin := v.Boot()
	handle, failed := v.number.create(bytes)
	taken := v.Boot()
	v.times.Search += taken - begin
	if failed != nil {
		return failed
	}
	failed = cudaRelease(handle)
	v.times.Release += v.Boot() - taken
	return failed
}
