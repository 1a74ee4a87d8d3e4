package operation

import (
	"os"
	"path/filepath"
	"testing"

	"bookend/internal/slurm"
)

// A process of the job that cannot be looked into hides no other one that still has a GPU open.
func TestOpenInPart(t *testing.T) {
	proc := t.TempDir()
	put := func(pid, name, text string) {
		path := filepath.Join(proc, pid, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range []string{"100000001", "100000002"} {
		put(pid, "stat", pid+" (python) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 500 0 0\n")
		put(pid, "status", "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\n")
		put(pid, "cgroup", "0::/system.slice/n1_slurmstepd.scope/job_77/step_0/user/task_0\n")
		put(pid, "environ", "")
	}
	put("100000001", "fd", "") // cannot be listed
	if err := os.Mkdir(filepath.Join(proc, "100000002/fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/nvidia1", filepath.Join(proc, "100000002/fd/3")); err != nil {
		t.Fatal(err)
	}
	open, err := findOpen(OpenRequest{Proc: proc, Dev: "/dev", UID: 1000, Owner: slurm.Owner{ID: 77}})
	if err != nil || len(open) != 1 || open[0].PID != 100000002 {
		t.Errorf("%+v, %v", open, err)
	}
}
