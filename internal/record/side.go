package record

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
)

// Side is what was seen at one end of a job: the last sample of its GPUs, how each settled, and the listed processes.
type Side struct {
	Snapshot  gpu.Snapshot
	Curves    map[gpu.ID]Curve
	Processes map[int]Process
	// Stayed is what every sample of a GPU that did not settle showed: processes that are still the same, and memory of
	// no process (PID 0), each with its smallest figure. Nothing else is certain on such a GPU.
	Stayed     map[gpu.ID][]Stay
	Scan       *Scan        // nil without a search for holders, as when nothing was unexplained
	Neighbours gpu.Snapshot // one sample of the node's other GPUs, zero if there was none
}

// AtRest reports whether every GPU was read and is clean.
func (s Side) AtRest(cards []Assigned) bool {
	return !slices.ContainsFunc(cards, func(c Assigned) bool { return s.Curves[c.Device.ID].State != Clean })
}

// Listed returns the entry of a PID on a GPU in this sample, and whether there is one. A nil Side has none.
func (s *Side) Listed(id gpu.ID, pid int) (gpu.Process, bool) {
	if s == nil {
		return gpu.Process{}, false
	}
	r, _ := s.Snapshot.Reading(id)
	return r.Process(pid)
}

// Holdings returns what a search for holders found, nothing without one.
func (s Side) Holdings() []Holding {
	if s.Scan == nil {
		return nil
	}
	return s.Scan.Holdings
}

// Settled reports whether every GPU was read and has settled, clean or not.
func (s Side) Settled(cards []Assigned) bool {
	return !slices.ContainsFunc(cards, func(c Assigned) bool { return !s.Curves[c.Device.ID].State.AtRest() })
}

// Limits are the thresholds of a comparison, in bytes.
type Limits struct {
	Report    uint64 // memory that should be free is reported from this amount on
	Drain     uint64 // with less than this on a GPU, nothing is certain enough to drain
	PerClient uint64 // what the driver holds for a listed process beyond its listed figure
}

// NewLimits returns limits with what was measured of drivers: 8 to 9 MiB for a client (driver 580).
func NewLimits(report, drain uint64) Limits {
	return Limits{Report: report, Drain: drain, PerClient: 9 << 20}
}

// Spare is what the driver may hold for so many processes beyond PerClient each, if it was seen to hold client for one.
func (l Limits) Spare(processes int, client uint64) uint64 {
	return uint64(processes) * (max(client, l.PerClient) - l.PerClient)
}

// Unexplained returns the memory in use less the baseline, the listed processes and the driver's share for each.
func Unexplained(r gpu.Reading, l Limits, b Baseline) gpu.Figure {
	if unknown := cmp.Or(r.Memory.Unjudged, r.Memory.Used.Unknown); unknown != "" {
		return gpu.Unknown(unknown)
	}
	var listed uint64
	for _, p := range r.Processes {
		if !p.Memory.Known() {
			return gpu.Unknown(fmt.Sprintf("memory of PID %d: %s", p.PID, p.Memory.Unknown))
		}
		listed += p.Memory.Bytes + l.PerClient
	}
	if used := r.Memory.Used.Bytes; used > listed {
		return gpu.Bytes(used - min(used, listed+b.Bytes))
	}
	if listed > r.Memory.Used.Bytes+uint64(len(r.Processes))*l.PerClient {
		return gpu.Unknown("processes account for more than is used: shared memory counted twice")
	}
	return gpu.Bytes(0)
}

// StayOf returns what stayed on a GPU of a process or, with PID 0, of no listed process.
func (s Side) StayOf(id gpu.ID, pid int) (Stay, bool) {
	i := slices.IndexFunc(s.Stayed[id], func(p Stay) bool { return p.PID == pid })
	if i < 0 {
		return Stay{}, false
	}
	return s.Stayed[id][i], true
}

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

// Stay is the least memory that any sample showed of a process or, with PID 0, of what no listed one accounts for.
type Stay struct {
	gpu.Process
	Soon uint64 // how many bytes will be left in 5 s if the trend of all samples continues
	// Ending is set if a process that holds it, or may hold it, ended too recently to tell what stays.
	Ending bool
}
