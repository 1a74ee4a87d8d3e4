package gresconf

import (
	"errors"
	"fmt"
	"strings"

	"bookend/internal/slurmconf"
)

// Run is how the configuration gives out a node's GPUs where that needs no counting: one untyped run of all of them.
type Run struct {
	Count int
	// GPUs are the device files in Slurm's order; none where AutoDetect finds them.
	GPUs []GPU
	// Detect is the lower-case value of AutoDetect, "nvml" or "nvidia".
	Detect string
}

// Simple reads the run of a node's GPUs from slurm.conf and gres.conf, or says why the files do not describe one untyped
// run: Slurm then orders GPUs by rules of its own.
func Simple(slurmConf, gresConf *slurmconf.Conf, node string) (Run, error) {
	if slurmConf == nil || gresConf == nil {
		return Run{}, errors.New("slurm.conf or gres.conf could not be read")
	}
	own := slurmConf.Node(node)
	switch doubt := gresConf.Doubt(); {
	case own.Unsure != "":
		return Run{}, errors.New(own.Unsure)
	case !own.Found:
		return Run{}, fmt.Errorf("slurm.conf does not name node %q", node)
	case doubt != "":
		return Run{}, errors.New(doubt)
	}
	count, kinds, typed := Count(own.Gres)
	if kinds != 1 || typed {
		return Run{}, fmt.Errorf("slurm.conf has Gres=%.80s, which is not one untyped run of GPUs", own.Gres)
	}
	return runOf(*gresConf, node, count)
}

func runOf(conf slurmconf.Conf, node string, count int) (Run, error) {
	run := Run{Count: count}
	lines := 0
	for _, l := range conf.Lines {
		nodes, some := l.Get("NodeName")
		here, known := slurmconf.Contains(nodes, node)
		if some && !known {
			return Run{}, fmt.Errorf("%s: the node list %.80q is not understood", l.Where(), nodes)
		}
		if some && !here {
			continue
		}
		if detect, ok := l.Get("AutoDetect"); ok {
			run.Detect = strings.TrimSuffix(strings.ToLower(detect), "off")
		}
		if name, _ := l.Get("Name"); !strings.EqualFold(name, "gpu") {
			continue
		}
		lines++
		if err := run.add(l); err != nil {
			return Run{}, err
		}
	}
	switch {
	case lines == 1 && run.Detect == "" && len(run.GPUs) == count:
		return run, nil
	case lines == 0 && (run.Detect == "nvml" || run.Detect == "nvidia"):
		return run, nil
	}
	return Run{}, fmt.Errorf("gres.conf does not describe %d GPUs in one line of device files, or by AutoDetect=nvml or nvidia alone", count)
}

func (r *Run) add(l slurmconf.Line) error {
	if _, typed := l.Get("Type"); typed {
		return fmt.Errorf("%s names a type of GPU", l.Where())
	}
	list, _ := l.Get("File")
	files := DeviceFiles(list)
	gpus, err := gpusOf(files, len(files))
	if err != nil {
		return err
	}
	r.GPUs = append(r.GPUs, gpus...)
	return nil
}
