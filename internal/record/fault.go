package record

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// RecordedFault is an error of a GPU that its driver reported while a job ran, as often as it did.
type RecordedFault struct {
	Code   int           `json:"code"`             // as of a gpu.Xid
	First  time.Duration `json:"first_ns"`         // CLOCK_BOOTTIME of the first, late by one interval at most
	Wall   time.Time     `json:"wall"`             // of the first
	Last   time.Duration `json:"last_ns"`          // CLOCK_BOOTTIME of the last
	Lines  int           `json:"lines,omitempty"`  // lines of the kernel log
	Events int           `json:"events,omitempty"` // events of the driver: they report what the lines do
	Jobs   []slurm.JobID `json:"jobs,omitempty"`   // other jobs that had the GPU or may have had it; at most 16
}

// Bounds of what is kept of a GPU's errors. A program can cause about ten of different codes.
const (
	maxFaults    = 16
	maxFaultJobs = 16
)

// Times returns how often the error occurred.
func (f RecordedFault) Times() int { return max(f.Lines, f.Events) }

// Text returns which error it is, how often it occurred, and which other jobs had the GPU.
func (f RecordedFault) Text() string {
	e, _ := catalog.LookupXid(f.Code)
	text := fmt.Sprintf("%s (%s)", gpu.Error(f.Code), e.Meaning)
	if n := f.Times(); n > 1 {
		text += fmt.Sprintf(", the first of %d", n)
	}
	if len(f.Jobs) > 0 {
		text += "; other jobs on the GPU: " + strings.Trim(fmt.Sprint(f.Jobs), "[]")
	}
	return text
}

// AddFault adds an error, which occurred after since, of the GPU that is meant. It belongs to each of the open runs
// that has the GPU and had begun by then: an earlier run may have met it otherwise. It reports whether there is one.
func (r Recordings) AddFault(f RecordedFault, since time.Duration, isMeant func(gpu.Device) bool, runs []Run,
) (added bool) {
	for _, run := range runs {
		if run.Start == nil || run.Start.At >= since {
			continue
		}
		for i, g := range r[run.Name()].GPUs {
			is := func(d Assigned) bool { return d.Device.ID == g.ID && isMeant(d.Device) }
			if slices.ContainsFunc(run.Devices, is) {
				f.Jobs = run.othersOn(g.ID, runs)
				r[run.Name()].GPUs[i].addFault(f)
				added = true
			}
		}
	}
	return added
}

// othersOn returns the jobs of other runs that have a GPU or may have it.
func (r Run) othersOn(id gpu.ID, runs []Run) (jobs []slurm.JobID) {
	for _, o := range runs {
		if o.Name() != r.Name() && o.Given(id) {
			jobs = append(jobs, o.Job.ID)
		}
	}
	return jobs[:min(len(jobs), maxFaultJobs)]
}

func (g *GPURecording) addFault(f RecordedFault) {
	i := slices.IndexFunc(g.Faults, func(o RecordedFault) bool { return o.Code == f.Code })
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
