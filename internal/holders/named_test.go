package holders

import (
	"path/filepath"
	"slices"
	"testing"

	"bookend/internal/slurm"
)

// A job's processes of a name are found by cgroup, or without one by user and environment, and no other job's.
func TestNamed(t *testing.T) {
	const ours = "0::/system.slice/slurmstepd.scope/job_77/step_batch/user/task_0\n"
	proc := t.TempDir()
	for pid, p := range map[string]struct{ name, cgroup, uid, environ string }{
		"100000001": {"srun", ours, "1000", ""},
		"100000002": {"bash", ours, "1000", ""},
		"100000003": {"srun", "0::/system.slice/slurmstepd.scope/job_78/step_batch/user/task_0\n", "1000", "SLURM_JOB_ID=77\x00"},
		"100000004": {"srun", "0::/\n", "1000", "A=1\x00SLURM_JOB_ID=77\x00"},
		"100000005": {"srun", "0::/\n", "1001", "SLURM_JOB_ID=77\x00"},
		"100000006": {"srun", "0::/\n", "1000", "SLURM_JOB_ID=78\x00"},
		"100000007": {"srun", "0::/\n", "1000", ""}, // on a login node, where its user has no job
	} {
		put(t, filepath.Join(proc, pid, "stat"), pid+" ("+p.name+") S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 500 0 0\n")
		put(t, filepath.Join(proc, pid, "status"), "Name:\t"+p.name+"\nUid:\t"+p.uid+"\t"+p.uid+"\t"+p.uid+"\t"+p.uid+"\n")
		put(t, filepath.Join(proc, pid, "cgroup"), p.cgroup)
		put(t, filepath.Join(proc, pid, "environ"), p.environ)
	}
	got, err := Named(proc, "srun", 1000, slurm.Owner{ID: 77})
	if err != nil || !slices.Equal(got, []int{100000001, 100000004}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := Named(t.TempDir()+"/none", "srun", 1000, slurm.Owner{ID: 77}); err == nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}
