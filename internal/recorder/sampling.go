package recorder

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Bounds of a recording, whatever a job does.
const (
	maxMissed    = 8
	maxProcesses = 32
	maxCurves    = 4 // processes that have a curve
	// lasting separates lasting memory from teardown: freeing an ended process's memory takes 0.1 to 0.4 s (measured).
	lasting = 2 * time.Second
)

// Sample is what one sample shows of a node's GPUs.
type Sample struct {
	Look   gpu.Snapshot
	Known  map[int]record.Process // what /proc says of the processes in it
	Shared bool                   // another run has one of this run's GPUs
	Limits record.Limits
}

// AddTo adds the sample to a run's recording, and reports whether it showed more memory or another process.
func (s Sample) AddTo(r *record.Recording, self record.Run) (news bool) {
	at := s.Look.At
	if at < r.To { // from another boot
		return false
	}
	if r.Samples == 0 {
		r.From, r.To = at, at
		for _, d := range self.Devices {
			r.GPUs = append(r.GPUs, record.GPURecording{ID: d.Device.ID})
		}
	}
	if n := len(r.Missed); at-r.To > r.Late() && n < maxMissed {
		r.Missed = append(r.Missed, record.Span{From: r.To, To: at})
	} else if at-r.To > r.Late() {
		r.Missed[n-1].To = at
	}
	for i := range r.GPUs {
		before := extent(r.GPUs[i])
		s.addGPU(&r.GPUs[i], self, r.From, max(r.To, at-r.Late()))
		news = news || extent(r.GPUs[i]) != before
	}
	elsewhere := len(r.Elsewhere)
	s.addElsewhere(r, self)
	r.To, r.Samples = at, r.Samples+1
	return news || r.Samples == 1 || len(r.Elsewhere) > elsewhere
}

// extent returns what changes if a sample shows more memory or another process.
func extent(g record.GPURecording) [2]uint64 {
	return [2]uint64{g.Peak.Bytes + g.Own.Bytes + g.Unlisted.Bytes, uint64(len(g.Processes) + g.More)}
}

// process returns what /proc says of a process, and whether that is enough to keep it.
func (s Sample) process(pid int) (facts record.Process, readable bool) {
	facts = s.Known[pid]
	return facts, facts.PID != 0 && facts.Why == "" && !facts.Gone
}

// addElsewhere keeps the run's processes on GPUs that it was not given. Samples show only GPUs of running jobs.
func (s Sample) addElsewhere(r *record.Recording, self record.Run) {
	for _, reading := range s.Look.Readings {
		for _, p := range reading.Processes {
			facts, readable := s.process(p.PID)
			if readable && self.Owns(facts.Cgroup) && !self.Given(reading.Device.ID) {
				r.Elsewhere, _ = withProcess(r.Elsewhere, reading.Device.ID, p, facts, s.Look.At)
				r.Elsewhere = r.Elsewhere[:min(len(r.Elsewhere), maxProcesses)]
			}
		}
	}
}

func (s Sample) addGPU(g *record.GPURecording, self record.Run, first, last time.Duration) {
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
	raise(&g.Peak, used, at)
	slot := slotAt(&g.Curve, at-first, g.Processes)
	g.Curve.Used = reach(g.Curve.Used, slot, inMiB(used))
	var own uint64
	together := 0
	// Where the job's processes have its cgroup, another of its user is none of them.
	tracked := s.Shared || slices.ContainsFunc(g.Processes, func(p record.RecordedProcess) bool {
		return self.Owns(p.Owner)
	}) || slices.ContainsFunc(reading.Processes, func(p gpu.Process) bool { return self.Owns(s.Known[p.PID].Cgroup) })
	for _, p := range reading.Processes {
		facts, readable := s.process(p.PID)
		if self.Owns(facts.Cgroup) || !tracked && mayOwn(self, facts) {
			own, together = own+p.Memory.Bytes, together+1
		}
		if readable {
			addProcess(g, p, facts, at, slot)
		}
	}
	raise(&g.Own, own, at)
	g.Together = max(g.Together, together)
	keepLargest(g, first, last, at)
	account(g, reading, s.Limits, at)
	if b := reading.Busy; b != nil {
		g.Busy.Samples, g.Busy.Sum, g.Busy.Most = g.Busy.Samples+1, g.Busy.Sum+b.GPU, max(g.Busy.Most, b.GPU)
		if b.GPU == 0 {
			g.Busy.Idle += at - last
		}
	}
}

func raise(m *record.Most, bytes uint64, at time.Duration) {
	if bytes > m.Bytes {
		*m = record.Most{Bytes: bytes, At: at}
	}
}

// mayOwn reports whether a process in no job's cgroup may well be the run's own: it is of the same user, began after
// the run, and its environment names no other job. If Slurm tracks without cgroups there is no better evidence.
func mayOwn(self record.Run, p record.Process) bool {
	noJobs := !p.Cgroup.Found() && p.Cgroup.Conflict == "" && p.EnvUnknown == "" &&
		!p.Gone && !p.Apart() && !p.OfSystem()
	return noJobs && p.UID != 0 && p.UID == self.Job.UID &&
		self.Start != nil && p.Start > self.Start.At && (p.EnvJobID == 0 || p.EnvJobID == self.Job.ID)
}

func addProcess(g *record.GPURecording, p gpu.Process, facts record.Process, at time.Duration, slot int) {
	var i int
	g.Processes, i = withProcess(g.Processes, g.ID, p, facts, at)
	if i < maxCurves {
		g.Processes[i].Curve = reach(g.Processes[i].Curve, slot, inMiB(p.Memory.Bytes))
	}
}

// withProcess adds what one sample showed of a process on a GPU to a list, and returns the index of that process.
func withProcess(list []record.RecordedProcess, id gpu.ID, p gpu.Process, facts record.Process, at time.Duration,
) (all []record.RecordedProcess, i int) {
	i = slices.IndexFunc(list, func(o record.RecordedProcess) bool {
		return o.GPU == id && o.PID == p.PID && o.Start == facts.Start
	})
	if i < 0 {
		i = len(list)
		list = append(list, record.RecordedProcess{GPU: id, PID: p.PID, Start: facts.Start, First: at})
	}
	seen := &list[i]
	seen.UID, seen.Last, seen.Bytes = facts.UID, at, p.Memory
	seen.Apart = seen.Apart || facts.Apart()
	seen.Service, seen.Name, seen.EnvJob = facts.Service, facts.Name, facts.EnvJobID
	seen.Owner = seen.Owner.Then(facts.Cgroup)
	if p.Memory.Known() && (seen.MostAt == 0 || p.Memory.Bytes > seen.Most) {
		seen.Most, seen.MostAt = p.Memory.Bytes, at
	}
	return list, i
}

// keepLargest drops processes beyond maxProcesses: first those that have gone, the smallest first. It counts those that
// began since the last sample: the others were counted when they were first dropped, unless this is the first sample.
func keepLargest(g *record.GPURecording, first, last, now time.Duration) {
	if len(g.Processes) <= maxProcesses {
		return
	}
	slices.SortStableFunc(g.Processes, func(a, b record.RecordedProcess) int {
		if (a.Last == now) != (b.Last == now) {
			return cmp.Compare(b.Last, a.Last)
		}
		return cmp.Compare(b.Most, a.Most)
	})
	for _, p := range g.Processes[maxProcesses:] {
		if p.First < now || p.Start > last || first == now {
			g.More++
		}
	}
	g.Processes = g.Processes[:maxProcesses]
}

func account(g *record.GPURecording, r gpu.Reading, limits record.Limits, at time.Duration) {
	rest := record.Unexplained(r, limits, record.Baseline{})
	if g.Beyond == nil && rest.Known() {
		g.Beyond = &record.Beyond{Base: rest.Bytes}
	}
	b := g.Beyond
	if b == nil {
		return
	}
	// The smallest Client of two successive samples: one may have read memory and processes at different moments.
	now, last := client(r), b.Client
	if both := max(now, last); now > 0 && last > 0 {
		g.Client = min(both, cmp.Or(g.Client, both))
	}
	b.Client = now
	switch extra := rest.Bytes - min(rest.Bytes, b.Base+limits.Spare(len(r.Processes), g.Client)); {
	case !rest.Known() || extra < limits.Report:
		b.Extra = 0
	case b.Extra == 0:
		b.Extra, b.Since = extra, at
	default:
		b.Extra = min(b.Extra, extra)
	}
	if at-b.Since >= lasting {
		raise(&g.Unlisted, b.Extra, at)
	}
}

// client returns what the driver holds per process of a reading beyond the listed figures, 0 if that is unknown.
func client(r gpu.Reading) uint64 {
	rest := record.Unexplained(r, record.Limits{}, record.Baseline{})
	n := uint64(len(r.Processes))
	if !rest.Known() || r.ProcessesUnknown != "" || n == 0 || rest.Bytes/n > record.MaxBaseline {
		return 0
	}
	return rest.Bytes / n
}

// maxPoints is how many steps a curve has at most.
const maxPoints = 240

// slotAt returns the step of a moment. Beyond maxPoints the steps double in length, also those of processes.
func slotAt(c *record.Course, since time.Duration, also []record.RecordedProcess) int {
	c.Step = cmp.Or(c.Step, time.Second)
	for since/c.Step >= maxPoints {
		c.Step, c.Used = c.Step*2, halved(c.Used)
		for i := range also {
			also[i].Curve = halved(also[i].Curve)
		}
	}
	return int(since / c.Step)
}

// reach raises a step to a figure. Steps between consecutive samples get the figure before, those in longer gaps 0.
func reach(points []uint32, slot int, figure uint32) []uint32 {
	const between = 3 // steps of one second: as far as two samples are apart if none was missed
	was := uint32(0)
	if n := len(points); n > 0 && slot-n <= between {
		was = points[n-1]
	}
	for len(points) < slot {
		points = append(points, was)
	}
	if len(points) == slot {
		return append(points, figure)
	}
	points[slot] = max(points[slot], figure)
	return points
}

func halved(points []uint32) []uint32 {
	for i := 0; i < len(points); i += 2 {
		points[i/2] = slices.Max(points[i:min(i+2, len(points))])
	}
	return points[:(len(points)+1)/2]
}

func inMiB(bytes uint64) uint32 { return uint32(min(bytes>>20, 1<<32-1)) }

// Bounds of what is kept of a GPU's errors. A program can cause about ten of different codes.
const (
	maxFaults    = 16
	maxFaultJobs = 16
)

// addFault adds an error, which occurred after since, of the GPU that is meant to the recording of each open run that
// has the GPU and had begun by then: an earlier run may have met it otherwise. It reports whether there is one.
func addFault(to record.Recordings, f record.RecordedFault, since time.Duration, isMeant func(gpu.Device) bool,
	runs []record.Run,
) (added bool) {
	for _, run := range runs {
		if run.Start == nil || run.Start.At >= since {
			continue
		}
		for i, g := range to[run.Name()].GPUs {
			is := func(d record.Assigned) bool { return d.Device.ID == g.ID && isMeant(d.Device) }
			if slices.ContainsFunc(run.Devices, is) {
				keepFault(&to[run.Name()].GPUs[i], amongJobs(f, g.ID, run, runs))
				added = true
			}
		}
	}
	return added
}

// amongJobs returns the error with the jobs of other runs that have the GPU or may have it.
func amongJobs(f record.RecordedFault, id gpu.ID, run record.Run, runs []record.Run) record.RecordedFault {
	f.Jobs = nil
	for _, o := range runs {
		if o.Name() != run.Name() && o.Given(id) && len(f.Jobs) < maxFaultJobs {
			f.Jobs = append(f.Jobs, o.Job.ID)
		}
	}
	return f
}

// keepFault adds an error to those of one GPU, as one with the earlier ones of its code.
func keepFault(g *record.GPURecording, f record.RecordedFault) {
	i := slices.IndexFunc(g.Faults, func(o record.RecordedFault) bool { return o.Code == f.Code })
	switch {
	case i < 0 && len(g.Faults) == maxFaults:
		g.MoreFaults++
	case i < 0:
		g.Faults = append(g.Faults, f)
	default:
		old := &g.Faults[i]
		old.Last, old.Lines, old.Events = f.Last, old.Lines+f.Lines, old.Events+f.Events
		for _, job := range f.Jobs {
			if !slices.Contains(old.Jobs, job) && len(old.Jobs) < maxFaultJobs {
				old.Jobs = append(old.Jobs, job)
			}
		}
	}
}
