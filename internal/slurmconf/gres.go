package slurmconf

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"bookend/internal/slurm"
)

// GPU is one GPU as Slurm counts it: its device files, of which a part of a GPU (MIG) has several.
type GPU []string

// Gres is what gres.conf says of one node's GPUs.
type Gres struct {
	// Detect is the lower-case value of AutoDetect, "nvml" or "nvidia"; empty for none.
	Detect string
	// GPUs are the lines that have GPUs.
	GPUs []Line
	// Unsure is why there may be more, or less; empty if there is not.
	Unsure string
}

// Gres reads gres.conf for a node.
func (c Conf) Gres(node string) (g Gres) {
	g.Unsure = c.Doubt()
	for _, l := range c.Lines {
		nodes, some := l.Get("NodeName")
		here, known := Contains(nodes, node)
		if some && !known {
			g.Unsure = fmt.Sprintf("%s: the node list %.80q is not understood", l.Where(), nodes)
		}
		if some && !here {
			continue
		}
		if detect, ok := l.Get("AutoDetect"); ok {
			g.Detect = strings.TrimSuffix(strings.ToLower(detect), "off")
		}
		if name, _ := l.Get("Name"); strings.EqualFold(name, "gpu") {
			g.GPUs = append(g.GPUs, l)
		}
	}
	return g
}

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

// Count counts the GPUs of a node's Gres in slurm.conf, such as "gpu:h100:4(S:0-1),gpu:2,shard:8". plain says that one
// element names them, and no type.
func Count(list string) (n int, plain bool) {
	kinds, typed := 0, false
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
		typed = typed || len(parts) > 2 || len(parts) == 2 && err != nil
		n, kinds = n+count, kinds+1
	}
	return n, kinds == 1 && !typed
}

// Counted is what the files say by themselves of a node's GPUs: only where they are one untyped line of device files.
// Otherwise Slurm orders GPUs by rules of its own. nil is a file that could not be read.
func Counted(slurmConf, gresConf *Conf, node string) List {
	if slurmConf == nil || gresConf == nil {
		return Unclear("slurm.conf or gres.conf could not be read")
	}
	own, gres := slurmConf.Node(node), gresConf.Gres(node)
	unsure := cmp.Or(own.Unsure, gres.Unsure)
	if count, plain := Count(own.Gres); plain && unsure == "" && len(gres.GPUs) == 1 && gres.Detect == "" {
		_, typed := gres.GPUs[0].Get("Type")
		files, _ := gres.GPUs[0].Get("File")
		list := List{Source: ByCount}
		for _, file := range DeviceFiles(files) {
			list.GPUs = append(list.GPUs, GPU{file})
		}
		if !typed && len(list.GPUs) == count {
			return list
		}
	}
	return Unclear("%s", cmp.Or(unsure, "slurm.conf and gres.conf do not have all GPUs of this node in one "+
		"untyped line of device files, without AutoDetect"))
}

// Shared is an answer to whether GPUs may be given out in parts.
type Shared string

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

// SharedGPUs tells from slurm.conf whether the GPUs of a node may be given out in shards or by MPS: to its hooks a
// shard job looks like one with whole GPUs. nil is a file that could not be read. Slurm refuses a second definition of
// a node and complains of a second GresTypes, in included files too. What gres.conf lists is not given out for that
// alone:
//
//	GresTypes=gpu,shard                   without shard and mps there are none
//	NodeName=n[1-4] Gres=gpu:4,shard:16   what slurmctld gives out of a node
func SharedGPUs(conf *Conf, node string) Answer {
	if conf == nil {
		return Answer{Unknown, "slurm.conf could not be read"}
	}
	types, stated := conf.Get("GresTypes")
	own := conf.Node(node)
	why := fmt.Sprintf("slurm.conf has Gres=%.80s", own.Gres)
	switch {
	case stated && !HasWord(types.Text, "shard") && !HasWord(types.Text, "mps"):
		return Answer{No, fmt.Sprintf("slurm.conf has GresTypes=%.80s", types.Text)}
	case own.Unsure != "":
		return Answer{Unknown, own.Unsure}
	case !own.Found:
		return Answer{Unknown, "slurm.conf does not say what Gres this node has"}
	case HasWord(own.Gres, "shard") || HasWord(own.Gres, "mps"):
		return Answer{Yes, why}
	}
	return Answer{No, why}
}
