package faults

import (
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/test/rig"
)

// What root uses as a path, a user or a guard has one strict form, which package slurm tries. Without it nothing is
// known of the job, so nothing can be recorded of it; the log has it all the same.
func TestEnvironment(t *testing.T) {
	faults := map[string]fault{}
	for name, tt := range map[string]struct {
		says string
		with []string
	}{
		"no job id":             {"SLURM_JOB_ID is not set", []string{"SLURM_JOB_ID", "", "SLURM_JOBID", ""}},
		"job id as a path":      {"SLURM_JOB_ID=", []string{"SLURM_JOB_ID", "../../../etc", "SLURM_JOBID", ""}},
		"node with a line feed": {"is not a node name", []string{"SLURMD_NODENAME", "n1\nexport PATH=/x"}},
		"no context":            {"SLURM_SCRIPT_CONTEXT is not set", []string{"SLURM_SCRIPT_CONTEXT", rig.Absent}},
		"long": {"is not a job id", []string{"SLURM_JOB_ID", strings.Repeat("9", 70000),
			"SLURM_JOBID", ""}},
	} {
		faults[name] = fault{job: newJob().With(tt.with...), finds: code.BadEnv, says: tt.says, exit: 31,
			unrecorded: true}
	}
	try(t, faults)
}

// A list of GPUs that cannot be read leaves the job known and its GPUs unknown. Package resolve tries what lists there
// are.
func TestGPUList(t *testing.T) {
	list := func(indexes, visible, says string) fault {
		j := newJob().On(indexes).With("CUDA_VISIBLE_DEVICES", visible, "GPU_DEVICE_ORDINAL", "")
		return fault{job: j, finds: code.Ambiguous, says: says, exit: 40}
	}
	try(t, map[string]fault{
		"garbage":         list("none", "0", "SLURM_JOB_GPUS cannot be read"),
		"visible garbage": list("0", "GPU-\x1b[2J", "the list of visible devices cannot be read"),
		"lists disagree":  list("0", "0,1", "1 GPU indexes but 2 visible devices"),
	})
}

// A GPU that the driver does not have may be lost or wrongly numbered: it is told, and drains nobody.
func TestNoSuchGPU(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.onUnknown = "drain" })
	n.slurmConf("gpu:3", "Name=gpu File=/dev/nvidia[0-2]")
	n.slurmd(lists(0, 1, 2))
	for _, h := range hooks {
		n.exits(0, h, newJob().On("2").With("CUDA_VISIBLE_DEVICES", "2", "GPU_DEVICE_ORDINAL", ""))
	}
	n.says("BKD-MISSING", "action=warn")
	n.shows("Slurm's GPU 2 does not exist: the driver has 2", "show", "100")
}

// Without any sign of GPUs a hook ends before it reads anything, whatever else is wrong.
func TestNoGPUsNoWork(t *testing.T) {
	for _, h := range hooks {
		n := newNode(t, "enforce")
		n.config = "/nowhere"
		if n.clean(h, job{"SLURM_SCRIPT_CONTEXT": rig.Absent}); n.log() != "" {
			t.Errorf("%s: log: %s", h.program, n.log())
		}
	}
}
