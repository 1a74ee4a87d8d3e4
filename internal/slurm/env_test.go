package slurm

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"bookend/test/golden"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite the files of testdata that say what follows")

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
	epilog = env{
		"SLURM_SCRIPT_CONTEXT": "epilog_slurmd",
		"SLURM_JOB_EXIT_CODE":  "768", "SLURM_JOB_EXIT_CODE2": "3:0", "SLURM_JOB_DERIVED_EC": "1280",
	}
)

// parse reads lines of NAME=value.
func parse(lines string) env {
	e := env{}
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		e[name] = value
	}
	return e
}

func TestFromEnv(t *testing.T) {
	golden.Archive(t, *update, "testdata/job.txtar", func(more string) string {
		job, err := FromEnv(slurm2205.with(parse(more)).get)
		if err == nil {
			return string(must.Have(json.Marshal(job))(t))
		}
		if !reflect.DeepEqual(job, Job{}) {
			t.Errorf("%v, and %+v", err, job)
		}
		return err.Error()
	})
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

func TestTaskFromEnv(t *testing.T) {
	golden.Archive(t, *update, "testdata/task.txtar", func(given string) string {
		e := parse(given)
		return fmt.Sprintf("%+v", TaskFromEnv(e.get, e["cgroup"]))
	})
}

func TestOwnerOfCgroup(t *testing.T) {
	golden.Archive(t, *update, "testdata/cgroup.txtar", func(text string) string {
		return fmt.Sprintf("%+v", OwnerOfCgroup(text))
	})
}

// What people, Slurm's lists and its programs name: references of jobs, elements of lists, versions.
func TestWords(t *testing.T) {
	golden.Lines(t, *update, "testdata/words.txt", func(given string) string {
		what, text, _ := strings.Cut(given, " ")
		var ok bool
		var got any
		switch what {
		case "job":
			ref, err := ParseRef(text)
			got, ok = fmt.Sprintf("%+v", ref), err == nil
		case "first":
			got, ok = FirstHost(text), true
		case "expand":
			got, ok = Expand(text)
		case "version":
			got, ok = ParseVersion(text)
		}
		if !ok {
			return "none"
		}
		return fmt.Sprint(got)
	})
	if got := FirstHost(strings.Repeat("n", 300)); got != "" {
		t.Errorf("a name too long for a file: %s", got)
	}
}

func TestTaskJob(t *testing.T) {
	const sluid = "sCHNM7Y8WBK900"
	for name, tt := range map[string]struct{ task, want Owner }{
		"no cgroup names it":           {Owner{}, Owner{ID: 7}},
		"cgroups that name two":        {Owner{Conflict: "two"}, Owner{ID: 7}},
		"its cgroup has the id":        {Owner{ID: 8, Step: "batch"}, Owner{ID: 8, Step: "batch"}},
		"its cgroup has the run alone": {Owner{SLUID: sluid, Step: "0"}, Owner{ID: 7, SLUID: sluid, Step: "0"}},
	} {
		if have := (Task{Owner: tt.task, EnvID: 7}).Job(); have != tt.want {
			t.Errorf("%s: %+v, want %+v", name, have, tt.want)
		}
	}
	if have := (Task{Owner: Owner{SLUID: sluid}}).Job(); have != (Owner{SLUID: sluid}) {
		t.Errorf("without an environment: %+v", have)
	}
}
