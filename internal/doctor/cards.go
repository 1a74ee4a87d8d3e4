package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
)

func cardChecks() []Check {
	return []Check{
		{Name: "driver", Area: areaCards, Holds: "NVIDIA's driver is loaded where Slurm gives out GPUs, of version 510 or later, and none whose process lists are broken (535.43 to 535.97)", Look: lookNowhere, Judge: judgeDriver},
		{Name: "driver-library", Area: areaCards, Holds: "NVML's and CUDA's libraries are of the version of the loaded kernel module", Look: lookNowhere, Judge: judgeLibraries},
		{Name: "cards", Area: areaCards, Holds: "every NVIDIA card on the PCI bus is the driver's, and can be read", Look: lookNowhere, Judge: judgeCards},
		{Name: "backend-answer", Area: areaCards, Holds: "the backend asks the driver, as root, and has its answer in less than half of `deadlines.prolog.driver`", Look: lookNowhere, Judge: judgeBackend},
		{Name: "persistence", Area: areaCards, Holds: "persistence mode is on, so that the driver keeps idle cards awake", Look: lookNowhere, Judge: judgePersistence},
		{Name: "compute-mode", Area: areaCards, Holds: "cards are in compute mode DEFAULT", Look: lookNowhere, Judge: judgeComputeMode},
		{Name: "mig", Area: areaCards, Holds: "no card is in MIG mode, as instances are judged less", Look: lookNowhere, Judge: judgeMIG},
		{Name: "driver-open", Area: areaCards, Holds: "only jobs and systemd services keep the GPU driver open: GPU memory without a listed process may belong to any other process that does, and then does not drain the node", Look: lookNowhere, Judge: judgeOpen},
		{Name: "accounting", Area: areaCards, Holds: "the driver's accounting can do what `nvidia.accounting` asks", Look: lookNowhere, Judge: judgeAccounting},
	}
}

const driverPath = "nvidia"

// notTold is said of each thing about which the driver, or the backend, gave no answer: Print says it once.
const notTold = "the driver did not tell"

func judgeDriver(s Site, _ Seen) []Result {
	const name = "driver"
	d := s.Survey.Driver
	gives := 0
	if s.Survey.Slurm.Conf != nil {
		gives = s.gres().count
	}
	say := func(level Level, seen, why, fix string) []Result {
		return []Result{{name, level, driverPath, seen, why, fix}}
	}
	const without = "no GPU is looked at"
	switch branch, release := driverVersion(d.Version); {
	case d.Unknown != "":
		return say(Unknown, "its files in /proc do not answer: "+d.Unknown, "the driver itself may hang", "dmesg | grep -i nvrm")
	case d.Absent && gives > 0:
		return say(Wrong, fmt.Sprintf("not loaded, but slurm.conf gives out %d GPUs here", gives), "jobs get cards that do not work: each hook finds BKD-NODRIVER", "modprobe nvidia && nvidia-smi -L")
	case d.Absent && gives == 0 && s.Survey.Slurm.Conf != nil && s.Survey.Slurm.Conf.Node(s.NodeName).Found:
		return well(name, driverPath, "not loaded, and slurm.conf gives out no GPU here")
	case d.Absent:
		return say(Warning, "not loaded", without, "modprobe nvidia && nvidia-smi -L   # on a node with GPUs")
	case d.Problem != "":
		return say(Wrong, d.Problem, without, "nvidia-smi -L; dmesg | grep -i nvrm")
	case d.Version == "":
		return say(Unknown, "does not tell its version", "what it tells of memory and processes depends on it", "cat /sys/module/nvidia/version")
	case branch < 510:
		return say(Warning, d.Version, "older than 510: it tells memory that it keeps itself as used, and some calls are missing", "install a driver of a branch that still gets fixes")
	case branch == 535 && release >= 43 && release < 98:
		return say(Warning, d.Version, "535.43 to 535.97 write process lists that cannot be read: who is on a card is unknown", "install 535.98 or later")
	}
	return well(name, driverPath, "%s, %d %s", d.Version, len(d.Cards), plural("card", len(d.Cards)))
}

// driverVersion are the first two numbers of "580.159.04".
func driverVersion(text string) (branch, release int) {
	parts := strings.Split(text, ".")
	branch, _ = strconv.Atoi(parts[0])
	if len(parts) > 1 {
		release, _ = strconv.Atoi(parts[1])
	}
	return branch, release
}

func judgeLibraries(s Site, _ Seen) []Result {
	const name = "driver-library"
	d := s.Survey.Driver
	if d.Version == "" {
		return well(name, driverPath, "nothing to compare: the module's version is not known")
	}
	var bad []Result
	for _, l := range [][2]string{{"libnvidia-ml.so.1", d.NVML}, {"libcuda.so.1", d.CUDA}} {
		if l[1] != "" && l[1] != d.Version {
			bad = append(bad, Result{name, Wrong, l[0], fmt.Sprintf("%s, the loaded module is %s", l[1], d.Version), "the driver refuses a library of another version (BKD-MISMATCH): no GPU is looked at, and no job can use one",
				"reboot   # or, once nobody uses a card: rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia"})
		}
	}
	if len(bad) > 0 {
		return bad
	}
	if d.NVML == "" {
		return well(name, driverPath, "the names of the libraries do not tell their version; the module is %s", d.Version)
	}
	return well(name, driverPath, "%s, as the module", d.NVML)
}

func judgeCards(s Site, _ Seen) []Result {
	const name = "cards"
	d := s.Survey.Driver
	if d.Unknown != "" || d.Problem != "" {
		return []Result{{name, Unknown, driverPath, "the driver's cards are not known", "", "nvidia-smi -L"}}
	}
	var bad []Result
	excluded, highest := 0, -1
	for _, c := range d.Cards {
		switch {
		case c.Unknown != "":
			bad = append(bad, Result{name, Wrong, string(c.Device.BusID), "cannot be read: " + c.Unknown, "which numbers Slurm gives the others is then not sure: no card is looked at", "nvidia-smi -L; dmesg | grep -i xid"})
		case c.Excluded:
			excluded++
		case c.Device.Minor != nil:
			highest = max(highest, *c.Device.Minor)
		}
	}
	if gaps := highest + 1 - len(d.Cards); gaps > 0 {
		bad = append(bad, Result{name, Wrong, driverPath, fmt.Sprintf("%d of %d cards have gone since the driver was loaded", gaps, highest+1), "Slurm's numbers cannot be counted off any more: no card is looked at, unless nvidia.gpu_map names them", "dmesg | grep -i xid   # then reset or reboot"})
	}
	for _, x := range d.Strangers {
		bad = append(bad, Result{name, Warning, strings.Fields(x)[0], "an NVIDIA card that is not the driver's: " + x, "no job can use it, and Bookend does not look at it", "lspci -k -s " + strings.Fields(x)[0]})
	}
	if len(bad) > 0 {
		return bad
	}
	if excluded > 0 {
		return well(name, driverPath, "%d, %d of them excluded from use", len(d.Cards), excluded)
	}
	return well(name, driverPath, "%d, all read", len(d.Cards))
}

func judgeBackend(s Site, _ Seen) []Result {
	const name = "backend-answer"
	path, b := s.Config.Backend, s.Survey.Backend
	say := func(level Level, seen, why, fix string) []Result {
		return []Result{{name, level, path, seen, why, fix}}
	}
	const try = "bookend snapshot"
	const why = "every hook asks the driver so: without an answer no GPU is looked at"
	switch a := b.Answer; {
	case b.Skipped == noDriver:
		return well(name, path, "not asked: %s", noDriver)
	case b.Skipped != "":
		return say(Unknown, "not asked: "+b.Skipped, why, try)
	case a.Panic != nil:
		return say(Unknown, "bookend failed inside: "+a.Panic.Error(), why, "report it, with this line")
	case len(a.Troubles) > 0:
		return say(Wrong, fmt.Sprintf("%s: %s", a.Troubles[0].Code, a.Troubles[0].Detail), why, try)
	case len(a.Faults) > 0:
		return say(Wrong, fmt.Sprintf("the driver says %s: %s", a.Faults[0].Code, a.Faults[0].Detail), why, "nvidia-smi")
	case a.Hello == nil || len(a.Snapshots) == 0:
		return say(Wrong, "said nothing of any card", why, try)
	}
	a, took := b.Answer, b.Answer.Took.Round(time.Millisecond)
	if v := a.Hello.Version; s.Version != "" && v != s.Version {
		return say(Wrong, fmt.Sprintf("version %.60s, bookend is %s", v, s.Version), "programs of two releases were not tried together", installAll(s))
	}
	last := a.Snapshots[len(a.Snapshots)-1]
	if len(last.Faults) > 0 {
		f := last.Faults[0]
		return say(Wrong, fmt.Sprintf("card %s: %s: %s", f.BusID, f.Code, f.Detail), "that card cannot be looked at", "nvidia-smi; dmesg | grep -i xid")
	}
	if limit := s.Survey.Deadline; took > limit/2 {
		return say(Warning, fmt.Sprintf("took %v of the %v that a prolog has for it", took, limit), "on a busy node the answer comes too late, and nothing is known of the cards", "systemctl enable --now nvidia-persistenced   # or a larger deadlines.prolog.driver")
	}
	return well(name, path, "%d %s in %v; a prolog has %v for it", len(last.Readings), plural("card", len(last.Readings)), took, s.Survey.Deadline)
}

// installAll installs Bookend's programs anew, all of one build.
func installAll(s Site) string {
	if s.Survey.System.Package != "" && s.Config.Backend == config.Default().Backend {
		return s.reinstall()
	}
	folder := s.Config.Backend[:strings.LastIndexByte(s.Config.Backend, '/')+1]
	return "install -m 0755 bin/bookend-* " + quoted(strings.TrimSuffix(folder, "/")) + "/"
}

// facts are what the driver said of one thing, by card; nil where nobody asked it.
func (s Site) facts(c gpu.FactCode) map[gpu.ID]string {
	said := map[gpu.ID]string{}
	for _, h := range s.Survey.Backend.Answer.Health {
		if f, ok := h.Fact(c); ok && f.Unknown == "" {
			said[h.Device] = f.Value
		}
	}
	return said
}

// silent is the result of a check for which the driver told nothing; nil where it did.
func (s Site) silent(name string, said int) []Result {
	switch {
	case said > 0:
		return nil
	case s.Survey.Backend.Skipped == noDriver || len(s.Survey.Driver.Cards) == 0 && s.Survey.Driver.Unknown == "":
		return well(name, driverPath, "no cards")
	}
	return []Result{{name, Unknown, driverPath, notTold, "what depends on it is then not known either", "nvidia-smi -q"}}
}

func with[T comparable](said map[gpu.ID]T, value T) (ids []string) {
	for id, v := range said {
		if v == value {
			ids = append(ids, string(id))
		}
	}
	slices.Sort(ids)
	return ids
}

func judgePersistence(s Site, _ Seen) []Result {
	const name = "persistence"
	said := s.facts(gpu.PersistenceMode)
	if answer := s.silent(name, len(said)); answer != nil {
		return answer
	}
	if off := with(said, "off"); len(off) > 0 {
		return []Result{{name, Warning, off[0], fmt.Sprintf("persistence mode is off on %d of %d cards", len(off), len(said)), "the driver lets go of an idle card, and wakes it for each hook: 1 to 3 s a card, more than a hook may have for it",
			"systemctl enable --now nvidia-persistenced   # or, until the next boot: nvidia-smi -pm 1"}}
	}
	return well(name, driverPath, "on")
}

func judgeComputeMode(s Site, _ Seen) []Result {
	const name = "compute-mode"
	said := s.facts(gpu.ComputeMode)
	if answer := s.silent(name, len(said)); answer != nil {
		return answer
	}
	if no := with(said, "prohibited"); len(no) > 0 {
		return []Result{{name, Wrong, no[0], fmt.Sprintf("PROHIBITED on %d of %d cards", len(no), len(said)), "no program can use CUDA there, and no test allocation either", "nvidia-smi -i " + no[0] + " -c DEFAULT"}}
	}
	if one := with(said, "exclusive_process"); len(one) > 0 && !s.Config.Probe.Exclusive {
		return []Result{{name, Warning, one[0], fmt.Sprintf("EXCLUSIVE_PROCESS on %d of %d cards", len(one), len(said)), "such cards are not tested by an allocation, as a job's own could be refused meanwhile; a process that stays keeps the next job out altogether",
			"nvidia-smi -i " + one[0] + " -c DEFAULT   # or probe.exclusive: true in bookend.yaml"}}
	}
	return well(name, driverPath, "%s", strings.Join(kinds(said), ", "))
}

func kinds(said map[gpu.ID]string) (all []string) {
	for _, v := range said {
		all = append(all, v)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func judgeMIG(s Site, _ Seen) []Result {
	const name = "mig"
	read := 0
	for _, snap := range s.Survey.Backend.Answer.Snapshots {
		read += len(snap.Readings)
	}
	if answer := s.silent(name, read); answer != nil {
		return answer
	}
	if s.mig() {
		return []Result{{name, Warning, driverPath, "MIG is on", "instances never drain, the whole card's memory is not judged, and accounting is off; which instance a job has is told by AutoDetect=nvml or nvidia.gpu_map alone",
			"nvidia-smi -mig 0   # where instances are not wanted; they are known by their ids with AutoDetect=nvml in gres.conf"}}
	}
	return well(name, driverPath, "off")
}

func judgeAccounting(s Site, _ Seen) []Result {
	const name = "accounting"
	said := map[gpu.ID]string{}
	for _, h := range s.Survey.Backend.Answer.Health {
		if h.Accounting.Mode != "" {
			said[h.Device] = h.Accounting.Mode
		}
	}
	if answer := s.silent(name, len(said)); answer != nil {
		return answer
	}
	on := len(with(said, "on"))
	switch wanted := s.Config.NVIDIA.Accounting; {
	case wanted && s.mig():
		return []Result{{name, Warning, s.ConfigPath, "nvidia.accounting: true, and MIG is on", "with MIG the driver keeps no accounts: peaks stay unknown", "accounting: false   # below nvidia: in bookend.yaml"}}
	case wanted && on < len(said) && len(with(s.facts(gpu.PersistenceMode), "off")) > 0:
		return []Result{{name, Warning, s.ConfigPath, "nvidia.accounting: true, and persistence mode is off", "the driver forgets the mode, and what it has kept, whenever the card is idle", "systemctl enable --now nvidia-persistenced"}}
	case wanted && on < len(said):
		return well(name, driverPath, "off on %d of %d cards: the next prolog switches it on", len(said)-on, len(said))
	case on == 0:
		return well(name, driverPath, "off: a job's peak is known only from its own messages (nvidia.accounting)")
	}
	return well(name, driverPath, "on, on %d of %d cards", on, len(said))
}
