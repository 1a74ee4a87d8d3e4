package gpu

import "time"

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

// Expected is what a device may carry without being unclean: what it carried before the job. The zero value
// expects an idle device.
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
