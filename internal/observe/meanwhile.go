package observe

import (
	"slices"
	"sync"
	"time"

	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/nodefiles"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Meanwhile is what a hook reads while the driver answers, besides what belongs to the case.
type Meanwhile struct {
	Tests  map[gpu.ID]record.TestRecord // a start's: the last test allocations
	Output Output                       // an end's
	kernel func() (*gpu.KernelLog, []record.Finding)
}

func meanwhile(a *node.Access, c judge.Case) (judge.Case, Meanwhile) {
	if c.Phase == slurm.Prolog {
		return beforeStart(a, c)
	}
	output, faults := outputOfJob(a, c)
	c.Past.Recording = state.Recorded.Peek(a.Store).Runs.About(c.Past.Run)
	c.Faults = slices.Concat(c.Faults, faults)
	return c, Meanwhile{Output: output, kernel: kernel(a, judge.Mark(c.Past.Run, c.Job))}
}

func beforeStart(a *node.Access, c judge.Case) (judge.Case, Meanwhile) {
	c.Past.Turn = a.Claim(0)
	// An earlier run's report must not be taken for this one's, whatever happens.
	faults := node.Fault(a.Store.Users.RemoveReport(a.Job))
	tests, more := a.Tests()
	c.Faults = slices.Concat(c.Faults, faults, more)
	return c, Meanwhile{Tests: tests, kernel: kernel(a, since(tests, a.Env.Clock.Boot()))}
}

// since returns where a start reads the kernel's log from: before the oldest test that it may trust, nil for none.
func since(tested map[gpu.ID]record.TestRecord, now time.Duration) (mark *gpu.KernelMark) {
	for _, t := range tested {
		counts := t.Probe.At >= now-judge.TestMaxAge && t.Kernel != (gpu.KernelMark{})
		if counts && (mark == nil || t.Kernel.Seq < mark.Seq) {
			mark = &t.Kernel
		}
	}
	return mark
}

// kernel starts to read the kernel's log after a mark, nil for the newest entry. A ring buffer of 1 MiB takes 10 ms.
func kernel(a *node.Access, since *gpu.KernelMark) (
	wait func() (*gpu.KernelLog, []record.Finding),
) {
	paths := a.Config.Paths
	request := nodefiles.Request{Dev: paths.Dev, Proc: paths.Proc, Sys: paths.Sys, Since: since}
	limit := a.Left(a.Times.Scan)
	read := child.Async(func() (gpu.KernelLog, error) { return nodefiles.ReadKernel.Ask(request, limit) })
	return sync.OnceValues(func() (*gpu.KernelLog, []record.Finding) {
		log, err := read()
		if err != nil {
			log = gpu.KernelLog{Unknown: err.Error()}
		}
		return &log, a.Defect(err)
	})
}
