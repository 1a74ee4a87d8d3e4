package slurmcmd

import (
	"fmt"
	"strings"
	"testing"

	"bookend/test/must"
)

// What scontrol of several releases says of a node's GPUs and of a job's.
func TestGPUsOfNodesAndJobs(t *testing.T) {
	for text, want := range map[string][2]int{
		"NodeName=n1\n   Gres=gpu:4\n   GresDrain=N/A\n   GresUsed=gpu:4,shard:0\n":                           {4, 4},
		"NodeName=n1\n   Gres=gpu:a:2(S:0),gpu:b:6(S:1),shard:8\n   GresUsed=gpu:a:0(IDX:N/A),gpu:b:1(IDX:3)": {8, 1},
		"NodeName=n1\n   Gres=gpu:h100:8(S:0-1)\n   GresUsed=gpu:h100:3(IDX:0-1,7)\n":                         {8, 3},
		"NodeName=n1\n   Gres=(null)\n   GresUsed=gpu:0\n":                                                    {0, 0},
	} {
		must.Be(t, text, [2]int{count(gresOf, text), count(usedOf, text)}, want)
	}
	for text, want := range map[string]string{
		"\n     Nodes=n1 CPU_IDs=0 Mem=50 GRES=gpu:4(IDX:0-3)\n":                                    "[0 1 2 3]",
		"\n     Nodes=n1 CPU_IDs=0 Mem=50 GRES=gpu:a:2(IDX:0-1),gpu:b:2(IDX:3,5)\n":                 "[0 1 3 5]",
		"\n     Nodes=n2 CPU_IDs=0 Mem=50 GRES=gpu:1(IDX:2)\n     Nodes=n1 CPU_IDs=1 Mem=1 GRES=\n": "[]",
		"\n     Nodes=n[1-2] CPU_IDs=0 Mem=50 GRES=gpu:1(IDX:2)\n":                                  "[2]",
		"\n   JobName=x Nodes=n1 GRES=gpu:1(IDX:7)\n     Nodes=n1 CPU_IDs=0 Mem=50 GRES=\n":         "[]",
	} {
		must.Be(t, text, fmt.Sprint(givenOn(text, "n1")), want)
	}
}

// After slurmctld lost its state, numbers begin again: only root's job for this node, by its name, holds a GPU.
func TestWhoseJob(t *testing.T) {
	const root, of, on, rest = "\n   UserId=root(0) GroupId=root(0)", "JobId=5 JobName=bookend-quarantine", "\n   JobState=RUNNING X=",
		"\n   ReqNodeList=n1 ExcNodeList=(null)\n   NodeList=n1\n   BatchHost=n1\n"
	for text, want := range map[string]bool{
		of + root + on + rest:                                                         true,
		of + "\n   SLUID=s0DSM8P93ZXD00" + root + on + rest:                           true, // Slurm 26.05
		of + "\n   SLUID=s0DSM8P93ZXD00\n   UserId=alice(1000) GroupId=x" + on + rest: false,
		of + "\n   UserId=alice(1000) GroupId=x" + on + rest:                          false,
		of + root + "\n   UserId=alice(1000) GroupId=x" + on + rest:                   false, // a name of several lines
		"JobId=5 JobName=burn-in" + root + on + rest:                                  false,
		of + root + on + "\n   ReqNodeList=n2 ExcNodeList=(null)\n   NodeList=n2\n":   false,
		of + root + on + "\n   ReqNodeList=n11 ExcNodeList=(null)\n   NodeList=n11\n": false,
	} {
		must.Be(t, text, isRunning(text, "n1"), want)
	}
}

// A partition whose jobs can be pushed aside, or get whole nodes, cannot hold a GPU.
func TestUnfitPartitions(t *testing.T) {
	const well = "PartitionName=gpu\n   PriorityTier=1 RootOnly=NO OverSubscribe=NO\n   OverTimeLimit=NONE PreemptMode=OFF\n" +
		"   State=UP TotalCPUs=8\n"
	for text, want := range map[string]string{
		well: "",
		"PartitionName=gpu\n   OverTimeLimit=NONE PreemptMode=REQUEUE\n   State=UP TotalCPUs=8\n":                         "its jobs can be preempted",
		"PartitionName=gpu\n   OverSubscribe=EXCLUSIVE\n   OverTimeLimit=NONE PreemptMode=OFF\n   State=UP TotalCPUs=8\n": "its jobs or users get whole nodes",
		"PartitionName=gpu\n   OverTimeLimit=NONE PreemptMode=OFF\n   State=DRAIN TotalCPUs=8\n":                          "it is not up",
	} {
		must.Be(t, text, unfit(text), want)
	}
	for field, fits := range map[string]bool{
		"ExclusiveUser=NO ExclusiveTopo=NO": true, "ExclusiveUser=YES ExclusiveTopo=NO": false, "ExclusiveUser=NO ExclusiveTopo=YES": false,
		"Exclusive=NO": true, "Exclusive=NODE": false, "Exclusive=USER": false, "Exclusive=TOPO": false, // after 26.05
	} {
		text := strings.Replace(well, "\n", "\n   DisableRootJobs=NO "+field+" GraceTime=0\n", 1)
		must.Be(t, field, unfit(text) == "", fits)
	}
}
