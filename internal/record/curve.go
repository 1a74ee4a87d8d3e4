package record

import (
	"time"

	"bookend/internal/gpu"
)

// State is what a series of samples of one device shows.
type State string

const (
	Clean      State = "clean"   // the last sample shows nothing beyond what is expected
	Flat       State = "flat"    // something is there and did not change for the rule's time, in enough samples
	Moving     State = "moving"  // still changing, or not sampled for long enough to tell
	Unreadable State = "unknown" // the last sample could not read it
)

// AtRest reports whether the device has settled: what is there, if anything, has stopped changing.
func (s State) AtRest() bool { return s == Clean || s == Flat }

// Dirty reports whether something is there, settled or not.
func (s State) Dirty() bool { return s == Flat || s == Moving }

// Curve is the verdict on one device's series of samples.
type Curve struct {
	State   State         `json:"state"`
	Why     string        `json:"why,omitempty"` // for Unknown
	Looks   int           `json:"looks"`
	Settled time.Duration `json:"settled_ns"` // from the first sample to the first of the final equal ones
	Span    time.Duration `json:"span_ns"`    // from the first sample to the last
	// Steady is true if the final samples were equal for Rule.Flat, enough in number and close enough in time: always
	// for Flat; for Unknown it says that the device's fault, or what cannot be read, stayed.
	Steady bool `json:"steady,omitempty"`
}

// Stay is memory that every sample showed: a process's or, with PID 0, what no listed process accounts for. Its figure
// is the smallest in any sample.
type Stay struct {
	gpu.Process
	// Soon is how many bytes will be left in 5 s if the trend of all samples continues.
	Soon uint64
	// Ending is set if a process that holds it, or may hold it, ended too recently to tell what stays.
	Ending bool
}
