package holders

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

func TestOpenDevicesByCgroup(t *testing.T) {
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
		link(t, filepath.Join(fixture(t, proc, "10", tc.cgroup, tc.environ), "fd/3"), "/dev/nvidia1")
		got, err := JobOf(1000, tc.in).OpenDevices(proc, "/dev")
		if err != nil || (len(got) == 1) != tc.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestOpenDevicesBounds(t *testing.T) {
	proc := t.TempDir()
	for i := range maxOpen + 1 {
		link(t, filepath.Join(fixture(t, proc, strconv.Itoa(100_000_000+i), jobCgroup, ""), "fd/3"), "/dev/nvidia1")
	}
	got, err := JobOf(1000, slurm.Owner{ID: 77}).OpenDevices(proc, "/dev")
	if len(got) != maxOpen || !errors.Is(err, ErrPartial) {
		t.Errorf("%d processes, %v", len(got), err)
	}
}

// A job's process that its user may not look into, such as one that runs another user's program.
func TestOpenDevicesUnreadable(t *testing.T) {
	proc := t.TempDir()
	folder := fixture(t, proc, "10", jobCgroup, "")
	put(t, filepath.Join(folder, "fd"), "") // no folder: cannot be listed
	got, err := JobOf(1000, slurm.Owner{ID: 77}).OpenDevices(proc, "/dev")
	if len(got) != 0 || !errors.Is(err, ErrPartial) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := JobOf(1000, slurm.Owner{ID: 77}).OpenDevices(filepath.Join(proc, "none"), "/dev"); err == nil {
		t.Error("no /proc at all is no error")
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
	job := JobOf(1000, slurm.Owner{ID: 77})
	if got, err := job.Named(proc, "srun"); err != nil || !slices.Equal(got, []int{100000001, 100000003}) {
		t.Errorf("got %v, %v, want both of the job", got, err)
	}
	if got, err := job.Named(filepath.Join(proc, "none"), "srun"); err == nil || got != nil {
		t.Errorf("no /proc: got %v, %v, want an error", got, err)
	}
}
