package holders

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bookend/internal/slurm"
	"bookend/test/must"
)

func link(t *testing.T, path, target string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.Symlink(target, path))
}

// A process that uses a GPU is a job's by its cgroup; where that names no job, by its user and its environment. One that
// cannot be looked into hides no other.
func TestUsing(t *testing.T) {
	const env = "SLURM_JOB_ID=77\x00"
	for name, tc := range map[string]struct {
		cgroup, environ string
		in              slurm.Owner
		want            bool
	}{
		"job":       {jobCgroup, "", slurm.Owner{ID: 77}, true},
		"other job": {jobCgroup, env, slurm.Owner{ID: 78}, false},
		"sluid": {"0::/system.slice/slurmstepd.scope/sCHNM7Y8WBK900/step_0/user/task_0\n", "",
			slurm.Owner{SLUID: "sCHNM7Y8WBK900"}, true},
		"left the run's cgroup": {"0::/\n", env, slurm.Owner{ID: 77, SLUID: "sCHNM7Y8WBK900"}, true},
		"slurm's own": {"0::/system.slice/slurmstepd.scope/job_77/step_0/slurm\n", env, slurm.Owner{ID: 77},
			false},
		"two jobs named":     {jobCgroup + "1:cpu:/slurm/uid_0/job_78/step_0\n", env, slurm.Owner{ID: 77}, false},
		"no cgroup, environ": {"0::/\n", env, slurm.Owner{ID: 77}, true},
		"no cgroup, sluid":   {"0::/\n", "SLURM_JOB_ID=0\x00", slurm.Owner{SLUID: "sCHNM7Y8WBK900"}, false},
	} {
		proc := t.TempDir()
		put(t, filepath.Join(fixture(t, proc, "100000009", tc.cgroup, tc.environ), "fd"), "") // cannot be listed
		link(t, filepath.Join(fixture(t, proc, "100000010", tc.cgroup, tc.environ), "fd/3"), "/dev/nvidia1")
		link(t, filepath.Join(fixture(t, proc, "100000011", tc.cgroup, tc.environ), "fd/3"), "/dev/nvidiactl")
		var want []OfJob
		if tc.want {
			want = []OfJob{{100000010, "py (x"}}
		}
		if got, err := Using(proc, "/dev", 1000, tc.in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Of the job's processes those of a name.
func TestNamed(t *testing.T) {
	proc := t.TempDir()
	for pid, name := range map[string]string{"100000001": "srun", "100000002": "bash", "100000003": "srun", "100000004": "srun"} {
		cgroup := jobCgroup
		if pid == "100000004" {
			cgroup = strings.Replace(jobCgroup, "job_77", "job_78", 1)
		}
		put(t, filepath.Join(fixture(t, proc, pid, cgroup, ""), "stat"), pid+" ("+name+") S"+statTail)
	}
	job := slurm.Owner{ID: 77}
	want := []OfJob{{100000001, "srun"}, {100000003, "srun"}}
	if got, err := Named(proc, "srun", 1000, job); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want both of the job", got, err)
	}
	if got, err := Named(filepath.Join(proc, "none"), "srun", 1000, job); err == nil || got != nil {
		t.Errorf("no /proc: got %v, %v, want an error", got, err)
	}
}
