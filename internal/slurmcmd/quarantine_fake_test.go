package slurmcmd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/slurm"
	"bookend/test/must"
)

// fakeSlurm stands for Slurm's programs on a node of two GPUs: job N gets GPU N-1. Its directory has file "drained" while
// the node is, and what the programs were told in "log". If "world" is busy, job 1 is a user's; if impatient, an admin types Ctrl-C.
const fakeSlurm = `#!/bin/sh
cd "$(dirname "$0")"
case ${0##*/} in
sbatch) n=$(($(cat jobs 2>/dev/null || grep -c busy world) + 1)); echo $n >jobs; echo $n; echo "$*" | grep -o 'partition=.*--nodes' >>log; exit;;
squeue) ! grep -q busy world || echo 1; exit;;
scancel) echo "scancel $*" >>log; grep -q forgotten world || exit 0
	echo "scancel: error: Kill job error on job id $1: Invalid job id specified" >&2; exit 1;;
esac
case $* in
*"show node"*) state=IDLE; [ -e drained ] && state=IDLE+DRAIN
	printf 'NodeName=n1 Arch=x\n   Gres=gpu:2\n   GresUsed=gpu:%s\n   State=%s X=\n   Partitions=a,b,c \n' $(grep -c busy world) $state
	[ ! -e drained ] || printf '   Reason=%s [root@2026-11-21T07:00:00]\n' "$(cat drained)";;
*"show partition c") printf 'PartitionName=c\n   PriorityTier=9 OverSubscribe=NO ExclusiveUser=YES\n   X=NO PreemptMode=OFF\n   State=UP X=\n';;
*"show partition b") printf 'PartitionName=b\n   X=1 PriorityTier=5 OverSubscribe=NO\n   X=NO PreemptMode=OFF\n   State=UP X=\n';;
*"show partition a") printf 'PartitionName=a\n   X=1 PriorityTier=1 OverSubscribe=NO\n   X=NO PreemptMode=OFF\n   State=UP X=\n';;
*"show job"*) state=RUNNING; grep -q "pending" world && state=PENDING
	for id; do :; done
	printf 'JobId=%s JobName=bookend-quarantine\n   UserId=root(0) GroupId=root(0)\n   JobState=%s Reason=Resources X=\n   NodeList=n1\n     Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:%s)\n' $id $state $((id - 1));;
*State=UNDRAIN*) echo undrained >>log; rm drained; ! grep -q impatient world || kill -INT $PPID;;
*State=DRAIN*) echo drained >>log; for reason; do :; done; echo "${reason#Reason=}" >drained;;
*TimeLimit*) echo "$*" >>log; ! grep -q refuses world || { echo no >&2; exit 1; };;
esac
`

const allGPUs = -1

// onFake is a quarantine with such a Slurm, and at the path of a file of its directory.
func onFake(t *testing.T, world, drained string) (q Quarantine, at func(name string) string) {
	dir, now := t.TempDir(), time.Duration(0)
	at = func(name string) string { return filepath.Join(dir, name) }
	for _, program := range []string{"scontrol", "sbatch", "squeue", "scancel"} {
		must.Do(t, os.WriteFile(at(program), []byte(fakeSlurm), 0o755))
	}
	must.Do(t, os.WriteFile(at("world"), []byte(world), 0o644))
	if drained != "" {
		must.Do(t, os.WriteFile(at("drained"), []byte(drained), 0o644))
	}
	q = Quarantine{Slurm: Scontrol{Path: at("scontrol"), Time: func() time.Duration { return time.Minute }},
		Node: "n1", Resume: true, Clock: func() time.Duration { now += atOnce / 2; return now }}
	q.Keep = func(gpu int, jobs ...slurm.JobID) error {
		log := must.Have(os.OpenFile(at("log"), os.O_APPEND|os.O_WRONLY, 0))(t)
		defer log.Close()
		_, err := fmt.Fprintln(log, "keep", gpu, jobs)
		return err
	}
	return q, at
}

// An admin's Ctrl-C between the end of the drain and the job's record would leave the GPU to other jobs.
func TestQuarantineInterrupted(t *testing.T) {
	q, _ := onFake(t, "impatient", "broken")
	q.GPUs = []int{1}
	held := must.Have(q.Begin())(t)
	must.Be(t, "held", held[2], 1)
}

// A job that holds a GPU for good is on record before it does, and a node whose drain was ended for nothing is drained
// again, with its reason. Of several partitions the one is taken whose jobs come first and that gives no whole node.
func TestQuarantineThatFails(t *testing.T) {
	const queued = "partition=b --nodes\npartition=b --nodes\nkeep -1 [1 2]\n"
	for name, tt := range map[string]struct {
		world, drained string
		gpu            int
		wrong, log     string
	}{
		"held":                  {gpu: 1, log: queued + "keep 1 [2]\nupdate JobId=2 TimeLimit=UNLIMITED\nscancel 1\n"},
		"the drain is ended":    {"", "broken", 0, "", queued + "undrained\nkeep 0 [1]\nupdate JobId=1 TimeLimit=UNLIMITED\nscancel 2\n"},
		"drained, and pending":  {"pending", "broken", 0, "only 0 of 2 jobs started", queued + "undrained\ndrained\nscancel 1 2\n"},
		"pending":               {"pending", "", 0, "only 0 of 2 jobs started", queued + "scancel 1 2\n"},
		"drained, not lasting":  {"refuses", "broken", 0, "keep job 1", queued + "undrained\nkeep 0 [1]\nupdate JobId=1 TimeLimit=UNLIMITED\nkeep -1 [1]\ndrained\nscancel 1 2\n"},
		"no such GPU":           {gpu: 2, wrong: "the node has 2 GPUs"},
		"all":                   {gpu: allGPUs, log: queued + "keep 0 [1]\nupdate JobId=1 TimeLimit=UNLIMITED\nkeep 1 [2]\nupdate JobId=2 TimeLimit=UNLIMITED\n"},
		"all, but one's job":    {"busy", "", allGPUs, "a job has the GPU", "partition=b --nodes\nkeep -1 [2]\nkeep 1 [2]\nupdate JobId=2 TimeLimit=UNLIMITED\n"},
		"all of a drained node": {"", "broken", allGPUs, "", queued + "undrained\nkeep 0 [1]\nupdate JobId=1 TimeLimit=UNLIMITED\nkeep 1 [2]\nupdate JobId=2 TimeLimit=UNLIMITED\n"},
		"all, drained, but one": {"busy", "broken", allGPUs, "a job has the GPU", ""},
		"all, none lasts": {"refuses", "broken", allGPUs, "keep job 1", queued + "undrained\nkeep 0 [1]\nupdate JobId=1 TimeLimit=UNLIMITED\n" +
			"keep -1 [1]\ndrained\nscancel 1 2\n"},
		"held, and one is gone": {world: "forgotten", gpu: 1, log: queued + "keep 1 [2]\nupdate JobId=2 TimeLimit=UNLIMITED\nscancel 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, at := onFake(t, tt.world, tt.drained)
			q.GPUs = []int{tt.gpu}
			if tt.gpu == allGPUs {
				q.GPUs = []int{0, 1}
			}
			held, err := q.Begin()
			must.Be(t, "held", len(held), strings.Count(tt.log, "keep 0")+strings.Count(tt.log, "keep 1")-strings.Count(tt.log, "keep -1 [1]\n"))
			for job, gpu := range held {
				must.Be(t, "GPU of a job", int(job), gpu+1)
			}
			must.Not(t, (err != nil) != (tt.wrong != "") || !strings.Contains(fmt.Sprint(err), tt.wrong), "got %v, %v", held, err)
			log, _ := os.ReadFile(at("log"))
			must.Be(t, name, string(log), tt.log)
			reason, _ := os.ReadFile(at("drained"))
			if want := tt.drained; tt.wrong != "" {
				must.Be(t, name, strings.TrimSpace(string(reason)), want)
			}
		})
	}
}
