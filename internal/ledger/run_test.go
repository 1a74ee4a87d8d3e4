package ledger

import (
	"testing"

	"bookend/internal/slurm"
)

// A job is named as its user knows it, everywhere the same.
func TestJobName(t *testing.T) {
	run := func(id, leader slurm.JobID, array slurm.ArrayTask) Run {
		return Run{Job: slurm.Job{ID: id, HetJobID: leader}, Display: Display{Array: array}}
	}
	for want, r := range map[string]Run{
		"1": run(1, 0, slurm.ArrayTask{}), "102_7": run(103, 0, slurm.ArrayTask{Master: 102, Task: 7}),
		"104+1": run(105, 104, slurm.ArrayTask{}), "104+0": run(104, 104, slurm.ArrayTask{}),
	} {
		if got := r.JobName(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
