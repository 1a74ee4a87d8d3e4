package faults

import (
	"strings"
	"testing"

	"bookend/internal/code"
)

// What root uses as a path, a user or a guard has one strict form. Without it nothing is known of the job, so
// nothing can be recorded of it; the log has it all the same.
func TestEnvironment(t *testing.T) {
	faults := map[string]fault{}
	broken := func(name, says string, pairs ...string) {
		faults[name] = fault{job: newJob().with(pairs...), finds: code.BadEnv, says: []string{says}, exit: 31, unrecorded: true}
	}
	broken("no job id", "SLURM_JOB_ID is not set", "SLURM_JOB_ID", "", "SLURM_JOBID", "")
	broken("job id 0", "SLURM_JOB_ID=", "SLURM_JOB_ID", "0", "SLURM_JOBID", "")
	broken("job id as a path", "SLURM_JOB_ID=", "SLURM_JOB_ID", "../../../etc", "SLURM_JOBID", "../../../etc")
	broken("negative job id", "is not a job id", "SLURM_JOB_ID", "-1", "SLURM_JOBID", "-1")
	broken("two job ids", "differs from SLURM_JOB_ID", "SLURM_JOBID", "101")
	broken("no uid", "SLURM_JOB_UID is not set", "SLURM_JOB_UID", "", "SLURM_UID", "")
	broken("a name for a uid", "is not a user or group id", "SLURM_JOB_UID", "root", "SLURM_UID", "root")
	broken("uid -1", "is not a user or group id", "SLURM_JOB_UID", "4294967295", "SLURM_UID", "4294967295")
	broken("two uids", "differs from SLURM_JOB_UID", "SLURM_UID", "0")
	broken("no gid", "SLURM_JOB_GID is not set", "SLURM_JOB_GID", "")
	broken("gid too large", "is not a user or group id", "SLURM_JOB_GID", "99999999999")
	broken("no node", "SLURMD_NODENAME is not set", "SLURMD_NODENAME", "")
	broken("node as a path", "is not a node name", "SLURMD_NODENAME", "../n1")
	broken("node with a line feed", "is not a node name", "SLURMD_NODENAME", "n1\nexport PATH=/x")
	broken("context of no hook", "SLURM_SCRIPT_CONTEXT", "SLURM_SCRIPT_CONTEXT", "prolog_slurmctld")
	broken("no context", "SLURM_SCRIPT_CONTEXT is not set", "SLURM_SCRIPT_CONTEXT", absent)
	broken("garbage for a SLUID", "is not a SLUID", "SLURM_JOB_SLUID", "../../etc/passwd")
	broken("restarts", "is not a number", "SLURM_JOB_RESTART_COUNT", "many")
	broken("long", "is not a job id", "SLURM_JOB_ID", strings.Repeat("9", 70000), "SLURM_JOBID", "")
	try(t, faults)
}

// A list of GPUs that cannot be read leaves the job known and its cards unknown.
func TestGPUList(t *testing.T) {
	faults := map[string]fault{}
	for name, tt := range map[string]struct{ indexes, visible, says string }{
		"garbage":         {"none", "0", "SLURM_JOB_GPUS cannot be read"},
		"a range":         {"0-1", "0", "SLURM_JOB_GPUS cannot be read"},
		"twice the same":  {"0,0", "0,0", "listed twice"},
		"empty element":   {"0,", "0", "SLURM_JOB_GPUS cannot be read"},
		"visible garbage": {"0", "GPU-\x1b[2J", "the list of visible devices cannot be read"},
		"lists disagree":  {"0", "0,1", "1 GPU indexes but 2 visible devices"},
		"a thousand":      {strings.Repeat("1,", 2000) + "2", "0", "more than a node has"},
	} {
		faults[name] = fault{
			job:   newJob().with("SLURM_JOB_GPUS", tt.indexes, "CUDA_VISIBLE_DEVICES", tt.visible, "GPU_DEVICE_ORDINAL", ""),
			finds: code.Ambiguous, says: []string{tt.says}, exit: 40,
		}
	}
	try(t, faults)
}

// A card that the driver does not have may be lost or wrongly numbered: it is told, and drains nobody.
func TestNoSuchGPU(t *testing.T) {
	for name, list := range map[string]string{"index": "2", "UUID": "GPU-00000000-0000-0000-0000-000000000000"} {
		t.Run(name, func(t *testing.T) {
			for _, h := range hooks {
				n := newNode(t, "enforce")
				n.configure(func(c *conf) { c.onUnknown = "drain" })
				n.slurmConf("gpu:3", "Name=gpu File=/dev/nvidia[0-2]")
				n.slurmd(lists(0, 1, 2))
				n.clean(prolog, bystanding())
				others := n.record()
				o := n.hook(h, newJob().with("SLURM_JOB_GPUS", "2", "CUDA_VISIBLE_DEVICES", list, "GPU_DEVICE_ORDINAL", ""))
				if o.exit != 0 || len(lines(n.log(), "BKD-MISSING", "action=warn")) != 1 {
					t.Errorf("%v\n%s", o, n.log())
				}
				if shown, _ := n.bookend("show", "100"); !strings.Contains(shown, "Slurm's GPU 2 does not exist: the driver has 2") {
					t.Errorf("shown: %s", shown)
				}
				n.unharmed(others)
			}
		})
	}
}

// Without any sign of GPUs a hook ends before it reads anything, whatever else is wrong.
func TestNoGPUsNoWork(t *testing.T) {
	for _, h := range hooks {
		n := newNode(t, "enforce")
		n.config = "/nowhere"
		o := n.hook(h, job{"SLURM_SCRIPT_CONTEXT": absent})
		if o.exit != 0 || o.output != "" || n.log() != "" {
			t.Errorf("%s: %v, log: %s", h.program, o, n.log())
		}
	}
}
