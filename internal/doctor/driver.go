package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/report"
	"bookend/internal/slurm"
)

const areaDriver = "The driver"

func driverChecks() []Check {
	return []Check{
		{
			Name: "driver", Area: areaDriver, path: fixed("nvidia"), judge: judgeDriver,
			Holds: "NVIDIA's driver is loaded if Slurm gives out GPUs, of version 510 or later, and none whose " +
				"process lists are broken (535.43 to 535.97); every GPU can be read, and none has gone since it was " +
				"loaded",
			why: "no GPU is looked at",
		},
		{
			Name: "backend-answer", Area: areaDriver, path: func(s Site) string { return s.Config.Backend },
			judge: judgeBackend,
			Holds: "the backend asks the driver, as root, and has its answer in less than half of " +
				"`deadlines.prolog.driver`",
			why: "no GPU is looked at",
		},
		{
			Name: "driver-open", Area: areaDriver, path: fixed("nvidia"), judge: judgeOpen,
			Holds: "only jobs and systemd services keep the GPU driver open: GPU memory without a listed process may " +
				"belong to any other process that does, and then does not drain the node",
			why: "GPU memory without a listed process may belong to such a process, so Bookend reports such memory " +
				"but does not drain this node for it",
		},
	}
}

func judgeDriver(v *view) string {
	d, gives := v.Survey.Driver, -1
	if v.Survey.Slurm.Conf != nil {
		gives = v.gres().count
	}
	switch branch, release := driverVersion(d.Version); {
	case d.Unknown != "":
		v.unknown("its files in /proc do not answer: "+d.Unknown, "dmesg | grep -i nvrm")
	case d.Absent && gives > 0:
		v.wrong(fmt.Sprintf("not loaded, but slurm.conf gives out %d GPUs here", gives),
			"modprobe nvidia && nvidia-smi -L").
			because("jobs get GPUs that do not work: each hook finds BKD-NODRIVER")
	case d.Absent && gives == 0:
		return "not loaded, and slurm.conf gives out no GPU here"
	case d.Absent:
		v.warn("not loaded", "modprobe nvidia && nvidia-smi -L   # on a node with GPUs")
	case d.Problem != "":
		v.wrong(d.Problem, "nvidia-smi -L; dmesg | grep -i nvrm")
	case d.Version == "":
		v.unknown("does not tell its version", "cat /sys/module/nvidia/version")
	case branch < 510:
		v.warn(d.Version, "install a driver of a branch that still gets fixes").
			because("older than 510: it reports its own memory as used, and some calls are missing")
	case branch == 535 && release >= 43 && release < 98:
		v.warn(d.Version, "install 535.98 or later").because("535.43 to 535.97: process lists cannot be read")
	}
	judgeCards(v)
	return fmt.Sprintf("%s, %d GPUs", d.Version, len(d.Cards))
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

// judgeCards reports GPUs that the driver has lost: which numbers Slurm gives the others is then not certain.
func judgeCards(v *view) {
	const shifted = "which numbers Slurm gives the others is not certain: none is looked at"
	highest := -1
	for _, c := range v.Survey.Driver.Cards {
		switch {
		case c.Unknown != "":
			v.wrong("cannot be read: "+c.Unknown, "nvidia-smi -L; dmesg | grep -i xid").at(string(c.Device.BusID)).
				because(shifted)
		case c.Device.Minor != nil:
			highest = max(highest, *c.Device.Minor)
		}
	}
	if gaps := highest + 1 - len(v.Survey.Driver.Cards); gaps > 0 {
		v.wrong(fmt.Sprintf("%d of %d have gone since the driver was loaded", gaps, highest+1),
			"dmesg | grep -i xid   # then reset or reboot").because(shifted)
	}
}

func judgeBackend(v *view) string {
	const try = "bookend snapshot"
	a := v.Survey.Backend.Answer
	switch skipped := v.Survey.Backend.Skipped; {
	case v.Survey.Driver.Absent:
		return "not asked: " + skipped
	case skipped != "":
		v.unknown("not asked: "+skipped, try)
	case a.Panic != nil:
		v.unknown("bookend failed inside: "+a.Panic.Error(), "report it, with this line")
	case len(a.Troubles) > 0:
		v.wrong(fmt.Sprintf("%s: %s", a.Troubles[0].Code, a.Troubles[0].Detail), try)
	case len(a.Faults) > 0:
		v.wrong(fmt.Sprintf("the driver says %s: %s", a.Faults[0].Code, a.Faults[0].Detail), "nvidia-smi")
	case a.Hello == nil || len(a.Snapshots) == 0:
		v.wrong("said nothing of any GPU", try)
	default:
		return v.judgeAnswer(a.Hello.Version, a.Snapshots[len(a.Snapshots)-1], a.Took.Round(time.Millisecond))
	}
	return ""
}

// judgeAnswer judges a whole answer.
func (v *view) judgeAnswer(version string, last gpu.Snapshot, took time.Duration) string {
	limit := v.driverLimit()
	switch {
	case v.Version != "" && version != v.Version:
		v.wrong(fmt.Sprintf("version %.60s, bookend is %s", version, v.Version),
			"install both from the same package").
			because("programs of two releases were not tried together")
	case len(last.Faults) > 0:
		f := last.Faults[0]
		v.wrong(fmt.Sprintf("GPU %s: %s: %s", f.BusID, f.Code, f.Detail), "nvidia-smi; dmesg | grep -i xid").
			because("that GPU cannot be looked at")
	case took > limit/2:
		v.warn(fmt.Sprintf("took %v of the %v that a prolog has for it", took, limit),
			"systemctl enable --now nvidia-persistenced   # or a larger deadlines.prolog.driver").
			because("on a busy node the answer comes too late, and nothing is known of the GPUs")
	}
	return fmt.Sprintf("%d GPUs in %v; a prolog has %v for it", len(last.Readings), took, limit)
}

// judgeOpen names the processes for which memory without a process never drains: a handle on it may be theirs.
func judgeOpen(v *view) string {
	const list = "fuser -v /dev/nvidia*"
	keep, unread := v.keepers()
	for _, h := range keep {
		v.warn(fmt.Sprintf("PID %d (%s), which belongs to no job and is not a systemd service, keeps the GPU driver "+
			"open (%s)", h.PID, report.Clean(h.Name, 32), strings.Join(h.Open(), ", ")),
			fmt.Sprintf("systemctl status %d   # shows what started it. Stop it, or run it as a systemd service that "+
				"starts before jobs do", h.PID))
	}
	why := v.Survey.Open.Partial
	if why == "" && unread > 0 {
		why = fmt.Sprintf("%d that have the driver open could not be read", unread)
	}
	if why != "" && len(keep) == 0 {
		v.unknown("not every process was looked into: "+string(report.Clean(why, 200)), list)
	}
	return "only jobs and systemd services keep it open"
}

// keepers takes every job that a cgroup names for one on record: it reads no records.
func (v *view) keepers() (keep []attrib.Holding, unread int) {
	return finding.Keepers(v.Survey.Open.Holdings, v.Config.Backend, func(slurm.Owner) bool { return true })
}
