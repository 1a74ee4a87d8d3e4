package health

import (
	"fmt"
	"slices"
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
	// Jobs is how many have ended since without another test.
	Jobs int `json:"jobs,omitempty"`
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
	MaxAge time.Duration
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
	case age < 0 || age > n.MaxAge:
		return fmt.Sprintf("it is older than %v", n.MaxAge)
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

// slowly is longer than an ended process's memory needs to be given back: 0.1 to 0.4 s were measured.
const slowly = time.Second

// AtEnd is what a job's end knows beyond that. Kernel is the log since the job's start.
type AtEnd struct {
	SinceTest
	Start    gpu.Probe // of the card, as the job's start knew it
	Job      slurm.ExitStatus
	Messages int // about memory in the job's output
	Found    []finding.Finding
	Rule     config.Probe
}

// Worn says why a card is worth another test at a job's end; empty where that could not tell more than the last one,
// which the job's start already found to hold.
func (r TestRecord) Worn(n AtEnd) string {
	id := n.Card.Device.ID
	switch {
	case n.Rule.Every == 0:
		return "each end tests"
	case n.Start.Result != gpu.ProbeOK || n.Start.At != r.Probe.At || n.Start.Device != id:
		return "the job's start did not trust the last one"
	case !n.Job.Known || n.Job.Raw != 0 || n.Job.Derived != 0:
		return "the job or a step of it failed, or nobody knows"
	case n.Messages > 0:
		return "the job's output speaks of memory"
	case r.Jobs+1 >= n.Rule.AfterJobs:
		return fmt.Sprintf("%d jobs have ended since", r.Jobs)
	case n.Scene.Now.Curves[id].Settled > slowly:
		return "its memory was given back slowly"
	case slices.ContainsFunc(n.Found, func(f finding.Finding) bool { return f.GPU == id }):
		return "something was found on it"
	}
	return r.Distrust(n.SinceTest)
}
