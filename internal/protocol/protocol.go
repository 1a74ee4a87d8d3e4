// Package protocol is the protocol between Bookend and a vendor's backend, version 1.
//
//	hook                                   backend (bookend-gpu)
//	 │  {"bookend":1,"op":"watch",…}\n  ──►  stdin: exactly one request; then the pipe stays open:
//	 │                                       its end means "stop at once"
//	 │  ◄── {"bookend":1,"kind":"hello",…}\n  stdout: JSON lines
//	 │  ◄── {"bookend":1,"kind":"snapshot",…}\n   one per sample
//	 │  ◄── {"bookend":1,"kind":"fault",…}\n      the driver as a whole failed; samples may be missing
//	 │                                           (a device's own faults are in each snapshot)
//	 │  ◄── {"bookend":1,"kind":"health",…}\n     if health was requested
//	 │  ◄── {"bookend":1,"kind":"probe",…}\n      op probe: one per device, next to hello and fault only;
//	 │                                           a second one once its memory was written and read
//	 │  ◄── {"bookend":1,"kind":"done"}\n         last line; an answer without it is cut off
//
// A backend that supports only the vendor-neutral core is complete. It leaves out all other fields: a figure or process
// list that is missing from a reading is unknown. A fault is an answer: the exit code stays 0. The hook ignores lines
// of an unknown kind.
package protocol

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"bookend/internal/gpu"
)

// Version is the protocol version that both sides must name.
const Version = 1

// Limits on what crosses the pipe.
const (
	MaxRequestBytes = 64 << 10 // fits into a pipe: the hook's write cannot block
	MaxReplyBytes   = 4 << 20  // 20 samples of 16 GPUs with 150 processes each; Writer ends an answer in time
)

// Op is the operation that a request asks for.
type Op string

const (
	Snapshot Op = "snapshot" // one sample
	Watch    Op = "watch"    // sample until every device is clean or flat, or Watch.Max has passed
	Probe    Op = "probe"    // one test allocation on each of Devices, as Request.Probe describes
	// Record samples every Watch.Every until stdin ends; the deadline is that of each sample. It also ends when all
	// devices are unused and the driver of one unloads it then.
	Record Op = "record"
)

// Request is the one line that a hook sends.
type Request struct {
	Bookend int `json:"bookend"`
	Op      Op  `json:"op"`
	// All requests every device of the node; otherwise only Devices are accessed (attaching costs time).
	All     bool         `json:"all,omitempty"`
	Devices []gpu.Device `json:"devices,omitempty"` // by BusID, or by ID if no bus id is known
	// DeadlineMillis is the time the backend has from reading the request; it sets an alarm of its own.
	DeadlineMillis int64         `json:"deadline_ms"`
	Watch          gpu.WatchRule `json:"watch,omitzero"`
	// Health requests facts about Devices, read after their last sample.
	Health bool `json:"health,omitempty"`
	// Brief leaves out the facts that take the driver milliseconds per device. A backend may still send them.
	Brief bool `json:"brief,omitempty"`
	// Identity, with Health, requests also the facts for a vendor's ticket. A backend without them leaves them out.
	Identity bool          `json:"identity,omitempty"`
	Probe    gpu.ProbeRule `json:"probe,omitzero"`
	Options  Options       `json:"options,omitempty"`
}

// Options are the vendor's configuration keys that its backend supports; each value is the path of a file to load.
type Options map[string]string

// Environment returns all variables that the backend gets: LD_BIND_NOW would kill it at its start, LD_PRELOAD and
// LD_LIBRARY_PATH would load other code into it, CUDA_* would hide devices.
func (r Request) Environment() []string {
	// On a node with 128 cores the backend would take 1 ms longer to start, to prepare for all of them.
	all := []string{fmt.Sprint("GOMAXPROCS=", 4+len(r.Devices))}
	if r.Op != Probe { // a test changes its environment while it starts, which NVML may read
		all = append(all, "BOOKEND_NVML="+cmp.Or(r.Options["nvml_library"], gpu.NVIDIA.Library))
	}
	return all
}

func (r Request) Deadline() time.Duration { return time.Duration(r.DeadlineMillis) * time.Millisecond }

// Kind is the type of one reply line.
type Kind string

const (
	KindHello    Kind = "hello"
	KindSnapshot Kind = "snapshot"
	KindFault    Kind = "fault"
	KindDone     Kind = "done"
	// KindHealth carries what Request.Health requests. A backend that does not support it leaves it out.
	KindHealth Kind = "health"
	// KindProbe carries the result of one device's test allocation.
	KindProbe Kind = "probe"
)

// Reply is one line of a backend's answer; Kind determines which pointer is set.
type Reply struct {
	Bookend  int           `json:"bookend"`
	Kind     Kind          `json:"kind"`
	Hello    *Hello        `json:"hello,omitempty"`
	Snapshot *gpu.Snapshot `json:"snapshot,omitempty"`
	Fault    *gpu.Fault    `json:"fault,omitempty"`
	Health   []gpu.Health  `json:"health,omitempty"`
	Probe    *gpu.Probe    `json:"probe,omitempty"`
}

// Hello names the backend.
type Hello struct {
	Backend string `json:"backend"` // "nvidia"
	Version string `json:"version"` // of the backend program
}

// Reserve is for one last sample after Watch.Max: attaching was reported to take 1-3 s, a call in teardown 0.4 s.
const Reserve = 500 * time.Millisecond

// Within limits the request to the time that is left. The backend ends by itself before it would be killed, so that its
// samples arrive. A watch that fits is not shortened: what is concluded from it depends on how long it was.
func (r Request) Within(left time.Duration) Request {
	r.DeadlineMillis = min(r.DeadlineMillis, left.Milliseconds())
	r.Watch.Max = max(0, min(r.Watch.Max, left-Reserve))
	return r
}

// Line returns the request as the one line to send, in this version of the protocol. A line of MaxRequestBytes would
// not fit the pipe, and the hook would wait for the backend to read. If there is no room for Watch.Expect it is left
// out: the backend then watches longer, and the hook judges the result itself. What is too long even so is an error.
func (r Request) Line() ([]byte, error) {
	r.Bookend = Version
	line, err := json.Marshal(r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("encode request: %w", err)
	case len(line) < MaxRequestBytes:
		return append(line, '\n'), nil
	case r.Watch.Expect == nil:
		return nil, fmt.Errorf("encode request: %d bytes, at most %d", len(line)+1, MaxRequestBytes)
	}
	r.Watch.Expect = nil
	return r.Line()
}

// Writer writes reply lines and keeps their total below MaxReplyBytes, with room left for the last one.
type Writer struct {
	w    io.Writer
	left int
}

// endRoom is kept free for the done line, so that a long answer lacks samples but is not cut off.
const endRoom = 64

// NewWriter returns a Writer on w, which gets one Write per line.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, left: MaxReplyBytes} }

// Renew makes all the room available again for a recording's next sample, as its samples are read one by one.
func (w *Writer) Renew() { w.left = MaxReplyBytes }

// Write sends one reply. A reply without room is not sent: *Error with TooLong; shorter ones may still fit.
func (w *Writer) Write(r Reply) error {
	r.Bookend = Version
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode reply: %w", err)
	}
	line = append(line, '\n')
	room := w.left - endRoom
	if r.Kind == KindDone {
		room = w.left
	}
	if len(line) > room {
		return &Error{Problem: TooLong, Detail: fmt.Sprintf("%d bytes more than %d", len(line), room)}
	}
	w.left -= len(line)
	if _, err := w.w.Write(line); err != nil {
		return fmt.Errorf("write reply: %w", err)
	}
	return nil
}
