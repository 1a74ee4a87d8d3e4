package doctor

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/gresconf"
	"bookend/internal/resolve"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

func gpuChecks() []Check {
	return []Check{
		onConf("gpu-count", areaGPUs, "slurm.conf gives out as many GPUs of this node (`Gres=gpu:N`) as the driver has", nil, judgeCount),
		onConf("gpu-files", areaGPUs, "gres.conf says which device each GPU is, by `File=` or `AutoDetect=`, so that jobs and hooks are told", nil, judgeFiles),
		{Name: "gpu-devices", Area: areaGPUs, Holds: "the device files that gres.conf names are there", Look: lookDevices, Judge: judgeDevices},
		onConf("gpu-order", areaGPUs, "`nvidia.gpu_order` counts cards as Slurm does", nil, judgeOrder),
		onConf("gpu-env", areaGPUs, "gres.conf keeps no variable from jobs and hooks that tells MIG instances apart (`Flags=no_gpu_env`)", nil, judgeEnv),
		onConf("gpu-shards", areaGPUs, "`slurm.shards` agrees with what slurm.conf and gres.conf say; where nobody can tell, nothing drains", nil, judgeShards),
	}
}

// gres is what Slurm's files say of this node's GPUs.
type gres struct {
	count  int // by slurm.conf; -1 where that is not told
	unsure string
	types  int // how many kinds of GPU slurm.conf names
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
		g.count, g.types = gpusOf(node.Gres)
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
			g.files = append(g.files, deviceFiles(file)...)
		}
		if file, ok := l.Get("MultipleFiles"); ok {
			g.files = append(g.files, deviceFiles(file)...)
		}
		flags, _ := l.Get("Flags")
		g.noEnv = g.noEnv || slurmconf.HasWord(flags, "no_gpu_env")
	}
	return g
}

// gpusOf counts the GPUs of a list such as "gpu:h100:4(S:0-1),gpu:2,shard:8", and their kinds.
func gpusOf(list string) (n, kinds int) {
	depth := 0
	elements := strings.FieldsFunc(list, func(c rune) bool {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		return c == ',' && depth == 0
	})
	for _, e := range elements {
		e, _, _ = strings.Cut(strings.TrimSpace(e), "(")
		parts := strings.Split(e, ":")
		if !strings.EqualFold(parts[0], "gpu") {
			continue
		}
		kinds++
		count, err := strconv.Atoi(parts[len(parts)-1])
		if err != nil || len(parts) == 1 {
			count = 1
		}
		n += count
	}
	return n, kinds
}

// deviceFiles writes out "/dev/nvidia[0-3,5],/dev/nvidia8". What it does not understand it leaves as it stands.
func deviceFiles(list string) (all []string) {
	for _, element := range slurmconf.Elements(list) {
		all = append(all, writtenOut(element)...)
	}
	return all
}

func writtenOut(element string) (all []string) {
	before, rest, ok := strings.Cut(element, "[")
	ranges, after, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return []string{element}
	}
	for part := range strings.SplitSeq(ranges, ",") {
		low, high, is := strings.Cut(part, "-")
		if !is {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 16)
		to, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || from > to || to > maxMinor {
			return []string{element}
		}
		for n := from; n <= to; n++ {
			all = append(all, fmt.Sprintf("%s%d%s", before, n, after))
		}
	}
	return all
}

const maxMinor = 255

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
	case g.count < len(cards) && s.Config.NVIDIA.GPUOrder != config.OrderMap:
		return say(Wrong, fmt.Sprintf("slurm.conf gives out %d, the driver has %d", g.count, len(cards)), "Slurm's numbers skip cards that Bookend counts: another card than the job's may be looked at",
			"nvidia.gpu_order: map, with nvidia.gpu_map; or "+fix)
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

// slurmsOrder is what Slurm's GPU numbers mean: the minors in their order. why says why that cannot be told.
func (s Site) slurmsOrder(g gres, cards []gpu.Card) (minors []int, by, why string) {
	sorted := slices.Clone(cards)
	byMinor := func(a, b gpu.Card) int { return *a.Device.Minor - *b.Device.Minor }
	for _, c := range cards {
		if c.Device.Minor == nil {
			return nil, "", fmt.Sprintf("the minor of card %s is not known", c.Device.BusID)
		}
	}
	switch g.detect {
	case "nvml":
		slices.SortFunc(sorted, func(a, b gpu.Card) int { return strings.Compare(string(a.Device.BusID), string(b.Device.BusID)) })
		by = "AutoDetect=nvml counts by PCI address"
	case "nvidia":
		slices.SortFunc(sorted, byMinor)
		by = "AutoDetect=nvidia counts by minor"
	case "", "off":
		if g.types > 1 {
			return nil, "", "slurm.conf names several kinds of GPU: their order may differ from that of gres.conf"
		}
		number := regexp.MustCompile(`(\d+)$`)
		for _, f := range g.files {
			n, err := strconv.Atoi(number.FindString(f))
			if err != nil {
				return nil, "", fmt.Sprintf("%.80q has no number", f)
			}
			minors = append(minors, n)
		}
		return minors, "gres.conf counts as its lines stand", ""
	default:
		return nil, "", "AutoDetect=" + g.detect + " is not known here"
	}
	for _, c := range sorted {
		minors = append(minors, *c.Device.Minor)
	}
	return minors, by, ""
}

func judgeOrder(s Site, _ slurmconf.Conf) []Result {
	const name = "gpu-order"
	const why = "a hook is told numbers; counted otherwise than Slurm counts, it looks at another job's card"
	g := s.gres()
	cards, known := s.usableCards()
	order, at := s.Config.NVIDIA.GPUOrder, s.ConfigPath
	switch {
	case g.count == 0 || known && len(cards) == 0:
		return well(name, at, "no GPUs: nothing is counted")
	case !known:
		return []Result{{name, Unknown, at, "the driver's cards are not known", why, "slurmd -G; nvidia-smi -L"}}
	case s.mig():
		if order == config.OrderMap {
			return well(name, at, "map, of MIG instances")
		}
		return []Result{{name, Warning, at, "MIG is on, and nvidia.gpu_order is " + string(order), "Slurm counts instances; where it gives numbers alone they are not known, and nothing is looked at", "nvidia.gpu_order: map, with nvidia.gpu_map; or AutoDetect=nvml in gres.conf, which gives ids"}}
	}
	slurms, by, doubt := s.slurmsOrder(g, cards)
	if doubt != "" {
		return []Result{{name, Unknown, at, doubt, why, "slurmd -G   # shows Slurm's order; nvidia.gpu_order and nvidia.gpu_map can say it"}}
	}
	for index, minor := range slurms {
		found := resolve.Devices(slurm.Job{GPUIndexes: []int{index}}, s.Survey.Driver.Cards, order, s.Config.NVIDIA.GPUMap)
		switch {
		case found.Unknown != "":
			return []Result{{name, Wrong, at, fmt.Sprintf("%s; %s", by, found.Unknown), "no card is looked at where its number is not sure", orderFix(slurms, cards)}}
		case len(found.Devices) == 0:
			return []Result{{name, Wrong, at, fmt.Sprintf("%s; nvidia.gpu_order: %s finds no card for number %d", by, order, index), why, orderFix(slurms, cards)}}
		case found.Devices[0].Device.Minor == nil || *found.Devices[0].Device.Minor != minor:
			return []Result{{name, Wrong, at, fmt.Sprintf("%s: number %d is nvidia%d; nvidia.gpu_order: %s takes it for card %s", by, index, minor, order, found.Devices[0].Device.BusID), why, orderFix(slurms, cards)}}
		}
	}
	return well(name, at, "nvidia.gpu_order: %s; %s", order, by)
}

// orderFix is the line of bookend.yaml that counts as Slurm does.
func orderFix(slurms []int, cards []gpu.Card) string {
	for _, o := range []config.GPUOrder{config.OrderPCI, config.OrderMinor} {
		same := true
		for index, minor := range slurms {
			found := resolve.Devices(slurm.Job{GPUIndexes: []int{index}}, cards, o, nil)
			same = same && len(found.Devices) == 1 && found.Devices[0].Device.Minor != nil && *found.Devices[0].Device.Minor == minor
		}
		if same {
			return fmt.Sprintf("gpu_order: %s   # below nvidia: in bookend.yaml", o)
		}
	}
	var pairs []string
	for index, minor := range slurms {
		for _, c := range cards {
			if c.Device.Minor != nil && *c.Device.Minor == minor {
				pairs = append(pairs, fmt.Sprintf("%d: %q", index, c.Device.BusID))
			}
		}
	}
	return "gpu_order: map\ngpu_map: {" + strings.Join(pairs, ", ") + "}   # below nvidia: in bookend.yaml"
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
