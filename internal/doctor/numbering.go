package doctor

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/gresconf"
	"bookend/internal/numbering"
	"bookend/internal/resolve"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

func gpuChecks() []Check {
	return []Check{
		onConf("gpu-count", areaGPUs, "slurm.conf gives out no more GPUs of this node (`Gres=gpu:N`) than the driver has", nil, judgeCount),
		onConf("gpu-files", areaGPUs, "gres.conf says which device each GPU is, by `File=` or `AutoDetect=`, so that jobs and hooks are told", nil, judgeFiles),
		{Name: "gpu-devices", Area: areaGPUs, Holds: "the device files that gres.conf names are there", Look: lookDevices, Judge: judgeDevices},
		onConf("gpu-order", areaGPUs, "what Slurm's GPU numbers mean is certain: `slurmd -G` tells, and the driver has each of the GPUs, or `nvidia.gpu_map` agrees with it", nil, judgeOrder),
		onConf("gpu-env", areaGPUs, "gres.conf keeps no variable from jobs and hooks that tells MIG instances apart (`Flags=no_gpu_env`)", nil, judgeEnv),
		onConf("gpu-shards", areaGPUs, "`slurm.shards` agrees with what slurm.conf and gres.conf say; where nobody can tell, nothing drains", nil, judgeShards),
	}
}

// gres is what Slurm's files say of this node's GPUs.
type gres struct {
	count  int // by slurm.conf; -1 where that is not told
	unsure string
	detect string
	files  []string // device files in the order of gres.conf
	noEnv  bool
	lines  int // of gres.conf, about this node's GPUs
}

func (s Site) gres() gres {
	v := s.Survey.Slurm
	node := v.Conf.Node(s.NodeName)
	g := gres{count: -1, unsure: node.Unsure}
	if node.Found && node.Unsure == "" {
		g.count, _, _ = gresconf.Count(node.Gres)
	}
	if v.Gres == nil {
		return g
	}
	for _, l := range v.Gres.Lines {
		nodes, some := l.Get("NodeName")
		if here, _ := slurmconf.Contains(nodes, s.NodeName); some && !here {
			continue
		}
		if detect, ok := l.Get("AutoDetect"); ok {
			g.detect = strings.ToLower(detect)
		}
		if name, _ := l.Get("Name"); !strings.EqualFold(name, "gpu") {
			continue
		}
		g.lines++
		if file, ok := l.Get("File"); ok {
			g.files = append(g.files, gresconf.DeviceFiles(file)...)
		}
		if file, ok := l.Get("MultipleFiles"); ok {
			g.files = append(g.files, gresconf.DeviceFiles(file)...)
		}
		flags, _ := l.Get("Flags")
		g.noEnv = g.noEnv || slurmconf.HasWord(flags, "no_gpu_env")
	}
	return g
}

// usableCards are those that a job can be given; known is false where the driver could not be looked at.
func (s Site) usableCards() (cards []gpu.Card, known bool) {
	d := s.Survey.Driver
	if d.Unknown != "" || d.Problem != "" {
		return nil, false
	}
	for _, c := range d.Cards {
		if !c.Excluded {
			cards = append(cards, c)
		}
	}
	return cards, true
}

// mig reports that a card gives out instances: Slurm then counts these.
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

func judgeCount(s Site, c slurmconf.Conf) []Result {
	const name = "gpu-count"
	g := s.gres()
	cards, known := s.usableCards()
	say := func(level Level, seen, why, fix string) []Result {
		return []Result{{name, level, c.Path, seen, why, fix}}
	}
	fix := fmt.Sprintf("Gres=gpu:%d   # in the NodeName= line of %s, in %s", len(cards), s.NodeName, c.Path)
	switch {
	case g.unsure != "":
		return say(Unknown, g.unsure, "which GPUs Slurm gives out here is written there", "make it readable")
	case g.count < 0:
		return well(name, c.Path, "no node %q: nothing to compare", s.NodeName)
	case !known:
		return say(Unknown, fmt.Sprintf("slurm.conf gives out %d; how many there are is not known", g.count), "", "nvidia-smi -L")
	case s.mig():
		return well(name, c.Path, "%d, and MIG is on: Slurm counts instances", g.count)
	case g.count > len(cards):
		return say(Wrong, fmt.Sprintf("slurm.conf gives out %d, the driver has %d", g.count, len(cards)), "jobs are given cards that are not there, or slurmd drains the node for it",
			"nvidia-smi -L   # which is missing? For good: "+fix)
	case g.count == 0:
		return say(Warning, fmt.Sprintf("slurm.conf gives out none, the driver has %d", len(cards)), "no job is given a card: hooks look at nothing", fix)
	case g.count < len(cards):
		return well(name, c.Path, "%d of the %d that the driver has: the rest is not looked at", g.count, len(cards))
	}
	return well(name, c.Path, "%d, as the driver", g.count)
}

func (s Site) gresPath() string {
	if g := s.Survey.Slurm.Gres; g != nil {
		return g.Path
	}
	return filepath.Join(filepath.Dir(s.conf()), "gres.conf")
}

func judgeFiles(s Site, _ slurmconf.Conf) []Result {
	const name = "gpu-files"
	g := s.gres()
	switch {
	case g.count <= 0:
		return well(name, s.gresPath(), "not needed: slurm.conf gives out no GPU here")
	case s.Survey.Slurm.Beside["gres.conf"] != "":
		return []Result{{name, Unknown, s.gresPath(), s.Survey.Slurm.Beside["gres.conf"], "which device each GPU is, is written there", "make it readable"}}
	case len(g.files) == 0 && (g.detect == "" || g.detect == "off"):
		return []Result{{name, Wrong, s.gresPath(), "no File= and no AutoDetect= for the GPUs of this node", "neither jobs nor hooks are told which cards a job has: no card is looked at, and jobs take each other's",
			"AutoDetect=nvml   # in " + s.gresPath() + "; where slurmd was built without NVML: Name=gpu File=/dev/nvidia[0-" + strconv.Itoa(max(0, g.count-1)) + "]"}}
	case len(g.files) == 0:
		return well(name, s.gresPath(), "AutoDetect=%s", g.detect)
	}
	return well(name, s.gresPath(), "%d device files", len(g.files))
}

func lookDevices(s Site) Look {
	if s.Survey.Slurm.Conf == nil {
		return Look{}
	}
	return Look{Place: "devices", Paths: s.gres().files, Kind: Other}
}

func judgeDevices(s Site, seen Seen) []Result {
	const name = "gpu-devices"
	if why := s.unread(); why != nil {
		why.Check = name
		return []Result{*why}
	}
	if seen.Unknown != "" {
		return []Result{{name, Unknown, s.gresPath(), "could not be looked at: " + seen.Unknown, "", "ls -l " + quoted(s.Config.Paths.Dev)}}
	}
	var gone []string
	for _, f := range seen.Files {
		if f.Missing || f.Error != "" || f.Kind != Other {
			gone = append(gone, path.Base(f.Path))
		}
	}
	switch {
	case len(gone) > 0:
		return []Result{{name, Wrong, s.gresPath(), "no device: " + strings.Join(gone[:min(len(gone), maxSaid)], ", "), "slurmd leaves such a card out without a gap: from it on its numbers and slurmctld's differ, and jobs get other cards than they were given",
			"nvidia-smi -L; nvidia-modprobe -c 0 -u   # makes the device files; then restart slurmd"}}
	case len(seen.Files) == 0:
		return well(name, s.gresPath(), "none is named there")
	}
	return well(name, s.gresPath(), "all %d are there", len(seen.Files))
}

func judgeOrder(s Site, _ slurmconf.Conf) []Result {
	const name = "gpu-order"
	const why = "hooks look at no GPU whose number is not certain (BKD-AMBIGUOUS)"
	g, n := s.gres(), s.Survey.Numbers
	cards, known := s.usableCards()
	own, at := s.Config.NVIDIA, s.ConfigPath
	fix := "slurmd -N " + s.NodeName + " -v -G   # lists Slurm's order. Restart slurmd if its configuration has changed since it started; or set gpu_order: map, with gpu_map"
	switch {
	case g.count == 0, g.count < 0 && g.unsure == "" && known && len(cards) == 0:
		return well(name, at, "not applicable: slurm.conf has no GPUs of this node")
	case known && len(cards) == 0:
		return []Result{{name, Unknown, at, "the driver shows 0 GPUs: none to compare with Slurm's", why, "nvidia-smi -L"}}
	case !known:
		return []Result{{name, Unknown, at, "the driver's cards are not known", why, "nvidia-smi -L"}}
	case s.mig() && own.GPUOrder == config.OrderMap:
		return well(name, at, "map, of MIG instances")
	case s.mig():
		return []Result{{name, Warning, at, "MIG is on, and nvidia.gpu_order is " + string(own.GPUOrder), "where Slurm gives numbers alone, instances are not known, and nothing is looked at",
			"nvidia.gpu_order: map, with nvidia.gpu_map; or AutoDetect=nvml in gres.conf, which gives ids"}}
	case own.GPUOrder != config.OrderMap && !n.Known():
		return []Result{{name, Wrong, at, cmp.Or(n.Why, "slurmd was not asked"), why, fix}}
	}
	var places []string
	for index := range g.count {
		found := resolve.Devices(slurm.Job{GPUIndexes: []int{index}}, s.Survey.Driver.Cards, own, n)
		switch slurms := resolve.Devices(slurm.Job{GPUIndexes: []int{index}}, s.Survey.Driver.Cards, config.NVIDIA{}, n); {
		case found.Unknown != "":
			return []Result{{name, Wrong, at, found.Unknown, why, fix}}
		case len(found.Devices) == 0:
			return []Result{{name, Wrong, at, fmt.Sprintf("Slurm's GPU %d is none that the driver has", index), "its jobs find BKD-MISSING", "nvidia-smi -L; take it out of gres.conf and slurm.conf, then restart slurmd"}}
		case len(slurms.Devices) == 1 && slurms.Devices[0].Device.BusID != found.Devices[0].Device.BusID:
			return []Result{{name, Wrong, at, fmt.Sprintf("nvidia.gpu_map takes number %d for %s, slurmd for %s", index, found.Devices[0].Device.BusID, slurms.Devices[0].Device.BusID),
				"hooks look at another GPU than the job's", "gpu_order: auto   # below nvidia: in bookend.yaml, without gpu_map"}}
		}
		places = append(places, fmt.Sprintf("%d is %s", index, found.Devices[0].Device.BusID))
	}
	if own.GPUOrder != config.OrderMap && n.Source == numbering.ByCount {
		return []Result{{name, Warning, at, fmt.Sprintf("%.160s; GPUs are counted, as slurm.conf and gres.conf give out all of them in one run", n.Why), "any other configuration is unknown",
			"slurmd: /usr/sbin/slurmd   # below slurm: in bookend.yaml, the running slurmd's program; " + fix}}
	}
	by := "slurmd -G"
	if own.GPUOrder == config.OrderMap {
		by = "nvidia.gpu_map"
	}
	return well(name, at, "%s: %s", by, strings.Join(places, ", "))
}

func judgeEnv(s Site, _ slurmconf.Conf) []Result {
	const name = "gpu-env"
	switch g := s.gres(); {
	case !g.noEnv:
		return well(name, s.gresPath(), "no no_gpu_env for this node's GPUs")
	case s.mig():
		return []Result{{name, Warning, s.gresPath(), "Flags=no_gpu_env, and MIG is on", "the ids of instances stand in CUDA_VISIBLE_DEVICES alone: without it nobody tells which instance a job has", "take no_gpu_env out of Flags= in " + s.gresPath()}}
	}
	return well(name, s.gresPath(), "Flags=no_gpu_env: hooks go by SLURM_JOB_GPUS")
}

func judgeShards(s Site, c slurmconf.Conf) []Result {
	const name = "gpu-shards"
	v := s.Survey.Slurm
	answer := gresconf.Parse(v.Conf, v.Gres, s.NodeName)
	said := s.Config.Slurm.Shards
	say := func(level Level, seen, why, fix string) []Result {
		return []Result{{name, level, c.Path, seen, why, fix}}
	}
	const none = "nothing found on a card drains, and none is tested by an allocation"
	switch {
	case said == config.ShardsNo && answer.Shared == gresconf.Yes:
		return say(Wrong, answer.Why+", but slurm.shards is no", "a job with a part of a card would be blamed, and the node drained, for what another has on it by right", "shards: auto   # below slurm: in bookend.yaml")
	case said == config.ShardsYes && answer.Shared == gresconf.No:
		return say(Warning, answer.Why+", but slurm.shards is yes", none, "shards: auto   # below slurm: in bookend.yaml")
	case said == config.ShardsAuto && answer.Shared == gresconf.Unknown:
		return say(Warning, "whether GPUs are given out in parts is not known: "+answer.Why, none, "shards: no   # below slurm: in bookend.yaml, where there are none")
	case answer.Shared == gresconf.Yes || said == config.ShardsYes:
		return well(name, c.Path, "GPUs are given out in parts: %s", none)
	}
	return well(name, c.Path, "none: %s", answer.Why)
}
