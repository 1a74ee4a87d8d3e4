package slurm

import (
	"testing"
)

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
		{"v1 freezer, multiple-slurmd build", "6:freezer:/slurm_n1/uid_5/job_1/step_batch",
			Owner{ID: 1, Step: "batch"}},
		{"v1 devices with task", "5:devices:/slurm_n1/uid_5/job_1/step_0/task_0", Owner{ID: 1, Step: "0"}},
		{"v1 task epilog: job only", "6:freezer:/slurm_n1/uid_5/job_1", Owner{ID: 1}},
		{"v1 in a container", "6:freezer:/docker/0f3a/slurm_n1/uid_5/job_1/step_0", Owner{ID: 1, Step: "0"}},
		{"v1 whole file, unconstrained controllers elsewhere",
			"12:pids:/system.slice/slurmd.service\n6:freezer:/slurm_n1/uid_5/job_1\n" +
				"5:devices:/slurm_n1/uid_5/job_1/step_0/task_0\n1:name=systemd:/system.slice/slurmd.service\n0::/\n",
			Owner{ID: 1, Step: "0"}},
		{"v2 task/cgroup", scope + "/job_12/step_0/user/task_1", Owner{ID: 12, Step: "0"}},
		{"v2 node name", "0::/system.slice/gpu-01.hpc_slurmstepd.scope/job_12/step_batch/user/task_0\n",
			Owner{ID: 12, Step: "batch"}},
		{"v2 SLUID", "0::/system.slice/n1_slurmstepd.scope/" + sluid + "/step_0/user/task_0",
			Owner{SLUID: sluid, Step: "0"}},
		{"v2 slurmstepd and task epilog", scope + "/job_12/step_batch/slurm",
			Owner{ID: 12, Step: "batch", Daemon: true}},
		{"v2 zombie", scope + "/job_12/step_0/user/task_0 (deleted)", Owner{ID: 12, Step: "0"}},
		{"v2 het component", scope + "/job_12/step_0+1/user/task_0", Owner{ID: 12, Step: "0+1"}},
		{"v2 TBD", scope + "/job_12/step_TBD/slurm", Owner{ID: 12, Step: "TBD", Daemon: true}},
		{"v2 in a container",
			"0::/system.slice/docker-0f3a.scope/system.slice/slurmstepd.scope/job_3/step_0/user/task_0",
			Owner{ID: 3, Step: "0"}},
		{"v2 prolog under systemd", "0::/system.slice/slurmd.service", Owner{}},
		{"largest job id", scope + "/job_4294967295/step_4294967295/user", Owner{ID: 1<<32 - 1, Step: "4294967295"}},
		{"unknown step word", scope + "/job_12/step_new/user", Owner{ID: 12}},

		{"not Slurm's", "0::/user.slice/user-1000.slice/session-4.scope", Owner{}},
		{"empty", "", Owner{}},
		{"looks like a job, in no directory of Slurm's", "0::/user.slice/job_5/step_0/user", Owner{}},
		{"looks like a run, in no directory of Slurm's", "0::/system.slice/" + sluid + "/step_0/user", Owner{}},
		{"v1 without uid", "6:freezer:/slurm/job_5/step_0", Owner{}},
		{"job id 0", scope + "/job_0/step_0", Owner{}},
		{"job id too large", scope + "/job_4294967296/step_0", Owner{}},
		{"job id with leading zero", scope + "/job_05/step_0", Owner{}},
		{"SLUID with an excluded letter", scope + "/sCHNM7Y8WBK90L/step_0", Owner{}},
		{"directory made within the job", scope + "/job_12/step_0/user/task_0/job_1/step_0", Owner{ID: 12, Step: "0"}},
		{"whole tree made within the job", scope + "/job_12/step_0/user/task_0/slurmstepd.scope/job_1/step_0/slurm",
			Owner{ID: 12, Step: "0"}},
		{"tree made below a user's systemd",
			"0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_1/step_0/user", Owner{}},
		{"v1 tree made below a user's systemd",
			"1:name=systemd:/user.slice/user-1000.slice/user@1000.service/slurm/uid_0/job_1/step_0", Owner{}},
		{"user's systemd beside a job's freezer",
			"6:freezer:/slurm/uid_5/job_7/step_0\n1:name=systemd:/user.slice/user@5.service/slurm/uid_5/job_1/step_0",
			Owner{ID: 7, Step: "0"}},
		{"two jobs", "6:freezer:/slurm/uid_5/job_7/step_0\n5:devices:/slurm/uid_5/job_8/step_0",
			Owner{Conflict: "cgroups name two jobs, 7 and 8"}},
		{"a job and a run", "6:freezer:/slurm/uid_5/job_7/step_0\n" + scope + "/" + sluid + "/step_0",
			Owner{Conflict: "cgroups name two jobs, 7 and " + sluid}},
		{"two jobs, then a third",
			"6:freezer:/slurm/uid_5/job_7\n5:devices:/slurm/uid_5/job_8\n4:memory:/slurm/uid_5/job_9",
			Owner{Conflict: "cgroups name two jobs, 7 and 8"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := OwnerOfCgroup(test.text); got != test.want {
				t.Errorf("OwnerOfCgroup(%q)\n got %+v\nwant %+v", test.text, got, test.want)
			}
		})
	}
}
