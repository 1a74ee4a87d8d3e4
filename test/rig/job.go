package rig

import (
	"maps"
	"slices"
	"strconv"
	"syscall"

	"bookend/internal/slurm"
)

// Job is what slurmd tells a hook: variables of its environment.
type Job map[string]string

// NewJob is the environment that slurmd 22.05 builds from scratch for a job with one GPU of a node.
func NewJob(node string, id, uid, gpu int) Job {
	return Job{
		"SLURMD_NODENAME": node, "SLURM_CLUSTER_NAME": "lab", "SLURM_CONF": "/etc/slurm/slurm.conf",
		"SLURM_JOB_USER": "nobody", "SLURM_NODELIST": node, "SLURM_JOB_PARTITION": "main",
		"SLURM_JOB_CONSTRAINTS": "(null)", "SLURM_JOB_WORK_DIR": "/", "SLURM_JOB_ACCOUNT": "(null)",
		"SLURM_JOB_COMMENT":       "a \"comment\" of the user's",
		"SLURM_JOB_CPUS_PER_NODE": "1", "SLURM_JOB_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1",
		"SLURM_JOB_RESERVATION": "(null)", "SLURM_JOB_RESTART_COUNT": "0",
	}.Numbered(id).Of(uid).On(strconv.Itoa(gpu))
}

// With returns a job with variables changed; an empty value removes one.
func (j Job) With(pairs ...string) Job {
	changed := maps.Clone(j)
	for i := 0; i+1 < len(pairs); i += 2 {
		if changed[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
			delete(changed, pairs[i])
		}
	}
	return changed
}

// Numbered is the job with another id.
func (j Job) Numbered(id int) Job {
	return j.With("SLURM_JOB_ID", strconv.Itoa(id), "SLURM_JOBID", strconv.Itoa(id))
}

// Of is the job as a user's.
func (j Job) Of(uid int) Job {
	id := strconv.Itoa(uid)
	return j.With("SLURM_JOB_UID", id, "SLURM_UID", id, "SLURM_JOB_GID", id)
}

// On is the job on other GPUs, as a list of Slurm's numbers.
func (j Job) On(gpus string) Job {
	return j.With("SLURM_JOB_GPUS", gpus, "CUDA_VISIBLE_DEVICES", gpus, "GPU_DEVICE_ORDINAL", gpus)
}

// Absent is the value of a variable that Environ is not to add.
const Absent = "\x00"

// Environ is the environment of a hook for the job: an epilog's job has ended well where the job does not say how. A
// health check is told what the job says and nothing else.
func (j Job) Environ(config string, context slurm.Context) []string {
	all := Job{}
	if context != slurm.HealthCheck {
		all["SLURM_SCRIPT_CONTEXT"] = string(context)
	}
	if context == slurm.Epilog {
		all["SLURM_JOB_EXIT_CODE"], all["SLURM_JOB_EXIT_CODE2"], all["SLURM_JOB_DERIVED_EC"] = "0", "0:0", "0"
	}
	maps.Copy(all, j)
	env := []string{"BOOKEND_CONFIG=" + config}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != Absent {
			env = append(env, name+"="+all[name])
		}
	}
	return env
}

// As is what makes a process a user's.
func As(uid int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
}
