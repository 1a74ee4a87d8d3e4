package main

import (
	"slices"
	"strconv"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// records are what a node's hooks wrote down, as package state keeps it in files.
type records struct {
	runs      []ledger.Run
	baselines map[gpu.ID]finding.Baseline
}

// begin keeps the first look at a run's start.
func (r *records) begin(run ledger.Run) {
	run.Key = keyOf(run)
	if r.at(run.Job.ID, run.Key) < 0 {
		r.runs = append(r.runs, run)
	}
}

// close adds an epilog's end to its run, or to a new one.
func (r *records) close(run ledger.Run, end ledger.End) {
	if run.Key == "" {
		seen := run
		seen.Ends = []ledger.End{end}
		run.Key = keyOf(seen)
	}
	i := r.at(run.Job.ID, run.Key)
	if i < 0 {
		run.Ends = append(slices.Clone(run.Ends), end)
		r.runs = append(r.runs, run)
		return
	}
	run.Start, run.Ends = r.runs[i].Start, append(slices.Clone(r.runs[i].Ends), end)
	r.runs[i] = run
}

func (r *records) at(id slurm.JobID, key string) int {
	return slices.IndexFunc(r.runs, func(o ledger.Run) bool { return o.Job.ID == id && o.Key == key })
}

// lose takes a record away, as damage does.
func (r *records) lose(i int) { r.runs = slices.Delete(r.runs, i, i+1) }

// find is the record that an epilog is for: by SLUID, else by start time, else the newest open one of the job id.
func (r *records) find(job slurm.Job) (ledger.Run, bool) {
	var best *ledger.Run
	var likest int
	for i := range r.runs {
		run := &r.runs[i]
		like := likeness(run.Job, job)
		if run.Job.ID != job.ID || run.Job.UID != job.UID || like == 0 {
			continue
		}
		if best == nil || like > likest || like == likest && newer(run, best) {
			best, likest = run, like
		}
	}
	if best == nil {
		return ledger.Run{}, false
	}
	return *best, true
}

func newer(a, b *ledger.Run) bool {
	if a.Closed() != b.Closed() {
		return b.Closed()
	}
	return a.Began() > b.Began()
}

// likeness is 0 for different runs, 1 for perhaps the same, 2 for the same.
func likeness(a, b slurm.Job) int {
	equal := false
	switch {
	case a.SLUID != "" && b.SLUID != "":
		equal = a.SLUID == b.SLUID
	case !a.Start.IsZero() && !b.Start.IsZero():
		equal = a.Start.Equal(b.Start)
	default:
		return 1
	}
	if equal {
		return 2
	}
	return 0
}

func keyOf(r ledger.Run) string {
	switch e := r.First(); {
	case r.Job.SLUID != "":
		return string(r.Job.SLUID)
	case !r.Job.Start.IsZero():
		return "t" + strconv.FormatInt(r.Job.Start.Unix(), 10)
	case e != nil:
		return "w" + strconv.FormatInt(e.Wall.UnixNano(), 10)
	}
	return "w0"
}
