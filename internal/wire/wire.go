// Package wire is the protocol between Bookend and a vendor's backend, version 1.
//
//	hook                                   backend (bookend-gpu)
//	 │  {"bookend":1,"op":"watch",…}\n  ──►  stdin: exactly one request; then the pipe stays open:
//	 │                                       its end means "stop at once"
//	 │  ◄── {"bookend":1,"kind":"hello",…}\n  stdout: JSON lines
//	 │  ◄── {"bookend":1,"kind":"snapshot",…}\n   one per look (watch: one per sample)
//	 │  ◄── {"bookend":1,"kind":"fault",…}\n      the driver as a whole said no; looks may be missing
//	 │                                           (a device's own faults stand in each snapshot)
//	 │  ◄── {"bookend":1,"kind":"health",…}\n     where health was asked for
//	 │  ◄── {"bookend":1,"kind":"probe",…}\n      op probe: one per device, beside hello and fault alone
//	 │  ◄── {"bookend":1,"kind":"done"}\n         last line; an answer without it is cut off
//
// A backend that knows only the vendor-neutral core is complete. Fields it does not know it leaves out: a reading's
// figure or process list that is left out is unknown. A fault is an answer: the exit code stays 0. Lines of a kind that
// the hook does not know are passed over.
package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"bookend/internal/gpu"
)

// Version is the protocol version both sides must name.
const Version = 1

// Limits on what crosses the pipe.
const (
	MaxRequestBytes = 64 << 10 // fits a pipe: the hook's write cannot block
	MaxReplyBytes   = 4 << 20  // 20 looks at 16 GPUs with 150 processes each; Writer ends an answer in time
	// MinEvery is the least time between two looks of a recording.
	MinEvery = 100 * time.Millisecond
)

// Op is what a request asks for.
type Op string

const (
	Snapshot Op = "snapshot" // one look
	Watch    Op = "watch"    // looks until every device is clean or flat, or Watch.Max is over
	Probe    Op = "probe"    // one test allocation on each of Devices, as Request.Probe says
	// Record looks every Watch.Every until stdin ends; the deadline is each look's own. It is done by itself where
	// nobody uses a device that its driver unloads then.
	Record Op = "record"
)

// Request is the one line a hook sends.
type Request struct {
	Bookend int `json:"bookend"`
	Op      Op  `json:"op"`
	// All asks for every device of the node; otherwise only Devices are touched (attaching costs time).
	All     bool         `json:"all,omitempty"`
	Devices []gpu.Device `json:"devices,omitempty"` // by BusID, or by ID where no bus id is known
	// DeadlineMillis is the time the backend has from reading the request; it sets an alarm of its own.
	DeadlineMillis int64         `json:"deadline_ms"`
	Watch          gpu.WatchRule `json:"watch,omitzero"`
	// Health asks for facts about Devices, after the last look at them.
	Health bool `json:"health,omitempty"`
	// Brief leaves out those facts that take the driver milliseconds a device. A backend may tell them all the same.
	Brief bool `json:"brief,omitempty"`
	// Accounting asks for what the driver's accounting kept of processes, with the facts; it is read, never switched.
	Accounting bool `json:"accounting,omitempty"`
	// StartAccounting switches accounting on where it is off. Nothing ever switches it off.
	StartAccounting bool          `json:"start_accounting,omitempty"`
	Probe           gpu.ProbeRule `json:"probe,omitzero"`
	Options         Options       `json:"options,omitempty"`
}

// Options are the vendor's configuration keys that its backend knows: each is the path of a file that it loads.
type Options map[string]string

func (r Request) Deadline() time.Duration { return time.Duration(r.DeadlineMillis) * time.Millisecond }

// Kind is the type of one reply line.
type Kind string

const (
	KindHello    Kind = "hello"
	KindSnapshot Kind = "snapshot"
	KindFault    Kind = "fault"
	KindDone     Kind = "done"
	// KindHealth carries what Request.Health asks for. A backend that knows nothing of it leaves it out.
	KindHealth Kind = "health"
	// KindProbe carries what became of one device's test allocation.
	KindProbe Kind = "probe"
)

// Reply is one line of a backend's answer; which pointer is set follows from Kind.
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

// Line returns the request as the one line to send, in this version of the protocol. It fails when the line
// is longer than MaxRequestBytes: it would not fit the pipe, and the hook would wait for the backend to read.
func (r Request) Line() ([]byte, error) {
	r.Bookend = Version
	line, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	if len(line) >= MaxRequestBytes {
		return nil, fmt.Errorf("encode request: %d bytes, at most %d", len(line)+1, MaxRequestBytes)
	}
	return append(line, '\n'), nil
}

// Writer writes reply lines and keeps them together below MaxReplyBytes, with room left for the last one.
type Writer struct {
	w    io.Writer
	left int
}

// endRoom is kept free for the done line, so that a long answer is short of looks but not cut off.
const endRoom = 64

// NewWriter returns a Writer on w, which gets one Write a line.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, left: MaxReplyBytes} }

// Renew gives a recording's next look all the room again: its looks are read one by one.
func (w *Writer) Renew() { w.left = MaxReplyBytes }

// Write sends one reply. One without room is not sent: *Error with TooLong, and shorter ones may still be.
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
