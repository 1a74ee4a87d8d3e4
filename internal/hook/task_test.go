package hook

import (
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/test/must"
)

// Only a job that srun started has one step; where that cannot be known, /proc is searched.
func TestOnlyStep(t *testing.T) {
	sys, job := t.TempDir(), "/system.slice/n1_slurmstepd.scope/job_7"
	at := filepath.Join(sys, "fs/cgroup", job)
	must.Do(t, os.MkdirAll(filepath.Join(at, "step_0/user/task_0"), 0o755))
	must.Write(t, filepath.Join(at, "cgroup.procs"), "")
	own := "0::" + job + "/step_0/user/task_0\n"
	for _, tt := range []struct {
		another, cgroup string
		want            bool
	}{
		{"step_0", own, true},
		{"step_extern", own, true},
		{"step_0", "0::/system.slice/n1_slurmstepd.scope/job_8/step_0/user/task_0\n", false},
		{"step_0", "4:freezer:/slurm/uid_5/job_7/step_0/task_0\n", false},
		{"step_0", "0::/system.slice/slurmd.service\n", false},
		{"step_00", own, false},
		{"step_batch", own, false},
	} {
		must.Do(t, os.MkdirAll(filepath.Join(at, tt.another), 0o755))
		must.Be(t, tt.another+" "+tt.cgroup, onlyStep(sys, tt.cgroup), tt.want)
		must.Do(t, os.RemoveAll(filepath.Join(at, "step_00")))
	}
}

// A limit that the user's environment states is a figure that the epilog takes back from the record, or unknown. Where
// Slurm carries none it is this process's own.
func FuzzAddressSpace(f *testing.F) {
	for _, seed := range []string{
		"U68719476736", "4294967296", "18446744073709551615", "U", "UU1", "-1", "+1", "0x1", "1_0", "18446744073709551616",
		"U0", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, carried string) {
		got := (&taskHook{a: &node.Access{Env: Env{Getenv: func(name string) string {
			return map[string]string{"SLURM_RLIMIT_AS": carried}[name]
		}}}}).addressSpace()
		want, ok := new(big.Int).SetString(strings.TrimPrefix(carried, "U"), 10)
		if !ok || strings.Trim(strings.TrimPrefix(carried, "U"), "0123456789") != "" || !want.IsUint64() {
			want = new(big.Int)
		}
		if carried == "" && (got == 0 || got > record.Unlimited) || carried != "" && got != min(want.Uint64(), record.Unlimited) {
			t.Fatalf("SLURM_RLIMIT_AS=%q: %d, want %v", carried, got, want)
		}
		encoded, err := joblog.Drop{AddressSpace: got}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		drop, err := joblog.ParseDrop(encoded)
		limit := record.LimitOf(drop.AddressSpace)
		if err != nil || got > 0 && limit != gpu.Bytes(got) || got == 0 && limit.Known() {
			t.Fatalf("%s: %+v, %v", encoded, drop, err)
		}
	})
}
