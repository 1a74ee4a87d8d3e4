package record

import (
	"cmp"
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
	Missed  []Span         `json:"missed,omitempty"` // intervals without samples; at most MaxMissed
	GPUs    []GPURecording `json:"gpus"`
	// Elsewhere are processes of the job, by cgroup, on GPUs of other running jobs; at most MaxRecorded.
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
	Unlisted  Most              `json:"unlisted,omitzero"`
	Together  int               `json:"together,omitempty"` // most processes of the job at the same time
	Busy      Busy              `json:"busy,omitzero"`
	Processes []RecordedProcess `json:"processes,omitempty"` // at most MaxRecorded, the largest
	More      int               `json:"more,omitempty"`      // processes that were dropped
	Curve     Course            `json:"curve,omitzero"`

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

// About returns what was recorded of a run, nil if nothing was.
func (r Recordings) About(run Run) *Recording {
	if own, ok := r[run.Name()]; ok {
		return &own
	}
	return nil
}

// Proofs returns the proofs of all recordings.
func (r Recordings) Proofs() (seen []Sighting) {
	for _, o := range r {
		seen = append(seen, o.Proofs()...)
	}
	return seen
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

// Bounds of a recording, whatever a job does.
const (
	MaxMissed   = 8
	MaxRecorded = 32
	MaxPoints   = 240
	maxCurves   = 4 // processes that have a curve
	// lasting separates lasting memory from teardown: freeing an ended process's memory takes 0.1 to 0.4 s (measured).
	lasting = 2 * time.Second
)

// Sample is what one sample shows of a node's GPUs.
type Sample struct {
	Look   gpu.Snapshot
	Known  map[int]Process // what /proc says of the processes in it
	Shared bool            // another run has one of this run's GPUs
	Limits Limits
}

// Add adds a sample, and reports whether it showed anything new: more memory, or another process.
func (r *Recording) Add(self Run, s Sample) (news bool) {
	at := s.Look.At
	if at < r.To { // from another boot
		return false
	}
	if r.Samples == 0 {
		r.From, r.To = at, at
		for _, d := range self.Devices {
			r.GPUs = append(r.GPUs, GPURecording{ID: d.Device.ID})
		}
	}
	if at-r.To > late(r.Every) {
		r.miss(Span{r.To, at})
	}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		was, known := g.Peak.Bytes+g.Own.Bytes+g.Unlisted.Bytes, len(g.Processes)+g.More
		g.add(self, s, r.From, max(r.To, at-late(r.Every)))
		news = news || was != g.Peak.Bytes+g.Own.Bytes+g.Unlisted.Bytes || known != len(g.Processes)+g.More
	}
	elsewhere := len(r.Elsewhere)
	r.elsewhere(self, s)
	r.To, r.Samples = at, r.Samples+1
	return news || r.Samples == 1 || len(r.Elsewhere) > elsewhere
}

// elsewhere keeps the run's processes on GPUs that it was not given. Samples show only GPUs of running jobs.
func (r *Recording) elsewhere(self Run, s Sample) {
	for _, reading := range s.Look.Readings {
		for _, p := range reading.Processes {
			facts := s.Known[p.PID]
			readable := facts.PID != 0 && facts.Why == "" && !facts.Gone
			if !readable || !self.Owns(facts.Cgroup) || self.Given(reading.Device.ID) {
				continue
			}
			var i int
			r.Elsewhere, i = withProcess(r.Elsewhere, reading.Device.ID, p, facts, s.Look.At)
			if i >= MaxRecorded {
				r.Elsewhere = r.Elsewhere[:i]
			}
		}
	}
}

// Writes is the interval of writes without news: at an end, the last sample on record may be that much older.
const Writes = 3 * time.Second

// late is how far apart two samples may be before the time between them counts as missed.
func late(every time.Duration) time.Duration { return Writes + every*3/2 + 250*time.Millisecond }

func (r *Recording) miss(s Span) {
	if n := len(r.Missed); n == MaxMissed {
		r.Missed = append(r.Missed[:n-1:n-1], Span{r.Missed[n-1].From, s.To})
		return
	}
	r.Missed = append(r.Missed, s)
}

// Gaps returns the intervals of a run without samples, including those at its start and end.
func (r *Recording) Gaps(from, to time.Duration) (all []Span) {
	if r == nil || r.Samples == 0 {
		return []Span{{from, to}}
	}
	if r.From-from > late(r.Every) {
		all = append(all, Span{from, r.From})
	}
	all = append(all, r.Missed...)
	if to-r.To > late(r.Every) {
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

func (g *GPURecording) add(self Run, s Sample, first, last time.Duration) {
	at := s.Look.At
	reading, ok := s.Look.Reading(g.ID)
	g.Samples++
	nameless := func(p gpu.Process) bool {
		facts := s.Known[p.PID]
		return facts.PID == 0 || facts.Why != "" || facts.EnvUnknown != "" && !facts.Cgroup.Found()
	}
	if !ok || !reading.Memory.Used.Known() || reading.ProcessesUnknown != "" ||
		slices.ContainsFunc(reading.Processes, nameless) {
		g.Unread++
	}
	if !ok {
		return
	}
	used := reading.Memory.Used.Bytes
	g.Peak.see(used, at)
	slot := g.Curve.at(at-first, used, g.Processes)
	var own uint64
	together := 0
	for _, p := range reading.Processes {
		facts := s.Known[p.PID]
		if self.Owns(facts.Cgroup) || !s.Shared && self.probably(facts) {
			own, together = own+p.Memory.Bytes, together+1
		}
		if facts.PID != 0 && facts.Why == "" && !facts.Gone {
			g.process(p, facts, at, slot)
		}
	}
	g.Own.see(own, at)
	g.Together = max(g.Together, together)
	g.keep(first, last, at)
	g.account(reading, s.Limits, at)
	if b := reading.Busy; b != nil {
		g.Busy.Samples, g.Busy.Sum, g.Busy.Most = g.Busy.Samples+1, g.Busy.Sum+b.GPU, max(g.Busy.Most, b.GPU)
		if b.GPU == 0 {
			g.Busy.Idle += at - last
		}
	}
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

func (m *Most) see(bytes uint64, at time.Duration) {
	if bytes > m.Bytes {
		*m = Most{bytes, at}
	}
}

func (g *GPURecording) process(p gpu.Process, facts Process, at time.Duration, slot int) {
	var i int
	g.Processes, i = withProcess(g.Processes, g.ID, p, facts, at)
	if i < maxCurves {
		g.Processes[i].Curve = reach(g.Processes[i].Curve, slot, inMiB(p.Memory.Bytes))
	}
}

// withProcess adds what one sample showed of a process on a GPU to a list, and returns the index of that process.
func withProcess(list []RecordedProcess, id gpu.ID, p gpu.Process, facts Process, at time.Duration,
) (all []RecordedProcess, i int) {
	i = slices.IndexFunc(list, func(o RecordedProcess) bool {
		return o.GPU == id && o.PID == p.PID && o.Start == facts.Start
	})
	if i < 0 {
		i = len(list)
		list = append(list, RecordedProcess{GPU: id, PID: p.PID, Start: facts.Start, First: at})
	}
	list[i].see(p, facts, at)
	return list, i
}

// keep drops processes beyond MaxRecorded: first those that have gone, the smallest first. It counts those that began
// since the last sample: the others were counted when they were first dropped, unless this is the first sample.
func (g *GPURecording) keep(first, last, now time.Duration) {
	if len(g.Processes) <= MaxRecorded {
		return
	}
	slices.SortStableFunc(g.Processes, func(a, b RecordedProcess) int {
		if (a.Last == now) != (b.Last == now) {
			return cmp.Compare(b.Last, a.Last)
		}
		return cmp.Compare(b.Most, a.Most)
	})
	for _, p := range g.Processes[MaxRecorded:] {
		if p.First < now || p.Start > last || first == now {
			g.More++
		}
	}
	g.Processes = g.Processes[:MaxRecorded]
}

func (g *GPURecording) account(r gpu.Reading, limits Limits, at time.Duration) {
	bytes, unknown := Unexplained(r, limits, Baseline{})
	if g.Beyond == nil && unknown == "" {
		g.Beyond = &Beyond{Base: bytes}
	}
	b := g.Beyond
	if b == nil {
		return
	}
	g.sawClient(r)
	switch extra := bytes - min(bytes, b.Base+limits.Spare(len(r.Processes), g.Client)); {
	case unknown != "" || extra < limits.Report:
		b.Extra = 0
	case b.Extra == 0:
		b.Extra, b.Since = extra, at
	default:
		b.Extra = min(b.Extra, extra)
	}
	if at-b.Since >= lasting {
		g.Unlisted.see(b.Extra, at)
	}
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

// Mean returns the mean percentage; known is false if the driver never reported it.
func (b Busy) Mean() (percent int, known bool) {
	if b.Samples == 0 {
		return 0, false
	}
	return (b.Sum + b.Samples/2) / b.Samples, true
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
