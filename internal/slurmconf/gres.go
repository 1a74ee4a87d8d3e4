package slurmconf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/slurm"
)

// GPU is one GPU as Slurm counts it: its device files, of which a part of a GPU (MIG) has several.
type GPU []string

// DeviceFiles writes out "/dev/nvidia[0-3,5],/dev/nvidia8". What it does not understand it leaves as it is.
func DeviceFiles(list string) (all []string) {
	for _, element := range slurm.Elements(list) {
		files, ok := slurm.Expand(element)
		if !ok {
			files = []string{element}
		}
		all = append(all, files...)
	}
	return all
}

// Count counts the GPUs of a node's Gres in slurm.conf, such as "gpu:h100:4(S:0-1),gpu:2,shard:8".
func Count(list string) (n int) {
	for _, e := range slurm.Elements(list) {
		e, _, _ = strings.Cut(strings.TrimSpace(e), "(")
		parts := strings.Split(e, ":")
		if !strings.EqualFold(parts[0], "gpu") {
			continue
		}
		count, err := strconv.Atoi(parts[len(parts)-1])
		if err != nil {
			count = 1
		}
		n += count
	}
	return n
}

// Shared is an answer to whether GPUs may be given out in parts.
type Shared string

// The answers.
const (
	Yes     Shared = "yes"
	No      Shared = "no"
	Unknown Shared = "unknown"
)

// Answer is one of the three, with what it follows from or why it cannot be told. Why may quote the files.
type Answer struct {
	Shared Shared
	Why    string
}

// SharedGPUs tells whether the GPUs of a node may be given out in shards or by MPS: to its hooks a shard job looks like
// one with whole GPUs. nil is a file that could not be read. Only slurm.conf can say no, because shards need no line in
// gres.conf:
//
//	slurm.conf   GresTypes=gpu,shard                   without shard and mps there are none
//	             NodeName=n[1-4] Gres=gpu:4,shard:16   what slurmctld gives out of a node
//	gres.conf    [NodeName=n1] Name=shard Count=16     may be left out: slurm.conf's count is spread over all GPUs
func SharedGPUs(slurmConf, gresConf *Conf, node string) Answer {
	given, listed := givenInParts(slurmConf, node), gresConf.partsOf(node)
	switch {
	case listed == "":
		return given
	case given.Shared == No:
		return Answer{Unknown, given.Why + ", but " + listed}
	case given.Shared == Unknown:
		return Answer{Yes, listed}
	}
	return given
}

// partsOf says which line of gres.conf gives parts of a node's GPUs out; empty if none does.
func (c *Conf) partsOf(node string) string {
	if c == nil {
		return ""
	}
	for _, l := range c.Lines {
		nodes, some := l.Get("NodeName")
		here, _ := Contains(nodes, node)
		if name, _ := l.Get("Name"); inParts(name) && (here || !some) {
			return fmt.Sprintf("%s has Name=%s", l.Where(), name)
		}
	}
	return ""
}

// inParts reports a resource that gives a GPU to several jobs.
func inParts(name string) bool {
	return strings.EqualFold(name, "shard") || strings.EqualFold(name, "mps")
}

// givenInParts answers from slurm.conf as it is: Slurm refuses a second definition of a node and complains of a second
// GresTypes, in included files too.
func givenInParts(conf *Conf, node string) Answer {
	if conf == nil {
		return Answer{Unknown, "slurm.conf could not be read"}
	}
	types, stated := conf.Get("GresTypes")
	own := conf.Node(node)
	switch {
	case stated && !slices.ContainsFunc(Words(types.Text), inParts):
		return Answer{No, fmt.Sprintf("slurm.conf has GresTypes=%.80s", types.Text)}
	case own.Unsure != "":
		return Answer{Unknown, own.Unsure}
	case !own.Found:
		return Answer{Unknown, "slurm.conf does not say what Gres this node has"}
	case slices.ContainsFunc(Words(own.Gres), inParts):
		return Answer{Yes, fmt.Sprintf("slurm.conf has Gres=%.80s", own.Gres)}
	}
	return Answer{No, fmt.Sprintf("slurm.conf has Gres=%.80s", own.Gres)}
}
