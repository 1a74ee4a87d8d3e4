package judge

import (
	"maps"
	"testing"

	"bookend/internal/slurm"
)

// A process is a job's where a cgroup says so; a number that two jobs had, or a cgroup of no job, says nothing.
func TestWhose(t *testing.T) {
	w := whose{job: slurm.Job{ID: 100, SLUID: "sA"}, own: map[int]bool{}, disputed: map[int]bool{}}
	for _, seen := range []struct {
		pid   int
		owner slurm.Owner
	}{
		{1, slurm.Owner{ID: 100}}, {1, slurm.Owner{ID: 100, Step: "0"}},
		{2, slurm.Owner{ID: 7}},
		{3, slurm.Owner{}},
		{4, slurm.Owner{ID: 100}}, {4, slurm.Owner{ID: 7}}, {4, slurm.Owner{ID: 100}},
		{5, slurm.Owner{ID: 100, Conflict: "two jobs"}},
		{6, slurm.Owner{SLUID: "sA"}},
		{7, slurm.Owner{ID: 100, SLUID: "sB"}}, // another run of the same number
	} {
		w.saw(seen.pid, seen.owner)
	}
	if want := map[int]bool{1: true, 2: false, 6: true, 7: false}; !maps.Equal(w.own, want) {
		t.Errorf("%v, want %v", w.own, want)
	}
}
