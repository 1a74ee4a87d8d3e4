package doctor

import (
	"cmp"
	"fmt"
	"strings"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

func gpuChecks() []Check {
	return []Check{
		{
			Name: "gpu-order", needsConf: true, path: besideConf("gres.conf"), judge: judgeOrder,
			why: "hooks look at no GPU whose number is not certain (BKD-AMBIGUOUS)",
		},
		{
			Name: "gpu-shards", needsConf: true, path: slurmConfPath, judge: judgeShards,
			why: "nothing found on a GPU drains, and none is tested by an allocation",
		},
	}
}

// given is how many GPUs of this node slurm.conf gives out; unsure is why that is not known, -1 that it has no such
// node.
func (s Site) given() (count int, unsure string) {
	if s.Survey.Slurm.Conf == nil {
		return -1, ""
	}
	node := s.Survey.Slurm.Conf.Node(s.NodeName)
	if !node.Found || node.Unsure != "" {
		return -1, node.Unsure
	}
	count, _ = slurmconf.Count(node.Gres)
	return count, ""
}

// usableCards are those that a job can be given; known is false if the driver could not be looked at.
func (s Site) usableCards() (cards []gpu.Card, known bool) {
	d := s.Survey.Driver
	for _, c := range d.Cards {
		if !c.Excluded {
			cards = append(cards, c)
		}
	}
	return cards, d.Unknown == "" && d.Problem == ""
}

// mig reports that a GPU gives out instances: Slurm then counts these.
func (s Site) mig() bool {
	for _, snap := range s.Survey.Backend.Answer.Snapshots {
		for _, r := range snap.Readings {
			if r.Device.Parent != "" || r.NVIDIA != nil && r.NVIDIA.MIGMode != nil && *r.NVIDIA.MIGMode {
				return true
			}
		}
	}
	return false
}

func judgeOrder(v *view) string {
	count, unsure := v.given()
	n := v.Survey.Numbers
	cards, known := v.usableCards()
	byMap := len(v.Config.NVIDIA.GPUMap) > 0
	switch {
	case count == 0 && len(cards) > 0:
		v.warn(fmt.Sprintf("slurm.conf gives out none, the driver has %d", len(cards)), fmt.Sprintf(
			"Gres=gpu:%d   # in the NodeName= line of %s", len(cards), v.NodeName)).
			because("no job is given a GPU: hooks look at nothing")
	case count <= 0 && unsure == "":
		return "not applicable: slurm.conf has no GPUs of this node"
	case !known || len(cards) == 0:
		v.unknown("the driver shows 0 GPUs: none to compare with Slurm's", "nvidia-smi -L")
	case count > len(cards) && !v.mig():
		v.wrong(fmt.Sprintf("slurm.conf gives out %d, the driver has %d", count, len(cards)),
			"nvidia-smi -L   # which is missing?").
			because("jobs are given GPUs that do not exist, or slurmd drains the node for it")
	case v.mig() && byMap:
		return "map, of MIG instances"
	case v.mig():
		v.warn("MIG is on, and there is no nvidia.gpu_map", "nvidia.gpu_map; or AutoDetect=nvml in gres.conf, "+
			"which gives ids").
			because("if Slurm gives numbers alone, instances are not known")
	case !byMap && !n.Known():
		v.wrong(cmp.Or(n.Why, "slurmd was not asked"), v.orderFix())
	default:
		places := v.places(count)
		by := "slurmd -G"
		if byMap {
			by = "nvidia.gpu_map"
		} else if n.Source == slurmconf.ByCount {
			by = "counted, as slurmd does not tell"
		}
		return by + ": " + strings.Join(places, ", ")
	}
	return ""
}

func (v *view) orderFix() string {
	return "slurmd -N " + v.NodeName + " -v -G   # lists Slurm's order. Restart slurmd if its configuration has " +
		"changed since it started; or set nvidia.gpu_map; slurm.slurmd can say where slurmd is"
}

// places are what Slurm's numbers mean, as hooks go by them, and as Slurm does.
func (v *view) places(count int) (places []string) {
	cards, n := v.Survey.Driver.Cards, v.Survey.Numbers
	for index := range count {
		job := slurm.Job{GPUIndexes: []int{index}}
		found := slurmconf.Devices(job, cards, v.Config.NVIDIA, n)
		slurms := slurmconf.Devices(job, cards, config.NVIDIA{}, n)
		switch {
		case found.Unknown != "":
			v.wrong(found.Unknown, v.orderFix())
			return nil
		case len(found.Devices) == 0:
			v.wrong(fmt.Sprintf("Slurm's GPU %d is none that the driver has", index),
				"nvidia-smi -L; take it out of gres.conf and slurm.conf, then restart slurmd").
				because("its jobs find BKD-MISSING")
			return nil
		}
		bus := found.Devices[0].Device.BusID
		if len(slurms.Devices) == 1 && slurms.Devices[0].Device.BusID != bus {
			v.wrong(fmt.Sprintf("nvidia.gpu_map takes number %d for %s, slurmd for %s", index, bus,
				slurms.Devices[0].Device.BusID), "gpu_map: {}   # below nvidia: in bookend.yaml").
				because("hooks look at another GPU than the job's")
			return nil
		}
		places = append(places, fmt.Sprintf("%d is %s", index, bus))
	}
	return places
}

func judgeShards(v *view) string {
	s := v.Survey.Slurm
	answer, said := slurmconf.SharedGPUs(s.Conf, s.Gres, v.NodeName), v.Config.Slurm.Shards
	const auto = "shards: auto   # below slurm: in bookend.yaml"
	switch {
	case said == config.ShardsNo && answer.Shared == slurmconf.Yes:
		v.wrong(answer.Why+", but slurm.shards is no", auto).
			because("a job with a part of a GPU would be blamed, and the node drained, for what another job has on it")
	case said == config.ShardsYes && answer.Shared == slurmconf.No:
		v.warn(answer.Why+", but slurm.shards is yes", auto)
	case said == config.ShardsAuto && answer.Shared == slurmconf.Unknown:
		v.warn("whether GPUs are given out in parts is not known: "+answer.Why,
			"shards: no   # below slurm: in bookend.yaml")
	case answer.Shared == slurmconf.Yes || said == config.ShardsYes:
		return "GPUs are given out in parts: " + v.check.why
	}
	return "none: " + answer.Why
}
