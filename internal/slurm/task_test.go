package slurm

import (
	"strings"
	"testing"
)

func TestTaskFromEnv(t *testing.T) {
	batch := env{
		"SLURM_SCRIPT_CONTEXT": "prolog_task", "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "12",
		"SLURM_JOB_GPUS": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_TASK_PID": "4711",
	}
	step := batch.with(env{"SLURM_STEP_ID": "3", "SLURM_LOCALID": "5"})
	taskEpilog := env{"SLURM_SCRIPT_CONTEXT": "epilog_task"}
	const v2 = "0::/system.slice/slurmstepd.scope/"
	base := Task{Context: TaskProlog, Node: "n1", EnvID: 12, HasGPUs: true, Step: "batch"}

	for _, test := range []struct {
		name   string
		env    env
		cgroup string
		change func(*Task)
	}{
		{"batch script, no cgroup", batch, "0::/", nil},
		{"batch script, 26.05", batch.with(env{"SLURM_STEP_ID": "-5"}), "", nil},
		{"batch script, cgroup v2", batch, v2 + "job_12/step_batch/user/task_0",
			func(w *Task) { w.Owner = Owner{ID: 12, Step: "batch"} }},
		{"batch script, SLUID", batch, v2 + "sCHNM7Y8WBK900/step_batch/user/task_0",
			func(w *Task) { w.Owner = Owner{SLUID: "sCHNM7Y8WBK900", Step: "batch"} }},
		{"interactive step", batch.with(env{"SLURM_STEP_ID": "4294967290"}), "",
			func(w *Task) { w.Step = "interactive" }},
		{"srun step", step, "", func(w *Task) { w.Step, w.LocalID = "3", 5 }},
		{"batch script started from a step", step, v2 + "job_12/step_batch/user/task_0",
			func(w *Task) { w.Owner = Owner{ID: 12, Step: "batch"} }},
		{"het job: leader in the environment", step.with(env{"SLURM_JOB_ID": "10", "SLURM_HET_JOB_ID": "10"}),
			v2 + "job_12/step_3/user/task_5", func(w *Task) {
				w.EnvID, w.HetID, w.Step, w.LocalID, w.Owner = 10, 10, "3", 5, Owner{ID: 12, Step: "3"}
			}},
		{"array", batch.with(env{"SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "0"}), "",
			func(w *Task) { w.Array = ArrayTask{Master: 9} }},
		{"srun only", step.with(env{"SLURM_JOB_GPUS": "", "SLURM_STEP_GPUS": "0"}), "",
			func(w *Task) { w.Step, w.LocalID = "3", 5 }},
		{"no GPUs", batch.with(env{"SLURM_JOB_GPUS": "", "CUDA_VISIBLE_DEVICES": "0"}), "",
			func(w *Task) { w.HasGPUs = false }},
		{"task epilog of the script, v2", batch.with(taskEpilog), v2 + "job_12/step_batch/slurm", func(w *Task) {
			w.Context, w.Owner = TaskEpilog, Owner{ID: 12, Step: "batch", Daemon: true}
		}},
		{"an environment of lies", env{
			"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURMD_NODENAME": "../x", "SLURM_JOB_ID": "-1",
			"SLURM_STEP_ID": "x",
			"SLURM_LOCALID": "99999999999", "SLURM_TASK_PID": "1;2", "SLURM_JOB_GPUS": "0", "SLURM_HET_JOB_ID": "4294967296",
			"SLURM_ARRAY_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "[1-3]",
		}, "", func(w *Task) { *w = Task{HasGPUs: true, LocalID: -1} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := base
			if test.change != nil {
				test.change(&want)
			}
			if got := TaskFromEnv(test.env.get, test.cgroup); got != want {
				t.Errorf("TaskFromEnv\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestParseRef(t *testing.T) {
	for text, want := range map[string]Ref{
		"1234":           {Kind: RefJob, ID: 1234},
		"4294967295":     {Kind: RefJob, ID: 1<<32 - 1},
		"1234_7":         {Kind: RefArray, ID: 1234, Part: 7},
		"1234_0":         {Kind: RefArray, ID: 1234},
		"1234+1":         {Kind: RefHet, ID: 1234, Part: 1},
		"sCHNM7Y8WBK900": {Kind: RefRun, SLUID: "sCHNM7Y8WBK900"},
	} {
		got, err := ParseRef(text)
		if err != nil || got != want {
			t.Errorf("ParseRef(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if got.String() != text {
			t.Errorf("ParseRef(%q).String() = %q", text, got.String())
		}
	}
	for _, text := range []string{
		"", "0", "-1", "+1", "_1", "1_", "1+", "1_2_3", "1_2+3", "1.0", "1234.batch", "01", " 1", "1 ", "1_[1-3]",
		"4294967296", "1_4294967296", "sCHNM7Y8WBK90", "SCHNM7Y8WBK900", "../1", "1\n", strings.Repeat("1", 5000),
	} {
		if got, err := ParseRef(text); err == nil {
			t.Errorf("ParseRef(%q) = %+v, want an error", text, got)
		} else if len(err.Error()) > 200 {
			t.Errorf("ParseRef: error of %d bytes", len(err.Error()))
		}
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
