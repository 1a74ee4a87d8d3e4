package slurmcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/test/must"
)

// The job that may have DCGM test a node is root's, has all its GPUs and is alone on it. Its directory has the node's state,
// the ids of its jobs, and who has job 7 with which GPUs.
func TestVacant(t *testing.T) {
	const program = `#!/bin/sh
cd "$(dirname "$0")"
case ${0##*/} in
squeue) cat jobs; exit;;
sbatch) echo "Submitted batch job 9"; exit;;
esac
case $* in
*"show node"*) printf 'NodeName=n1 Arch=x\n   Gres=gpu:4\n   State=%s X=\n   Partitions=a,b \n' "$(cat state)";;
*"show job"*) printf 'JobId=7 JobName=x\n   UserId=%s GroupId=x\n     Nodes=n1 CPU_IDs=0-9 Mem=1 GRES=gpu:4(IDX:%s)\n' "$(cat user)" "$(cat gpus)";;
esac
`
	for name, tt := range map[string]struct{ state, jobs, user, gpus, job, want, alone string }{
		"drained and idle":     {state: "IDLE+DRAIN", alone: "takes no jobs"},
		"in maintenance":       {state: "IDLE+CLOUD+DRAIN+MAINTENANCE+MAINT", want: "it is IDLE+CLOUD+DRAIN+MAINTENANCE", alone: "takes no jobs"},
		"in a reservation":     {state: "MAINT+IDLE+DRAIN+RESERVED+DYNAMIC_NORM", alone: "takes no jobs"},
		"drained, with a job":  {state: "MIXED+DRAIN", want: "it is MIXED+DRAIN", alone: "takes no jobs"},
		"silent":               {state: "IDLE*+DRAIN", want: "it is IDLE+DRAIN, and does not answer", alone: "takes no jobs"},
		"down":                 {state: "DOWN+DRAIN", want: "it is DOWN+DRAIN", alone: "takes no jobs"},
		"not drained":          {state: "IDLE", want: "it is IDLE"},
		"this job":             {"ALLOCATED", "7", "root(0)", "0-3", "7", "", ""},
		"a user's job":         {"ALLOCATED", "7", "alice(1000)", "0-3", "7", "is not root's", ""},
		"not all GPUs":         {"ALLOCATED", "7", "root(0)", "0-2", "7", "has not all 4 GPUs", ""},
		"another job is there": {"ALLOCATED", "7\n8", "root(0)", "0-3", "7", "is not alone on it", ""},
		"it has ended":         {"IDLE", "", "root(0)", "0-3", "7", "is not alone on it", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"scontrol": program, "squeue": program, "sbatch": program, "state": tt.state,
				"jobs": tt.jobs, "user": tt.user, "gpus": tt.gpus} {
				must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755))
			}
			c := Scontrol{Path: filepath.Join(dir, "scontrol"), Time: func() time.Duration { return time.Minute }}
			why := c.Vacant("n1", tt.job)
			must.Not(t, !strings.Contains(why, tt.want) || tt.want == "" && why != "", "got %q", why)
			args, err := c.Alone("n1", "x", "/out", "exec true")
			if tt.alone != "" {
				must.Not(t, err == nil || !strings.Contains(err.Error(), tt.alone), "got %v", err)
				return
			}
			must.Do(t, err)
			all := strings.Join(args, " ")
			must.Not(t, !strings.Contains(all, "--exclusive --nodes=1 --nodelist=n1 --partition=a --gres=gpu:4 ") ||
				!strings.HasSuffix(all, " --output=/out --wrap=exec true"), "got %s", all)
			must.Be(t, "job", must.Have(c.Submit(args))(t), "Submitted batch job 9")
		})
	}
}
