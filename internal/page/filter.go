package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/record"
)

// Filter selects runs of jobs; the zero Filter selects all.
type Filter struct {
	GPU          string                // Slurm's index, a UUID, a bus ID, or nvidiaN
	Of           func(record.Run) bool // nil for any run
	User         string                // user name or UID
	Code         catalog.Code          // the run has a finding with this code
	Since, Until time.Time             // the run overlaps this period; zero means unbounded
	Found        bool                  // the run has a finding that policy does not hide
	RanOut       bool                  // the job's output says that memory ran out
	Cause        record.CauseName      // by this cause; empty for any
}

// Pick returns the runs that match the filter, in their order.
func (f Filter) Pick(runs []record.Run) []record.Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r record.Run) bool { return !f.matches(r) })
}

func (f Filter) matches(r record.Run) bool {
	switch {
	case f.Of != nil && !f.Of(r):
	case f.User != "" && f.User != r.Job.User && f.User != fmt.Sprint(r.Job.UID):
	case f.GPU != "" && !slices.ContainsFunc(r.Devices, f.IsGPU):
	case (f.Code != "" || f.Found) && !slices.ContainsFunc(r.AllEnds(), f.hasFinding):
	case f.RanOut && !slices.ContainsFunc(r.AllEnds(), f.hasCause):
	case !f.Since.IsZero() && r.Closed() && r.Last().Wall.Before(f.Since): // a running job is present now
	case !f.Until.IsZero() && r.First().Wall.After(f.Until):
	default:
		return true
	}
	return false
}

func (f Filter) hasFinding(e *record.End) bool {
	for i, found := range e.Findings {
		if (f.Code == "" || found.Code == f.Code) && (!f.Found || e.Verdict.Tells(i)) {
			return true
		}
	}
	return false
}

func (f Filter) hasCause(e *record.End) bool {
	causes := e.Diagnosis.OutOfMemory()
	return len(causes) > 0 && (f.Cause == "" || slices.Contains(causes, f.Cause))
}

// IsGPU reports whether the filter's GPU is this one: by Slurm's index, UUID, bus ID or nvidiaN.
func (f Filter) IsGPU(a record.Assigned) bool {
	if n, err := strconv.Atoi(f.GPU); err == nil {
		return n == a.Index
	}
	return a.Device.Named(f.GPU) || strings.EqualFold(f.GPU, string(a.Device.Parent))
}
