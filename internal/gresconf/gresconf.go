// Package gresconf tells from Slurm's own configuration whether the GPUs of a node may be given out in shards or by
// MPS: to its hooks a shard job looks like one with whole GPUs. It is pure: the texts are read by package stage.
//
//	slurm.conf   GresTypes=gpu,shard                   without shard and mps there are none
//	             NodeName=n[1-4] Gres=gpu:4,shard:16   what slurmctld gives out of a node
//	gres.conf    [NodeName=n1] Name=shard Count=16     may be left out: slurm.conf's count is spread over all GPUs
package gresconf

import (
	"fmt"
	"slices"
	"strings"
)

// MaxBytes is the longest file worth reading: that of a large cluster has some 100 KiB.
const MaxBytes = 1 << 20

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

// Parse answers for a node from the texts of slurm.conf and gres.conf; nil is a file that could not be read. Only
// slurm.conf can say no, because shards need no line in gres.conf.
func Parse(slurmConf, gresConf []byte, node string) Answer {
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
func fromGres(text []byte, node string) string {
	for _, l := range lines(text) {
		name, _ := l.get("Name")
		nodes, some := l.get("NodeName")
		if here, _ := contains(nodes, node); shared(name) && (here || !some) {
			return fmt.Sprintf("gres.conf line %d has Name=%s", l.number, name)
		}
	}
	return ""
}

// cluster is what slurm.conf says of shards at all and of one node.
type cluster struct {
	types, own *string // GresTypes; the node's Gres
	byDefault  string  // Gres of NodeName=DEFAULT, for the nodes below it
	doubt      string  // why the file may say more of the node than was read
}

// fromSlurm takes what stands there as it stands: Slurm refuses a second definition of a node and complains of a
// second GresTypes, in included files too.
func fromSlurm(text []byte, node string) Answer {
	if text == nil {
		return unknown("slurm.conf could not be read")
	}
	var c cluster
	for _, l := range lines(text) {
		c.read(l, node)
	}
	switch {
	case c.types != nil && !slices.ContainsFunc(names(*c.types), shared):
		return Answer{No, fmt.Sprintf("slurm.conf has GresTypes=%.80s", *c.types)}
	case c.own != nil && slices.ContainsFunc(names(*c.own), shared):
		return Answer{Yes, fmt.Sprintf("slurm.conf has Gres=%.80s", *c.own)}
	case c.own != nil:
		return Answer{No, fmt.Sprintf("slurm.conf has Gres=%.80s", *c.own)}
	case c.doubt != "":
		return unknown("%s", c.doubt)
	}
	return unknown("slurm.conf does not say what Gres this node has")
}

func (c *cluster) read(l line, node string) {
	if why := l.unreadable(); why != "" {
		c.doubt = "slurm.conf " + why
	}
	if types, ok := l.get("GresTypes"); ok {
		c.types = &types
	}
	nodes, ok := l.get("NodeName")
	gres, stated := l.get("Gres")
	here, known := contains(nodes, node)
	switch {
	case !ok:
	case strings.EqualFold(nodes, "DEFAULT"):
		if stated {
			c.byDefault = gres
		}
	case here && stated:
		c.own = &gres
	case here && c.doubt == "":
		gres = c.byDefault
		c.own = &gres
	case here, !known:
		c.doubt = fmt.Sprintf("slurm.conf line %d: what Gres %.80q has is not sure", l.number, nodes)
	}
}

// names are the resources of a list such as "gpu:h100:4(S:0-1),shard:16".
func names(list string) []string {
	var all []string
	for element := range strings.SplitSeq(list, ",") {
		if end := strings.IndexAny(element, ":(="); end >= 0 {
			element = element[:end]
		}
		all = append(all, strings.TrimSpace(element))
	}
	return all
}
