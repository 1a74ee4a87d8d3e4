package policy

import (
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/record"
)

// apart is how long a health check must have ended before a hook began: sooner, both may have met one hiccup.
const apart = 10 * time.Second

// MetLast reports whether the last other job that ended, on the finding's GPU if it has one, met the same finding, in
// the same epoch and before this job began: jobs that end together meet one hiccup. A second epilog is not a later end.
// A health check after that end counts as much. The hook began at that time (CLOCK_BOOTTIME).
func MetLast(runs []record.Run, check *record.Check, self record.Run, at time.Duration, f record.Finding) bool {
	last, ended := lastOf(runs, self, f)
	if self.Start == nil {
		return false
	}
	if check != nil && check.At > ended && MetByCheck(check, self, at, f) {
		return true
	}
	return last.Ends != nil && self.Start.At >= ended && self.Epoch.Continues(last.EpochOf(*last.Epilog())) &&
		met(last.Epilog().Findings, f)
}

// MetByCheck reports whether the last health check, nil for none, met the finding in the same epoch, and ended long
// enough before a hook that began at that time (CLOCK_BOOTTIME).
func MetByCheck(check *record.Check, self record.Run, at time.Duration, f record.Finding) bool {
	return check != nil && !check.Stopped && check.At+check.Took+apart <= at && self.Epoch.Continues(check.Epoch) &&
		met(check.Findings, f)
}

// lastOf returns the other run of this boot that ended last on the finding's GPU, with the time of that end.
func lastOf(runs []record.Run, self record.Run, f record.Finding) (last record.Run, ended time.Duration) {
	for _, r := range runs {
		end := r.Epilog()
		if end == nil || r.Job.ID == self.Job.ID || r.Epoch.OtherBoot(self.Epoch) || !given(r, f) {
			continue
		}
		if last.Ends == nil || end.At > ended {
			last, ended = r, end.At
		}
	}
	return last, ended
}

// given reports whether a run had the finding's GPU. One that was gone at its start is in its findings alone, and one
// without an id has only Slurm's index.
func given(r record.Run, f record.Finding) bool {
	entry, _ := catalog.Lookup(f.Code)
	numbered := func(d record.Assigned) bool { return f.Index != nil && d.Index == *f.Index }
	switch {
	case entry.Scope != catalog.Card || f.GPU == "" && f.Index == nil, met(r.Epilog().Findings, f):
		return true
	case f.GPU == "":
		return slices.ContainsFunc(r.Devices, numbered)
	}
	return r.Given(f.GPU)
}

func met(found []record.Finding, f record.Finding) bool {
	return slices.ContainsFunc(found, func(o record.Finding) bool {
		index := f.GPU != "" || f.Index == nil || o.Index != nil && *o.Index == *f.Index
		return o.Code == f.Code && o.GPU == f.GPU && index && o.Unknown == "" && len(o.Doubts) == 0
	})
}
