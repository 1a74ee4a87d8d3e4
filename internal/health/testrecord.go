package health

import (
	"fmt"
	"time"

	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// TestRecord is the last test of a card, kept from one hook to the next.
type TestRecord struct {
	Probe  gpu.Probe      `json:"probe"`
	Epoch  gpu.Epoch      `json:"epoch"`
	Kernel gpu.KernelMark `json:"kernel"` // the newest entry of the kernel's log then; zero where it was not read
	Wall   time.Time      `json:"wall"`   // for display
	// Seen is how many processes, one after the other, came to this result.
	Seen int `json:"seen,omitempty"`
}

// WhenTested reports whether a hook of this phase tests the cards of its job.
func WhenTested(at config.ProbeAt, phase slurm.Context) bool {
	return phase == slurm.Prolog && (at == config.ProbeProlog || at == config.ProbeBoth) ||
		phase == slurm.Epilog && (at == config.ProbeEpilog || at == config.ProbeBoth)
}

// TestMaxAge is how long a start trusts a test at an earlier job's end.
const TestMaxAge = 24 * time.Hour

// SinceTest is what a start knows that an earlier test may not have survived.
type SinceTest struct {
	At     time.Duration // CLOCK_BOOTTIME
	Epoch  gpu.Epoch
	Kernel *gpu.KernelLog // since the record's mark, or since an earlier one; nil where nobody read it
	Scene  finding.Scene
	Card   finding.Card
}

// Distrust says why the test's result, good or bad, may not hold any more; empty where nothing has changed since. What
// was not tested is never trusted.
func (r TestRecord) Distrust(n SinceTest) string {
	log := n.Kernel
	switch age := n.At - r.Probe.At; {
	case r.Probe.Result == gpu.ProbeSkipped:
		return "it came to no result"
	case !r.Epoch.Same(n.Epoch):
		return "the driver was reloaded or the node booted since, or no one can tell"
	case age < 0 || age > TestMaxAge:
		return fmt.Sprintf("it is older than %v", TestMaxAge)
	case r.Kernel == gpu.KernelMark{}:
		return "the kernel's log was not read at that time"
	case log == nil:
		return "the kernel's log was not read"
	case log.Unknown != "":
		return "the kernel's log could not be read"
	case log.Lost:
		return "entries of the kernel's log are missing since"
	}
	for _, x := range log.Xids {
		if x.Seq > r.Kernel.Seq && (x.BusID == "" || x.BusID == n.Card.Device.BusID) {
			return fmt.Sprintf("the driver reported Xid %d since", x.Code)
		}
	}
	return Busy(n.Scene, n.Card)
}
