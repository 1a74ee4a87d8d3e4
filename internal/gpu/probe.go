package gpu

import "time"

// ProbeRule says how test allocations are to be made. What may be tested at all is the hook's decision; a backend
// refuses besides what it can see to be in use.
type ProbeRule struct {
	// Gap is how many bytes of free memory may be beyond the largest block before that is worth telling.
	Gap uint64 `json:"gap"`
	// Known are the listed processes that are meant to be on the cards. With any other the card is somebody's.
	Known []int `json:"known,omitempty"`
	// Locks are the files to lock while memory is taken, and LockWait the longest wait for all of them.
	Locks    map[ID]string `json:"locks,omitempty"`
	LockWait time.Duration `json:"lock_wait_ns,omitempty"`
	// Empty is an empty folder of root's: where a multi-process service (MPS) is looked for and not found.
	Empty string `json:"empty,omitempty"`
}

// ProbeResult is what a test allocation came to.
type ProbeResult string

const (
	ProbeOK  ProbeResult = "ok"  // the largest block is as large as the free memory, but for the rule's gap
	ProbeGap ProbeResult = "gap" // in two searches less than that could be had in one block
	// ProbeBlocked: no block at all could be had of free memory, or the card takes nobody in.
	ProbeBlocked ProbeResult = "blocked"
	ProbeBroken  ProbeResult = "broken"  // the driver failed with anything but "out of memory"
	ProbeSkipped ProbeResult = "skipped" // not tried, see Why
)

// ProbeMethod is how memory was taken.
type ProbeMethod string

// Contextless is the only method. With a context the card would have some 500 MiB less to give.
const Contextless ProbeMethod = "contextless"

// Probe is a device's test allocation: the largest single block that could be had. Where it lies is unknown.
type Probe struct {
	Device   ID            `json:"device"`
	Result   ProbeResult   `json:"result"`
	Why      string        `json:"why,omitempty"` // of every result but ok and gap: a string from outside may be in it
	Method   ProbeMethod   `json:"method,omitempty"`
	Free     Figure        `json:"free"`    // right before the last search
	Largest  Figure        `json:"largest"` // the largest single block that was given
	Attempts int           `json:"attempts,omitempty"`
	Error    *CallError    `json:"error,omitempty"` // of blocked and broken
	At       time.Duration `json:"at_ns"`           // CLOCK_BOOTTIME at its end
	Times    ProbeTimes    `json:"times,omitzero"`
}

// ProbeTimes are the phases of a probe. Init is shared by all the devices of one backend.
type ProbeTimes struct {
	Init    time.Duration `json:"init_ns"`    // loading and initialising the vendor's library
	Search  time.Duration `json:"search_ns"`  // every attempt
	Release time.Duration `json:"release_ns"` // giving back
}

// CallError is a failed call of the vendor's, with what it means for an admin.
type CallError struct {
	Call    string `json:"call"`
	Code    int    `json:"code"`
	Name    string `json:"name"`              // "CUDA_ERROR_NO_DEVICE"
	Meaning string `json:"meaning,omitempty"` // empty for codes that the backend has no word for
	Remedy  string `json:"remedy,omitempty"`
}

// WatchRule says when watching devices may end. Package settle applies it, in the backend and in the hook.
type WatchRule struct {
	Max  time.Duration `json:"max_ns"`  // longest time to watch
	Flat time.Duration `json:"flat_ns"` // looks that stay equal this long are flat
	// SlackBytes is how far Used may lie above the expected and still be clean.
	SlackBytes uint64          `json:"slack_bytes"`
	Expect     map[ID]Expected `json:"expect,omitempty"`
	// Every is the time between two looks of a recording.
	Every time.Duration `json:"every_ns,omitempty"`
}

// Expected is what a device may carry and be clean, as before the job. The zero value expects an idle one.
type Expected struct {
	Bytes     uint64            `json:"bytes"` // beyond what the processes hold
	Processes []ExpectedProcess `json:"processes,omitempty"`
}

// ExpectedProcess is a process that may be listed, and what it holds then.
type ExpectedProcess struct {
	PID   int    `json:"pid"`
	Bytes uint64 `json:"bytes"`           // its listed figure
	Share uint64 `json:"share,omitempty"` // what the driver holds for it beyond that
}

// Expects returns what is expected of a PID, false where it is not.
func (e Expected) Expects(pid int) (ExpectedProcess, bool) {
	for _, p := range e.Processes {
		if p.PID == pid {
			return p, true
		}
	}
	return ExpectedProcess{}, false
}

// Used is the memory expected in use while these processes are listed: of one that has gone since, none, and of one
// that holds less by now no more than that. Else what they gave back would hide as much of a leak.
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
