package gpu

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ProbeRule sets how test allocations are made. A backend refuses GPUs that it finds in use, whatever the hook asks.
type ProbeRule struct {
	// Gap is how much smaller than free memory the largest block must be to be reported, in bytes.
	Gap uint64 `json:"gap"`
	// Known are the PIDs expected on the GPUs. If any other process is listed, the GPU is in use.
	Known []int `json:"known,omitempty"`
	// Locks are the files to lock during allocation. LockWait is the longest total wait for them.
	Locks    map[ID]string `json:"locks,omitempty"`
	LockWait time.Duration `json:"lock_wait_ns,omitempty"`
	// Empty is an empty directory owned by root. CUDA looks for an MPS server there and finds none.
	Empty string `json:"empty,omitempty"`
	// Pattern are the GPUs whose memory is also written and read. That needs a context, and takes up to 1 s each.
	Pattern []ID `json:"pattern,omitempty"`
}

// ProbeResult is the outcome of a test allocation.
type ProbeResult string

const (
	ProbeOK  ProbeResult = "ok"  // the largest block is less than the rule's gap below free memory
	ProbeGap ProbeResult = "gap" // two searches in a row found a larger difference
	// ProbeBlocked: memory is free but no block could be allocated, or the GPU accepts no contexts.
	ProbeBlocked ProbeResult = "blocked"
	ProbeBroken  ProbeResult = "broken"  // the driver failed with an error other than "out of memory"
	ProbeWrong   ProbeResult = "wrong"   // memory gave back other bits than were written to it; see Pattern
	ProbeSkipped ProbeResult = "skipped" // not tested; see Why
)

// Bad reports whether no memory could be allocated, or not be trusted.
func (r ProbeResult) Bad() bool { return r == ProbeBroken || r == ProbeBlocked || r == ProbeWrong }

// Reasons of a skipped test for which none was due: by design or by the site's own choice.
const (
	NoTestAtStart  = "none at a start (probe.at); the last one may not hold any more"
	NoTestInJob    = "the hook runs inside the job"
	NoTestOfPart   = "a part of a GPU: the test was never tried on one"
	NoTestOfVendor = "no test for GPUs of this vendor is installed, or the job has GPUs of several vendors"
	NoTestOfShared = "others may use it: " // and why
)

// Untested reports whether a test that was due was not made.
func (p Probe) Untested() bool {
	byDesign := slices.Contains([]string{NoTestAtStart, NoTestInJob, NoTestOfPart, NoTestOfVendor}, p.Why)
	return p.Result == ProbeSkipped && !byDesign && !strings.HasPrefix(p.Why, NoTestOfShared)
}

// Untested words why a test that was due was not made, empty if every such test was.
func Untested(tests []Probe) string {
	if i := slices.IndexFunc(tests, Probe.Untested); i >= 0 {
		return "not tested (" + tests[i].Why + ")"
	}
	return ""
}

// ProbeMethod is how memory was allocated.
type ProbeMethod string

// Contextless is the only method. A context would take some 500 MiB of the GPU's memory.
const Contextless ProbeMethod = "contextless"

// Probe is the test allocation of one device: the largest single block. Its physical location is unknown.
type Probe struct {
	Device   ID            `json:"device"`
	Result   ProbeResult   `json:"result"`
	Why      string        `json:"why,omitempty"` // set unless the result is ok or gap; may contain untrusted text
	Method   ProbeMethod   `json:"method,omitempty"`
	Free     Figure        `json:"free"`    // right before the last search
	Largest  Figure        `json:"largest"` // the largest single block that was allocated
	Attempts int           `json:"attempts,omitempty"`
	Error    *CallError    `json:"error,omitempty"` // for blocked and broken
	At       time.Duration `json:"at_ns"`           // CLOCK_BOOTTIME at the end of the test
	Times    ProbeTimes    `json:"times,omitzero"`
	Pattern  *Pattern      `json:"pattern,omitempty"` // nil if none was asked for
}

// Pattern is a test that writes and reads nearly all free memory: a value of each address, then its inverse.
type Pattern struct {
	At    time.Duration `json:"at_ns"` // CLOCK_BOOTTIME at its end
	Bytes uint64        `json:"bytes,omitempty"`
	Wrong uint64        `json:"wrong,omitempty"` // words of 8 bytes that came back otherwise
	First []WrongWord   `json:"first,omitempty"` // some of them, at most 8 of each reading
	// Write and Read are the time of one pass through all bytes: the shorter of both.
	Write time.Duration `json:"write_ns,omitempty"`
	Read  time.Duration `json:"read_ns,omitempty"`
	Why   string        `json:"why,omitempty"` // why it was not made or has no result
	// Slow says that it took more than twice as long as this GPU's earlier ones, empty if not, or if too few are known.
	Slow string `json:"slow,omitempty"`
}

// Speeds are how fast a GPU's earlier pattern tests were, the newest last; those that were slow are left out.
type Speeds []Speed

// Speed is how long a pattern test took to read so many bytes.
type Speed struct {
	Bytes uint64        `json:"bytes"`
	Read  time.Duration `json:"read_ns"`
}

// Plus returns the speeds with that of one more test.
func (s Speeds) Plus(p *Pattern) Speeds {
	const most = 9
	if p == nil || p.Bytes == 0 || p.Read <= 0 || p.Slow != "" {
		return s
	}
	all := append(slices.Clone(s), Speed{p.Bytes, p.Read})
	return all[max(0, len(all)-most):]
}

// Slower says whether a test took more than twice the median of at least five earlier ones, for each byte. They must
// have read between half and twice as many bytes.
func (s Speeds) Slower(p Pattern) string {
	var took []float64
	for _, e := range s {
		if e.Bytes >= p.Bytes/2 && e.Bytes/2 <= p.Bytes {
			took = append(took, float64(e.Read)*float64(p.Bytes)/float64(e.Bytes))
		}
	}
	slices.Sort(took)
	if len(took) < 5 || p.Bytes == 0 || float64(p.Read) <= 2*took[len(took)/2] {
		return ""
	}
	return fmt.Sprintf("%s read in %d ms, which took %d ms in the median of %d earlier tests", Size(p.Bytes),
		p.Read.Milliseconds(), time.Duration(took[len(took)/2]).Milliseconds(), len(took))
}

// Outcome describes what the test found, for an admin; it is empty if none was made.
func (p *Pattern) Outcome() string {
	switch {
	case p == nil:
		return ""
	case p.Bytes == 0 && p.Wrong == 0:
		return "not finished: " + p.Why
	}
	text := fmt.Sprintf("%s written and read twice in %d and %d ms each, wrong words of 8 bytes: %d", Size(p.Bytes),
		p.Write.Milliseconds(), p.Read.Milliseconds(), p.Wrong)
	if p.Bytes == 0 {
		text = fmt.Sprintf("not finished: %s; wrong words of 8 bytes so far: %d", p.Why, p.Wrong)
	}
	if p.Slow != "" {
		text += "; slow: " + p.Slow
	}
	for _, w := range p.First[:min(len(p.First), 3)] {
		text += fmt.Sprintf("; at byte %d bits %#x", w.Offset, w.Flipped)
	}
	return text
}

// WrongWord is a word that came back otherwise than it was written.
type WrongWord struct {
	Offset  uint64 `json:"offset"`       // in bytes from the first that was tested; its physical place is unknown
	Flipped uint64 `json:"flipped_bits"` // each bit that differs is 1
}

// ProbeTimes are the durations of a probe's phases. Init is shared by all devices of one backend.
type ProbeTimes struct {
	Init    time.Duration `json:"init_ns"`    // loading and initialising the vendor's library
	Search  time.Duration `json:"search_ns"`  // all attempts
	Release time.Duration `json:"release_ns"` // freeing the memory
}

func (t ProbeTimes) Total() time.Duration { return t.Init + t.Search + t.Release }

// CallError is a failed call of the vendor's library, with its meaning for an admin.
type CallError struct {
	Call    string `json:"call"`
	Code    int    `json:"code"`
	Name    string `json:"name"`              // "CUDA_ERROR_NO_DEVICE"
	Meaning string `json:"meaning,omitempty"` // empty if the backend has no explanation for the code
	Remedy  string `json:"remedy,omitempty"`
}

// WatchRule sets when watching devices may end. Package settle applies it, in the backend and in the hook.
type WatchRule struct {
	Max  time.Duration `json:"max_ns"`  // longest time to watch
	Flat time.Duration `json:"flat_ns"` // a device is flat if its samples stay equal this long
	// SlackBytes: a device is clean if Used exceeds the expected amount by less than this.
	SlackBytes uint64          `json:"slack_bytes"`
	Expect     map[ID]Expected `json:"expect,omitempty"`
	Every      time.Duration   `json:"every_ns,omitempty"` // the interval between two samples of a recording
}

// Expected is what a clean device may already hold, for example from before the job. The zero value is an idle device.
type Expected struct {
	Bytes     uint64            `json:"bytes"` // not counting what the processes hold
	Processes []ExpectedProcess `json:"processes,omitempty"`
}

// ExpectedProcess is a process that may be listed, and the memory that it then holds.
type ExpectedProcess struct {
	PID   int    `json:"pid"`
	Bytes uint64 `json:"bytes"`           // the memory listed for it
	Share uint64 `json:"share,omitempty"` // memory the driver allocates for it in addition
}

func (e Expected) Expects(pid int) (ExpectedProcess, bool) {
	return first(e.Processes, func(p ExpectedProcess) bool { return p.PID == pid })
}

// Used returns the memory expected in use while these processes are listed. A process that has exited counts as 0, and
// one that now holds less counts with the lower figure. Otherwise the memory it freed would hide a leak of that size.
func (e Expected) Used(listed []Process) uint64 {
	used := e.Bytes
	for _, p := range listed {
		if want, ok := e.Expects(p.PID); ok {
			if p.Memory.Known() {
				want.Bytes = min(want.Bytes, p.Memory.Bytes)
			}
			used += want.Bytes + want.Share
		}
	}
	return used
}
