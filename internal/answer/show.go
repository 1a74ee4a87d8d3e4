package answer

import (
	"slices"

	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/state"
)

// Show is what "bookend show" says: every run of a job on record, the newest last.
type Show struct {
	Head
	Node string `json:"node"`
	Job  string `json:"job"` // as it was asked for
	Runs []Run  `json:"runs"`
}

// Run is one run of a job: how it stands, and the record that the hooks at both its ends made, without the reports that
// its user has.
type Run struct {
	RunHead
	Record ledger.Run `json:"record"`
	// SoFar is what was recorded of a run that has not ended; its end has the whole.
	SoFar *ledger.Recording `json:"recorded_so_far,omitempty"`
}

// NewShow is the document of a job's runs.
func NewShow(node, job string, runs, all []ledger.Run, recorded state.Recorded) Show {
	s := Show{Head: head(KindShow), Node: node, Job: job, Runs: []Run{}}
	for _, r := range runs {
		run := Run{RunHead: newRunHead(r, all), Record: r}
		if r.Epilog() == nil {
			run.SoFar, _ = recorded.Runs.About(r)
		}
		if r.Start != nil {
			start := *r.Start
			run.Record.Start, start.Report = &start, ""
		}
		run.Record.Ends = slices.Clone(r.Ends)
		for i := range run.Record.Ends {
			run.Record.Ends[i].Report = ""
		}
		s.Runs = append(s.Runs, run)
	}
	return cleaned(s)
}

// stillThere is what the job got with its GPUs and gave back so, of an end that says no more than that they are clean.
func stillThere(r ledger.Run, e ledger.End) (bytes uint64) {
	if r.Start == nil || e.Verdict.Code != "" || e.Unseen != "" {
		return 0
	}
	for _, d := range r.Devices {
		was, _ := r.Start.Snapshot.Reading(d.Device.ID)
		now, _ := e.Snapshot.Reading(d.Device.ID)
		dirty := r.Start.Curves[d.Device.ID].State.Dirty()
		if dirty && was.Memory.Used.Known() && now.Memory.Used.Known() {
			bytes += min(was.Memory.Used.Bytes, now.Memory.Used.Bytes)
		}
	}
	if bytes < finding.WorthTelling {
		return 0
	}
	return bytes
}
