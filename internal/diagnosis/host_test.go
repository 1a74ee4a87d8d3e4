package diagnosis

import (
	"slices"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/oom"
)

// Beside a message about a full card host memory is called the cause only where the job was ended for it.
func TestStaleHostMemory(t *testing.T) {
	python, slurms := says(oom.Host, oom.Other), says(oom.Host, oom.Slurm)
	killed := func(exit int, m ...oom.Message) func(*Input) {
		return func(in *Input) {
			in.Messages, in.Job.Exit.Raw = m, exit
			in.Kernel.Kills = []gpu.HostKill{{PID: 901, Cgroup: "/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"}}
		}
	}
	judged(t, []row{
		{"caught, then the GPU was full", saying(python, itself), Limits, Unknown, "whether that mattered"},
		{"after the GPU was full", saying(itself, python), Limits, Unknown, "whether that mattered"},
		{"caught, then no figures", saying(python, jax(20)), Limits, Unknown, "whether that mattered"},
		{"caught, then no figures, under a limit", both(saying(python, jax(20)), limited(4)), Limits, Yes, "ulimit -v is 4.0 GiB"},
		{"Slurm's line comes last whenever it was", saying(itself, slurms), Limits, Unknown, "came first"},
		{"Slurm's line alone", saying(slurms), Limits, Yes, "ran out"},
		{"a helper killed, then the GPU was full", killed(1<<8, itself), Limits, Unknown, "came first"},
		{"the same, by Slurm's state", killed(125, itself), Limits, Unknown, "came first"},
		{"a helper killed, the GPU full, then scancel or the time limit", killed(9, itself), Limits, Unknown, "came first"},
		{"the same, of a step", func(in *Input) { killed(0, itself)(in); in.Job.Exit.Derived = 9 }, Limits, Unknown, "came first"},
		{"the same, of the script's child", killed(137<<8, itself), Limits, Unknown, "came first"},
		{"killed, and Slurm's line says for what", killed(9, itself, slurms), Limits, Yes, "ended your process 901"},
		{"killed, and Slurm's state says for what", func(in *Input) { killed(125, itself)(in); in.Job.Exit.Derived = 9 }, Limits, Yes, "ended your process 901"},
		{"killed, and no GPU was full", killed(9), Limits, Yes, "ended your process 901"},
		{"nothing said", killed(1 << 8), Limits, Yes, "ended your process 901"},
		{"no one knows how it ended", func(in *Input) { killed(0, itself)(in); in.Job.Exit.Known = false }, Limits, Unknown, "came first"},
		{"Slurm's state and a full GPU", func(in *Input) { saying(itself)(in); in.Job.Exit.Raw = 125 }, Limits, Unknown, "came first"},
	})
	in := well(1)
	in.Messages = []oom.Message{python, itself}
	if d := Why(in); d.Headline != "Why out of memory: your job needed more than the GPU has" || slices.Contains(d.Try, "more host memory: sbatch --mem, or fewer data workers") {
		t.Errorf("%q, %q", d.Headline, d.Try)
	}
}

// Messages that were taken for a limit, or for host memory, and need be neither.
func TestNoLimit(t *testing.T) {
	for _, tt := range []struct {
		text   string
		limit  gpu.Figure
		want   Answer
		reason Reason
	}{
		{"RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.", gpu.Bytes(Unlimited), No, ByFailure},
		{"RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you? Error 2: out of memory", gpu.Bytes(Unlimited), Yes, ByMessage},
		{"RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you? Error 3: initialization error", gpu.Bytes(Unlimited), No, ByFailure},
		{"ImportError: /tmp/x/_ext.so: failed to map segment from shared object: Operation not permitted", gpu.Bytes(Unlimited), No, ByFailure},
		{"ImportError: /tmp/x/_ext.so: failed to map segment from shared object", gpu.Bytes(Unlimited), Unknown, ByFailure},
		{"ImportError: /tmp/x/_ext.so: failed to map segment from shared object", gib(4), Yes, ByMessage},
		{"ImportError: /tmp/x/_ext.so: failed to map segment from shared object: Cannot allocate memory", gpu.Bytes(Unlimited), Yes, ByMessage},
		{"/usr/local/cuda/bin/ptxas: error: out of memory", gpu.Bytes(Unlimited), No, ByFailure},
	} {
		in := well(1)
		in.AddressSpace, in.Messages = tt.limit, oom.Find([]byte(tt.text+"\n"))
		d := Why(in)
		if c := d.Cause(Limits); c.Answer != tt.want || d.Reason != tt.reason {
			t.Errorf("%s: %s, %+v", tt.text, d.Reason, c)
		}
		whole(t, d)
	}
}
