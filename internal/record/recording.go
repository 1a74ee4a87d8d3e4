package record

import (
	"slices"
	"time"

	"bookend/internal/gpu"
)

// Recording is what the recorder's samples showed of a run between its start and end: every maximum is a lower bound.
type Recording struct {
	From    time.Duration  `json:"from_ns"`  // CLOCK_BOOTTIME of the first sample
	To      time.Duration  `json:"to_ns"`    // of the last sample
	Every   time.Duration  `json:"every_ns"` // intended interval of the samples
	Samples int            `json:"samples"`
	Missed  []Span         `json:"missed,omitempty"` // intervals without samples; at most 8
	GPUs    []GPURecording `json:"gpus"`
	// Elsewhere are processes of the job, by cgroup, on GPUs of other running jobs; at most 32.
	Elsewhere []RecordedProcess `json:"elsewhere,omitempty"`
}

// Span is a time without a sample (CLOCK_BOOTTIME).
type Span struct {
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
}

// GPURecording is what was seen of one GPU.
type GPURecording struct {
	ID      gpu.ID `json:"id"`
	Samples int    `json:"samples"`
	Unread  int    `json:"unread,omitempty"` // samples in which memory or processes could not be read
	Peak    Most   `json:"peak"`             // memory in use
	Own     Most   `json:"own,omitzero"`     // of the job's own processes together
	// Unlisted is the memory that no process accounts for, beyond the first sample's, and for at least lasting.
	Unlisted   Most              `json:"unlisted,omitzero"`
	Together   int               `json:"together,omitempty"` // most processes of the job at the same time
	Busy       Busy              `json:"busy,omitzero"`
	Processes  []RecordedProcess `json:"processes,omitempty"` // at most 32, the largest
	More       int               `json:"more,omitempty"`      // processes that were dropped
	Curve      Course            `json:"curve,omitzero"`
	Faults     []RecordedFault   `json:"faults,omitempty"`      // errors of the GPU, one for each code; at most 16
	MoreFaults int               `json:"more_faults,omitempty"` // that were not kept

	Beyond *Beyond `json:"beyond,omitempty"`
	// Client is the least memory, in bytes, that the driver was seen to hold for a process beyond the process's figure;
	// 0 if no two successive samples show it.
	Client uint64 `json:"client,omitempty"`
}

// Beyond tracks the memory that no process accounts for.
type Beyond struct {
	Base  uint64        `json:"base"`            // at the first sample
	Extra uint64        `json:"extra,omitempty"` // the least beyond Base since Since
	Since time.Duration `json:"since_ns,omitempty"`
	// Client is the last sample's value for Recorded.Client: memory and processes are read one after the other.
	Client uint64 `json:"client,omitempty"`
}

// Recordings are the recordings of a node's open runs, by Run.Name.
type Recordings map[string]Recording

func (r Recordings) About(run Run) *Recording {
	if own, ok := r[run.Name()]; ok {
		return &own
	}
	return nil
}

// Most is the largest figure seen.
type Most struct {
	Bytes uint64        `json:"bytes"`
	At    time.Duration `json:"at_ns"` // CLOCK_BOOTTIME
}

// Busy sums up how busy a GPU was.
type Busy struct {
	Samples int           `json:"samples"` // in which the driver reported it
	Sum     int           `json:"sum"`     // of their percentages
	Most    int           `json:"most"`    // percent
	Idle    time.Duration `json:"idle_ns"` // time in which no kernel ran
}

// Course is a GPU's memory over time: the most in use in each of at most 240 steps of equal length.
type Course struct {
	Step time.Duration `json:"step_ns"`
	Used []uint32      `json:"used_mib"`
}

// Writes is the interval of writes without news: at an end, the last sample on record may be that much older.
const Writes = 3 * time.Second

// Late is how far apart two samples may be before the time between them counts as missed.
func (r *Recording) Late() time.Duration { return Writes + r.Every*3/2 + 250*time.Millisecond }

// Gaps returns the intervals of a run without samples, including those at its start and end.
func (r *Recording) Gaps(from, to time.Duration) (all []Span) {
	if r == nil || r.Samples == 0 {
		return []Span{{from, to}}
	}
	if r.From-from > r.Late() {
		all = append(all, Span{from, r.From})
	}
	all = append(all, r.Missed...)
	if to-r.To > r.Late() {
		all = append(all, Span{r.To, to})
	}
	return all
}

// Whole reports whether close samples saw every interval of a run, on all of its GPUs, and no process was dropped.
func (r *Recording) Whole(from, to time.Duration) bool {
	more := func(g GPURecording) bool { return g.More > 0 }
	return r.Measures(from, to) && r.Close(from, to) && !slices.ContainsFunc(r.GPUs, more)
}

// Measures reports whether the memory of the job's processes was seen at every interval of a run: a peak is the peak.
func (r *Recording) Measures(from, to time.Duration) bool {
	unread := func(g GPURecording) bool { return g.Unread > 0 }
	return r != nil && len(r.Gaps(from, to)) == 0 && !slices.ContainsFunc(r.GPUs, unread)
}

// Unused reports whether no sample saw a process of any owner, a running kernel, or more than MaxBaseline in
// use: processes in a container may not be listed.
func (g GPURecording) Unused() bool {
	return g.Samples > 0 && g.Unread+len(g.Processes)+g.More+g.Together+g.Busy.Most == 0 &&
		g.Peak.Bytes <= MaxBaseline
}

// Close reports whether samples were so close to each other, from start to end, that they missed no notable use.
func (r *Recording) Close(from, to time.Duration) bool {
	const often = 5 * time.Second
	return r != nil && r.Every <= often && len(r.Gaps(from, to)) == 0
}

// Idle reports whether a GPU was never used between the start and the end of a run.
func (r *Recording) Idle(g GPURecording, from, to time.Duration) bool {
	return r.Close(from, to) && g.Unused() && g.Busy.Samples > 0
}

// Bare returns the recordings without curves and with the largest processes only, for a file that would be too large.
func (r Recordings) Bare() Recordings {
	const most = 2 // processes
	bare := Recordings{}
	for name, run := range r {
		run.GPUs, run.Elsewhere = slices.Clone(run.GPUs), slices.Clone(run.Elsewhere[:min(len(run.Elsewhere), most)])
		for i := range run.GPUs {
			g := &run.GPUs[i]
			g.Curve, g.Processes = Course{}, slices.Clone(g.Processes[:min(len(g.Processes), most)])
			for j := range g.Processes {
				g.Processes[j].Curve = nil
			}
		}
		bare[name] = run
	}
	return bare
}

// Mean returns the mean percentage, nil if the driver never reported it.
func (b Busy) Mean() *int {
	if b.Samples == 0 {
		return nil
	}
	return new((b.Sum + b.Samples/2) / b.Samples)
}

// Proofs returns the processes that a sample saw in a job's cgroup, for attribution.
func (r *Recording) Proofs() (seen []Sighting) {
	if r == nil {
		return nil
	}
	for _, g := range r.GPUs {
		for _, p := range g.Processes {
			if p.Owner.Found() && p.Owner.Conflict == "" {
				seen = append(seen, Sighting{PID: p.PID, Start: p.Start, Owner: p.Owner})
			}
		}
	}
	return seen
}

// RecordedUntil returns what was recorded of a run, nil for nothing, and until when it ran: so far if it has not ended.
func (r Run) RecordedUntil(soFar *Recording) (recording *Recording, until time.Duration) {
	end := r.Epilog()
	if end != nil {
		soFar = end.Recording
	}
	switch {
	case soFar == nil || soFar.Samples == 0:
		return nil, 0
	case end == nil:
		return soFar, soFar.To
	}
	return soFar, end.Over()
}
