package policy

import (
	"slices"

	"bookend/internal/record"
)

// MetLast reports whether the last other job that ended, on the finding's GPU if it has one, met the same finding, in
// the same epoch and before this job began: jobs that end together meet one hiccup. A second epilog is not a later end.
func MetLast(runs []record.Run, self record.Run, f record.Finding) bool {
	var last record.Run
	for _, r := range runs {
		end := r.Epilog()
		if end == nil || r.Job.ID == self.Job.ID || r.Epoch.OtherBoot(self.Epoch) || f.GPU != "" && !r.Given(f.GPU) {
			continue
		}
		if last.Ends == nil || end.At > last.Epilog().At {
			last = r
		}
	}
	if last.Ends == nil || self.Start == nil || self.Start.At < last.Epilog().At {
		return false
	}
	epoch := last.EpochOf(*last.Epilog())
	if epoch.Boot == "" || self.Epoch.Boot == "" || epoch.Changed(self.Epoch) {
		return false
	}
	return slices.ContainsFunc(last.Epilog().Findings, func(o record.Finding) bool {
		return o.Code == f.Code && o.GPU == f.GPU && o.Unknown == "" && len(o.Doubts) == 0
	})
}
