package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
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

// With returns the filter with what an admin has written of a finding's code, a cause's name and a period.
func (f Filter) With(code, cause, since, until string, now time.Time) (Filter, error) {
	if code != "" {
		c, ok := catalog.Parse(code)
		if !ok {
			return f, fmt.Errorf("--code: no such finding: %q", code)
		}
		f.Code = c
	}
	if cause != "" {
		known := append(record.Causes(), record.CauseUnknown)
		f.Cause, f.RanOut = record.CauseName(cause), true
		if !slices.Contains(known, f.Cause) {
			return f, fmt.Errorf("--cause: no such cause: %q; one of %q", cause, known)
		}
	}
	if bus, err := gpu.ParseBusID(f.GPU); err == nil {
		f.GPU = string(bus)
	}
	var err error
	f.Since, f.Until, err = Period(since, until, now)
	return f, err
}

// WithRecorded returns the driver's GPUs, then those of the newest runs that it does not have and has not replaced.
func WithRecorded(now []record.Assigned, runs []record.Run) []record.Assigned {
	for _, run := range record.Newest(runs) {
		for _, d := range run.Devices {
			is := func(c record.Assigned) bool {
				return c.Device.ID == d.Device.ID || c.Device.BusID == d.Device.BusID && d.Device.BusID != ""
			}
			if d.Device.Parent == "" && !slices.ContainsFunc(now, is) {
				now = append(now, d)
			}
		}
	}
	return now
}

// FirstGPU returns the first whole GPU that the filter means. Of the first ones it must mean one alone.
func (f Filter) FirstGPU(all []record.Assigned, first int) (record.Assigned, bool) {
	is := func(c record.Assigned) bool { return c.Device.ID != "" && c.Device.Parent == "" && f.IsGPU(c) }
	i := slices.IndexFunc(all, is)
	if i < 0 || i < first && slices.ContainsFunc(all[i+1:first], is) {
		return record.Assigned{}, false
	}
	return all[i], true
}

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

var ages = map[byte]time.Duration{
	's': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour,
}

// dates are the accepted date formats, in this host's time zone unless one is given.
var dates = []string{
	"2006-01-02", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.RFC3339,
}

const longestAge = 36500 // in days: a hundred years

// moment parses a date, or how long ago something was. An empty text gives the zero time.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range dates {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	last := len(text) - 1
	unit, known := ages[text[last]]
	n, err := strconv.ParseUint(text[:last], 10, 32)
	if !known || err != nil || n > uint64(longestAge*24*time.Hour/unit) {
		return time.Time{}, fmt.Errorf("%q is no moment: want how long ago (90m, 2h, 3d, 2w) or a date (2026-11-21, "+
			"2026-11-21T08:00)", text)
	}
	return now.Add(-time.Duration(n) * unit), nil
}

// Period parses two bounds, each a date or how long before now it was. A zero time means that there is no bound.
func Period(since, until string, now time.Time) (time.Time, time.Time, error) {
	from, errSince := moment(since, now)
	to, errUntil := moment(until, now)
	switch {
	case errSince != nil:
		return from, to, fmt.Errorf("--since: %w", errSince)
	case errUntil != nil:
		return from, to, fmt.Errorf("--until: %w", errUntil)
	case !from.IsZero() && !to.IsZero() && to.Before(from):
		return from, to, fmt.Errorf("--until %s is before --since %s", until, since)
	}
	return from, to, nil
}
