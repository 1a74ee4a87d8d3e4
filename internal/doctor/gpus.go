package doctor

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

const areaGPUs = "Which GPU is which"

func gpuChecks() []Check {
	return []Check{
		{
			Name: "gpu-count", Area: areaGPUs, needsConf: true, path: slurmConfPath, judge: judgeCount,
			Holds: "slurm.conf gives out no more GPUs of this node (`Gres=gpu:N`) than the driver has",
			why:   "jobs are given GPUs that do not exist, or slurmd drains the node for it",
		},
		{
			Name: "gpu-devices", Area: areaGPUs, needsConf: true, path: besideConf("gres.conf"), judge: judgeDevices,
			looks: func(s Site) []Look { return []Look{{Paths: s.gres().files, Kind: Other}} },
			Holds: "gres.conf says which device each GPU is, by `File=` or `AutoDetect=`, and the device files exist",
			why: "slurmd leaves such a GPU out without a gap: from it on its numbers and slurmctld's differ, and " +
				"jobs get other GPUs than they were given",
		},
		{
			Name: "gpu-order", Area: areaGPUs, needsConf: true, path: configPath, judge: judgeOrder,
			Holds: "what Slurm's GPU numbers mean is certain: `slurmd -G` tells, and the driver has each of the " +
				"GPUs, or `nvidia.gpu_map` agrees with it",
			why: "hooks look at no GPU whose number is not certain (BKD-AMBIGUOUS)",
		},
		{
			Name: "gpu-shards", Area: areaGPUs, needsConf: true, path: slurmConfPath, judge: judgeShards,
			Holds: "`slurm.shards` agrees with what slurm.conf and gres.conf say; if that is not certain, nothing " +
				"drains",
			why: "nothing found on a GPU drains, and none is tested by an allocation",
		},
	}
}

// gres is what Slurm's files say of this node's GPUs.
type gres struct {
	count  int // by slurm.conf; -1 if that is not told
	unsure string
	detect string
	files  []string // device files in the order of gres.conf
}

func (s Site) gres() gres {
	v := s.Survey.Slurm
	node := v.Conf.Node(s.NodeName)
	g := gres{count: -1, unsure: node.Unsure}
	if node.Found && node.Unsure == "" {
		g.count, _, _ = slurmconf.Count(node.Gres)
	}
	if v.Gres == nil {
		return g
	}
	on := v.Gres.Gres(s.NodeName)
	g.detect = on.Detect
	for _, l := range on.GPUs {
		file, _ := l.Get("File")
		several, _ := l.Get("MultipleFiles")
		g.files = append(g.files, slurmconf.DeviceFiles(cmp.Or(file, several))...)
	}
	return g
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

func judgeCount(v *view) string {
	g := v.gres()
	cards, known := v.usableCards()
	fix := fmt.Sprintf("Gres=gpu:%d   # in the NodeName= line of %s, in %s", len(cards), v.NodeName, v.path)
	switch {
	case g.unsure != "":
		v.unknown(g.unsure, "make it readable")
	case g.count < 0:
		return fmt.Sprintf("no node %q: nothing to compare", v.NodeName)
	case !known:
		v.unknown(fmt.Sprintf("slurm.conf gives out %d; how many there are is not known", g.count), "nvidia-smi -L")
	case v.mig():
		return fmt.Sprintf("%d, and MIG is on: Slurm counts instances", g.count)
	case g.count > len(cards):
		v.wrong(fmt.Sprintf("slurm.conf gives out %d, the driver has %d", g.count, len(cards)),
			"nvidia-smi -L   # which is missing? For good: "+fix)
	case g.count == 0 && len(cards) > 0:
		v.warn(fmt.Sprintf("slurm.conf gives out none, the driver has %d", len(cards)), fix).
			because("no job is given a GPU: hooks look at nothing")
	}
	return fmt.Sprintf("%d of the %d that the driver has", g.count, len(cards))
}

func judgeDevices(v *view) string {
	g := v.gres()
	switch {
	case g.count <= 0:
		return "not needed: slurm.conf gives out no GPU here"
	case v.Survey.Slurm.Beside != "":
		v.unknown(notJudged, "")
		return ""
	case len(g.files) == 0 && g.detect == "":
		v.wrong("no File= and no AutoDetect= for the GPUs of this node", "AutoDetect=nvml   # in "+v.path+
			"; if slurmd was built without NVML: Name=gpu File=/dev/nvidia[0-"+strconv.Itoa(g.count-1)+"]").
			because("jobs and hooks are not told which GPUs a job has: none is looked at, and jobs take each other's")
		return ""
	}
	var gone []string
	for _, f := range v.seen[0].Files {
		if f.Missing || f.Error != "" || f.Kind != Other {
			gone = append(gone, path.Base(f.Path))
		}
	}
	if len(gone) > 0 {
		v.wrong("no device: "+strings.Join(gone, ", "),
			"nvidia-smi -L; nvidia-modprobe -c 0 -u   # makes the device files; then restart slurmd")
	}
	return fmt.Sprintf("%d device files, AutoDetect=%s", len(g.files), cmp.Or(g.detect, "off"))
}

func judgeOrder(v *view) string {
	g, n := v.gres(), v.Survey.Numbers
	cards, known := v.usableCards()
	byMap := len(v.Config.NVIDIA.GPUMap) > 0
	switch {
	case g.count == 0, g.count < 0 && g.unsure == "":
		return "not applicable: slurm.conf has no GPUs of this node"
	case !known || len(cards) == 0:
		v.unknown("the driver shows 0 GPUs: none to compare with Slurm's", "nvidia-smi -L")
		return ""
	case v.mig() && byMap:
		return "map, of MIG instances"
	case v.mig():
		v.warn("MIG is on, and there is no nvidia.gpu_map",
			"nvidia.gpu_map; or AutoDetect=nvml in gres.conf, which gives ids").
			because("if Slurm gives numbers alone, instances are not known")
		return ""
	case !byMap && !n.Known():
		v.wrong(cmp.Or(n.Why, "slurmd was not asked"), v.orderFix())
		return ""
	}
	places := v.places(g.count)
	if !byMap && n.Source == slurmconf.ByCount {
		const program = "slurmd: /usr/sbin/slurmd   # below slurm: in bookend.yaml, the running slurmd's program; "
		v.warn(fmt.Sprintf("%.160s; GPUs are counted, as slurm.conf and gres.conf give out all of them in one run",
			n.Why), program+v.orderFix()).because("any other configuration is unknown")
	}
	by := "slurmd -G"
	if byMap {
		by = "nvidia.gpu_map"
	}
	return by + ": " + strings.Join(places, ", ")
}

func (v *view) orderFix() string {
	return "slurmd -N " + v.NodeName + " -v -G   # lists Slurm's order. Restart slurmd if its configuration has " +
		"changed since it started; or set nvidia.gpu_map"
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
