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
	base := Task{Node: "n1", EnvID: 12, Step: "batch"}

	for _, test := range []struct {
		name   string
		env    env
		cgroup string
		change func(*Task)
	}{
		{"batch script, no cgroup", batch, "0::/", nil},
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
		{"task epilog of the script, v2", batch.with(taskEpilog), v2 + "job_12/step_batch/slurm", func(w *Task) {
			w.Owner = Owner{ID: 12, Step: "batch", Daemon: true}
		}},
		{"an environment of lies", env{
			"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURMD_NODENAME": "../x", "SLURM_JOB_ID": "-1",
			"SLURM_STEP_ID": "x",
			"SLURM_LOCALID": "99999999999", "SLURM_TASK_PID": "1;2", "SLURM_JOB_GPUS": "0", "SLURM_HET_JOB_ID": "4294967296",
			"SLURM_ARRAY_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "[1-3]",
		}, "", func(w *Task) { *w = Task{LocalID: -1} }},
	} {
		want := base
		if test.change != nil {
			test.change(&want)
		}
		if got := TaskFromEnv(test.env.get, test.cgroup); got != want {
			t.Errorf("%s\n got %+v\nwant %+v", test.name, got, want)
		}
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

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"n1":                     "n1",
		"n[001-010,020],m3":      "n001",
		"login,n[1-2":            "login",
		"":                       "",
		"n[1-2":                  "",
		"tux[000x444]":           "", // box ranges of machines long gone
		"../x":                   "",
		strings.Repeat("n", 300): "",
	} {
		if got := FirstHost(list); got != want {
			t.Errorf("FirstHost(%q) = %q, want %q", list, got, want)
		}
	}
}

func TestExpand(t *testing.T) {
	for element, want := range map[string]string{
		"n1": "n1", "n[8-10]": "n8 n9 n10", "[1-2][3-4]": "13 14 23 24", "n[08-10,7]b": "n08b n09b n10b n7b", "r[0-1]n[2-3]": "r0n2 r0n3 r1n2 r1n3",
		"n[202401010016-202401010017]": "n202401010016 n202401010017",
	} {
		names, ok := Expand(element)
		if got := strings.Join(names, " "); got != want || !ok {
			t.Errorf("Expand(%q) = %s, %v, want %s", element, got, ok, want)
		}
	}
	for _, element := range []string{
		"n[1-", "n[2-1]", "n[]", "n[+1-2]", "n]1", "n[1-2]m[", "n[000x333]", "n[1-99999999999]", "n[0-999999]",
		"a[0-999]b[0-999]", "n[9223372036854775807]", "n[0000000000000000001]",
	} {
		if names, ok := Expand(element); ok || names != nil {
			t.Errorf("Expand(%q) = %d names, %v, want none", element, len(names), ok)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{
		"slurm 22.05.8": "22.05.8", "slurm 21.08.8-2": "21.08.8", "slurm 25.11.0-0rc1": "25.11.0",
		"slurm-wlm 24.11.5": "24.11.5", "slurm 26.05": "26.05.0",
		"": "", "slurm": "", "bash 5.2.1": "", "slurm x.y": "",
	} {
		v, ok := ParseVersion(text)
		if got := v.String(); ok != (want != "") || ok && got != want {
			t.Errorf("ParseVersion(%q) = %s, %v, want %q", text, got, ok, want)
		}
	}
}

func TestOwnerOfCgroup(t *testing.T) {
	const (
		sluid = "sCHNM7Y8WBK900"
		scope = "0::/system.slice/slurmstepd.scope"
	)
	for _, test := range []struct {
		name string
		text string
		want Owner
	}{
		{"v1 devices with task", "5:devices:/slurm_n1/uid_5/job_1/step_0/task_0", Owner{ID: 1, Step: "0"}},
		{"v1 whole file, unconstrained controllers elsewhere",
			"12:pids:/system.slice/slurmd.service\n6:freezer:/slurm_n1/uid_5/job_1\n" +
				"5:devices:/slurm_n1/uid_5/job_1/step_0/task_0\n1:name=systemd:/system.slice/slurmd.service\n0::/\n",
			Owner{ID: 1, Step: "0"}},
		{"v2 node name", "0::/system.slice/gpu-01.hpc_slurmstepd.scope/job_12/step_batch/user/task_0\n",
			Owner{ID: 12, Step: "batch"}},
		{"v2 SLUID", "0::/system.slice/n1_slurmstepd.scope/" + sluid + "/step_0/user/task_0",
			Owner{SLUID: sluid, Step: "0"}},
		{"v2 slurmstepd and task epilog", scope + "/job_12/step_batch/slurm",
			Owner{ID: 12, Step: "batch", Daemon: true}},
		{"v2 zombie", scope + "/job_12/step_0/user/task_0 (deleted)", Owner{ID: 12, Step: "0"}},
		{"v2 het component", scope + "/job_12/step_0+1/user/task_0", Owner{ID: 12, Step: "0+1"}},
		{"v2 in a container",
			"0::/system.slice/docker-0f3a.scope/system.slice/slurmstepd.scope/job_3/step_0/user/task_0",
			Owner{ID: 3, Step: "0"}},

		{"looks like a job, in no directory of Slurm's", "0::/user.slice/job_5/step_0/user", Owner{}},
		{"v1 without uid", "6:freezer:/slurm/job_5/step_0", Owner{}},
		{"SLUID with an excluded letter", scope + "/sCHNM7Y8WBK90L/step_0", Owner{}},
		{"directory made within the job", scope + "/job_12/step_0/user/task_0/job_1/step_0", Owner{ID: 12, Step: "0"}},
		{"whole tree made within the job", scope + "/job_12/step_0/user/task_0/slurmstepd.scope/job_1/step_0/slurm",
			Owner{ID: 12, Step: "0"}},
		{"tree made below a user's systemd",
			"0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_1/step_0/user", Owner{}},
		{"user's systemd beside a job's freezer",
			"6:freezer:/slurm/uid_5/job_7/step_0\n1:name=systemd:/user.slice/user@5.service/slurm/uid_5/job_1/step_0",
			Owner{ID: 7, Step: "0"}},
		{"a job and a run", "6:freezer:/slurm/uid_5/job_7/step_0\n" + scope + "/" + sluid + "/step_0",
			Owner{Conflict: "cgroups name two jobs, 7 and " + sluid}},
		{"two jobs, then a third",
			"6:freezer:/slurm/uid_5/job_7\n5:devices:/slurm/uid_5/job_8\n4:memory:/slurm/uid_5/job_9",
			Owner{Conflict: "cgroups name two jobs, 7 and 8"}},
	} {
		if got := OwnerOfCgroup(test.text); got != test.want {
			t.Errorf("%s: OwnerOfCgroup(%q)\n got %+v\nwant %+v", test.name, test.text, got, test.want)
		}
	}
}
