package slurm

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"bookend/test/must"
)

type env map[string]string

func (e env) get(name string) string { return e[name] }

// with returns the environment with more variables; an empty value unsets one.
func (e env) with(more env) env {
	all := maps.Clone(e)
	maps.Copy(all, more)
	return all
}

// The environments of a root hook, by the version that added to them.
var (
	slurm2205 = env{
		"SLURMD_NODENAME": "n1", "SLURM_CLUSTER_NAME": "lab", "SLURM_CONF": "/etc/slurm/slurm.conf",
		"SLURM_JOB_ID": "1234", "SLURM_JOBID": "1234", "SLURM_JOB_UID": "1000", "SLURM_UID": "1000",
		"SLURM_JOB_GID": "100", "SLURM_JOB_USER": "ada", "SLURM_NODELIST": "n[1-2]",
		"SLURM_JOB_PARTITION": "main", "SLURM_JOB_CONSTRAINTS": "(null)",
		"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "CUDA_VISIBLE_DEVICES": "0,1", "GPU_DEVICE_ORDINAL": "0,1",
		"SLURM_JOB_WORK_DIR": "/home/ada", "SLURM_JOB_GPUS": "0,1", "SLURM_NODE_ALIASES": "(null)",
		"SLURM_JOB_STDOUT": "/home/ada/dir with space/out %x %j.txt", "SLURM_JOB_STDIN": "/dev/null",
		"SLURM_JOB_ACCOUNT": "acc", "SLURM_JOB_COMMENT": "it's \"raw\"", "SLURM_JOB_NUM_NODES": "2",
		"SLURM_JOB_RESTART_COUNT": "1",
	}
	slurm2302 = slurm2205.with(env{
		"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_OVERSUBSCRIBE": "OK",
		"SLURM_JOB_START_TIME": "1700000000", "SLURM_JOB_END_TIME": "1700003600",
	})
	slurm2511 = slurm2302.with(env{
		"SLURM_JOB_SLUID":      "sCHNM7Y8WBK900",
		"CUDA_VISIBLE_DEVICES": "GPU-11111111-2222-3333-4444-555555555555,GPU-66666666-7777-8888-9999-000000000000",
	})
	epilog = env{
		"SLURM_SCRIPT_CONTEXT": "epilog_slurmd",
		"SLURM_JOB_EXIT_CODE":  "768", "SLURM_JOB_EXIT_CODE2": "3:0", "SLURM_JOB_DERIVED_EC": "1280",
	}
)

func TestFromEnv(t *testing.T) {
	const notEnded = "the job has not ended"
	job2205 := Job{
		Context: Prolog, ID: 1234, Node: "n1", Cluster: "lab", Partition: "main", User: "ada",
		UID: 1000, GID: 100, NodeList: "n[1-2]", WorkDir: "/home/ada", GPUIndexes: []int{0, 1},
		Visible: []string{"0", "1"}, Exit: ExitStatus{Why: notEnded}, Batch: true,
		Stdout: "/home/ada/dir with space/out %x %j.txt", Restarts: 1,
	}
	job2302 := job2205
	job2302.Start = time.Date(2023, 11, 14, 22, 13, 20, 0, time.UTC)
	job2511 := job2302
	job2511.SLUID = "sCHNM7Y8WBK900"
	job2511.Visible = strings.Split(slurm2511["CUDA_VISIBLE_DEVICES"], ",")

	for _, test := range []struct {
		name   string
		env    env
		base   Job
		change func(*Job)
	}{
		{"22.05", slurm2205, job2205, nil},
		{"23.02", slurm2302, job2302, nil},
		{"25.11", slurm2511, job2511, nil},
		{"epilog", slurm2205.with(epilog), job2205, func(j *Job) {
			j.Context, j.Exit = Epilog, ExitStatus{Known: true, Raw: 768, Derived: 1280}
		}},
		{"epilog, status lost", slurm2205.with(env{"SLURM_SCRIPT_CONTEXT": "epilog_slurmd"}), job2205, func(j *Job) {
			j.Context, j.Exit.Why = Epilog, "SLURM_JOB_EXIT_CODE is not set"
		}},
		{"het job", slurm2205.with(env{"SLURM_HET_JOB_ID": "1230"}), job2205, func(j *Job) { j.HetJobID = 1230 }},
		{"no GPUs", slurm2205.with(env{"SLURM_JOB_GPUS": "", "CUDA_VISIBLE_DEVICES": "", "GPU_DEVICE_ORDINAL": ""}),
			job2205, func(j *Job) { j.GPUIndexes, j.Visible = nil, nil }},
		{"Flags=no_gpu_env", slurm2205.with(env{"CUDA_VISIBLE_DEVICES": "", "GPU_DEVICE_ORDINAL": ""}), job2205,
			func(j *Job) { j.Visible = nil }},
		{"MIG, old driver", slurm2205.with(env{"SLURM_JOB_GPUS": "8", "CUDA_VISIBLE_DEVICES": "MIG-GPU-1111/1/0"}),
			job2205, func(j *Job) { j.GPUIndexes, j.Visible = []int{8}, []string{"MIG-GPU-1111/1/0"} }},
		{"MPS", slurm2205.with(env{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}), job2205,
			func(j *Job) { j.MPSPercent = "50" }},
		{"a range of GPUs", slurm2205.with(env{"SLURM_JOB_GPUS": "0-1"}), job2205, func(j *Job) {
			j.GPUIndexes, j.Visible = nil, nil
			j.GPUProblem = `SLURM_JOB_GPUS cannot be read: "0-1" is not a device index`
		}},
		{"a GPU twice", slurm2205.with(env{"SLURM_JOB_GPUS": "0,1,0"}), job2205, func(j *Job) {
			j.GPUIndexes, j.Visible = nil, nil
			j.GPUProblem = `SLURM_JOB_GPUS cannot be read: "0" is listed twice`
		}},
		{"garbage among the visible", slurm2205.with(env{"CUDA_VISIBLE_DEVICES": "0,\x1b[2J"}), job2205, func(j *Job) {
			j.GPUIndexes, j.Visible = nil, nil
			j.GPUProblem = `the list of visible devices cannot be read: "\x1b[2J" is not a device`
		}},
		{"path longer than a path can be", slurm2205.with(env{"SLURM_JOB_STDOUT": "/" + strings.Repeat("a", 4095)}),
			job2205, func(j *Job) { j.Stdout = "" }},
	} {
		want := test.base
		if test.change != nil {
			test.change(&want)
		}
		if got := must.Have(FromEnv(test.env.get))(t); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %+v\nwant %+v", test.name, got, want)
		}
	}
}

func TestFromEnvRefuses(t *testing.T) {
	long := strings.Repeat("/", 5000)
	for want, more := range map[string]env{
		`SLURM_SCRIPT_CONTEXT="prolog_task" is not one of ["prolog_slurmd" "epilog_slurmd"]`: {
			"SLURM_SCRIPT_CONTEXT": "prolog_task"},
		"SLURM_SCRIPT_CONTEXT is not set":                        {"SLURM_SCRIPT_CONTEXT": ""},
		`SLURM_JOB_ID="../1" is not a job id`:                    {"SLURM_JOB_ID": "../1"},
		`SLURM_JOB_UID="4294967295" is not a user or group id`:   {"SLURM_JOB_UID": "4294967295"},
		`SLURMD_NODENAME="a/b" is not a node name`:               {"SLURMD_NODENAME": "a/b"},
		`SLURM_JOB_SLUID="sCHNM7Y8WBK90O" is not a SLUID`:        {"SLURM_JOB_SLUID": "sCHNM7Y8WBK90O"},
		`SLURMD_NODENAME="` + long[:64] + `" is not a node name`: {"SLURMD_NODENAME": long},
	} {
		job, err := FromEnv(slurm2205.with(more).get)
		if err == nil || err.Error() != "read job from environment: "+want || !reflect.DeepEqual(job, Job{}) {
			t.Errorf("FromEnv = %+v, %v; want %s", job, err, want)
		}
	}
}

func TestHasGPUs(t *testing.T) {
	for name, has := range map[string]func(string) string{
		"root: job GPUs":  env{"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_GPUS": "0"}.get,
		"task: srun only": env{"SLURM_SCRIPT_CONTEXT": "prolog_task", "SLURM_STEP_GPUS": "0"}.get,
	} {
		if !HasGPUs(has) {
			t.Errorf("%s: none", name)
		}
	}
	for name, hasNone := range map[string]func(string) string{
		"nothing":                       env{}.get,
		"root: (null)":                  env{"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_GPUS": "(null)"}.get,
		"task: the user's own variable": env{"SLURM_SCRIPT_CONTEXT": "epilog_task", "CUDA_VISIBLE_DEVICES": "0"}.get,
	} {
		if HasGPUs(hasNone) {
			t.Errorf("%s: some", name)
		}
	}
}
