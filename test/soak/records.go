package main

import (
	"slices"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// records are what a node's hooks wrote down, as package state keeps it in files.
type records struct {
	runs      []record.Run
	bare      bool // they have no room for evidence
	baselines map[gpu.ID]record.Baseline
	damaged   []record.Damaged // that were set aside
	of        string           // the boot that these are of
}

func (r *records) begin(run record.Run) {
	run.Key = run.NewKey()
	run = r.kept(run)
	if r.at(run.Job.ID, run.Key) < 0 {
		r.runs = append(r.runs, run)
	}
}

// close adds an epilog's end to its run, or to a new one.
func (r *records) close(run record.Run, end record.End) {
	if run.Key == "" {
		seen := run
		seen.Ends = []record.End{end}
		run.Key = seen.NewKey()
	}
	i := r.at(run.Job.ID, run.Key)
	if i < 0 {
		i, r.runs = len(r.runs), append(r.runs, run)
	}
	run.Start, run.Ends = r.runs[i].Start, append(slices.Clone(r.runs[i].Ends), end)
	r.runs[i] = r.kept(run)
}

// kept is what there is room for of a run.
func (r *records) kept(run record.Run) record.Run {
	if r.bare {
		return run.Bare()
	}
	if run.Start != nil {
		start := run.Start.Bounded()
		run.Start = &start
	}
	for i, e := range run.Ends {
		run.Ends[i] = e.Bounded()
	}
	return run
}

func (r *records) at(id slurm.JobID, key string) int {
	return slices.IndexFunc(r.runs, func(o record.Run) bool { return o.Job.ID == id && o.Key == key })
}

func (r *records) lose(i int) { r.runs = slices.Delete(r.runs, i, i+1) }

// damage sets a record aside.
func (r *records) damage(i int) {
	r.damaged = append(r.damaged, record.Damaged{Job: r.runs[i].Job.ID})
	r.lose(i)
}

// settle forgets the damaged records of a job that is over.
func (r *records) settle(id slurm.JobID) {
	r.damaged = slices.DeleteFunc(r.damaged, func(d record.Damaged) bool { return d.Job == id })
}

// seenClear notes GPUs on which a check saw neither memory nor a process, since these records were set aside.
func (r *records) seenClear(before int, clear []gpu.ID) {
	for i := range r.damaged[:min(before, len(r.damaged))] {
		r.damaged[i].Clear = append(slices.Clone(r.damaged[i].Clear), clear...)
	}
}

// boot forgets what was recorded before the node booted: records lie on a tmpfs.
func (r *records) boot(epoch gpu.Epoch) {
	if r.of != epoch.Boot {
		r.of, r.damaged = epoch.Boot, nil
	}
	r.runs = slices.DeleteFunc(r.runs, func(o record.Run) bool {
		return o.Epoch != (gpu.Epoch{}) && o.Epoch.Boot != epoch.Boot
	})
}
