package recorder

import (
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Bounds of what is kept of a GPU's errors. A program can cause about ten of different codes.
const (
	maxFaults    = 16
	maxFaultJobs = 16
)

// addFault adds to the recordings an error, which occurred after since, of the GPU that is meant. It belongs to each of
// the open runs that has the GPU and had begun by then: an earlier run may have met it otherwise. It reports whether
// there is one.
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
