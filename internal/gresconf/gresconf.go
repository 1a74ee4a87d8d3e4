// Package gresconf tells from Slurm's own configuration whether the GPUs of a node may be given out in shards or by
// MPS: to its hooks a shard job looks like one with whole GPUs. It is pure: package slurmfiles reads the files.
//
//	slurm.conf   GresTypes=gpu,shard                   without shard and mps there are none
//	             NodeName=n[1-4] Gres=gpu:4,shard:16   what slurmctld gives out of a node
//	gres.conf    [NodeName=n1] Name=shard Count=16     may be left out: slurm.conf's count is spread over all GPUs
package gresconf

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/slurmconf"
)

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

// Parse answers for a node from slurm.conf and gres.conf; nil is a file that could not be read. Only slurm.conf can say
// no, because shards need no line in gres.conf.
func Parse(slurmConf, gresConf *slurmconf.Conf, node string) Answer {
	given, listed := fromSlurm(slurmConf, node), fromGres(gresConf, node)
	switch {
	case listed == "":
		return given
	case given.Shared == No:
		return unknown("%s, but %s", given.Why, listed)
	case given.Shared == Unknown:
		return Answer{Yes, listed}
	}
	return given
}

func unknown(format string, args ...any) Answer { return Answer{Unknown, fmt.Sprintf(format, args...)} }

// shared reports a resource that gives a GPU to several jobs.
func shared(name string) bool {
	return strings.EqualFold(name, "shard") || strings.EqualFold(name, "mps")
}

// fromGres names the first line that gives parts of this node's GPUs out, nothing where none surely does.
func fromGres(conf *slurmconf.Conf, node string) string {
	if conf == nil {
		return ""
	}
	for _, l := range conf.Lines {
		name, _ := l.Get("Name")
		nodes, some := l.Get("NodeName")
		if here, _ := slurmconf.Contains(nodes, node); shared(name) && (here || !some) {
			return fmt.Sprintf("%s has Name=%s", l.Where(), name)
		}
	}
	return ""
}

// fromSlurm takes what stands there as it stands: Slurm refuses a second definition of a node and complains of a
// second GresTypes, in included files too.
func fromSlurm(conf *slurmconf.Conf, node string) Answer {
	if conf == nil {
		return unknown("slurm.conf could not be read")
	}
	types, stated := conf.Get("GresTypes")
	own := conf.Node(node)
	switch {
	case stated && !slices.ContainsFunc(slurmconf.Words(types.Text), shared):
		return Answer{No, fmt.Sprintf("slurm.conf has GresTypes=%.80s", types.Text)}
	case own.Unsure != "":
		return unknown("%s", own.Unsure)
	case !own.Found:
		return unknown("slurm.conf does not say what Gres this node has")
	case slices.ContainsFunc(slurmconf.Words(own.Gres), shared):
		return Answer{Yes, fmt.Sprintf("slurm.conf has Gres=%.80s", own.Gres)}
	}
	return Answer{No, fmt.Sprintf("slurm.conf has Gres=%.80s", own.Gres)}
}
