package stage

import (
	"errors"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/kmsg"
	"bookend/internal/ledger"
	"bookend/internal/routine"
)

// kernelRequest crosses the pipe of opKernel.
type kernelRequest struct {
	Dev   string          `json:"dev"`
	Since *gpu.KernelMark `json:"since,omitempty"`
}

// serveKernel reads a ring of up to many megabytes, record by record.
var serveKernel = served(func(r kernelRequest) (gpu.KernelLog, error) { return kmsg.Read(r.Dev, r.Since), nil })

// kernelTime is the longest wait for the kernel's log: a ring of 1 MiB takes some 10 ms, read beside the cards.
const kernelTime = 500 * time.Millisecond

// listen starts reading the kernel's log since a mark, nil for the newest entry's alone.
func (h *hook) listen(since *gpu.KernelMark) (collect func()) {
	if !h.cfg.Look.KernelLog {
		return func() {}
	}
	wait := beside[gpu.KernelLog](opKernel, kernelRequest{h.cfg.Paths.Dev, since}, h.left(kernelTime, h.reserve()))
	return func() {
		log, err := wait()
		var defect *routine.Panic
		if errors.As(err, &defect) {
			h.panicked(defect)
		}
		if err != nil {
			log = gpu.KernelLog{Unknown: err.Error()}
		}
		h.kernel = &log
	}
}

// mark is where in the kernel's log the job began, nil where nobody knows.
func (h *hook) mark(run ledger.Run) *gpu.KernelMark {
	if run.Start == nil || run.Start.Kernel == nil || run.Start.Kernel.Unknown != "" || h.again && !run.Sure(h.job) {
		return nil
	}
	return &run.Start.Kernel.Last
}

// sinceJobBegan is the kernel's log since the job's start, nil where that cannot be told: a mark holds for one boot.
func (h *hook) sinceJobBegan(run ledger.Run) *gpu.KernelLog {
	if h.mark(run) == nil || !run.Epoch.Same(h.epoch) {
		return nil
	}
	return h.kernel
}
