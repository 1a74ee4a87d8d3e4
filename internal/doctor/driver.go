package doctor

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/report"
)

func driverChecks() []Check {
	return []Check{
		{
			Name: "driver", path: fixed("driver"), judge: judgeDriver,
			why: "no GPU is looked at",
		},
		{
			Name: "driver-open", path: fixed("driver"), judge: judgeOpen,
			why: "GPU memory without a listed process may belong to such a process, so Bookend reports such memory " +
				"but does not drain this node for it",
		},
	}
}

func judgeDriver(v *view) string {
	const load = "modprobe nvidia && nvidia-smi -L"
	d := v.Survey.Driver
	given, _ := v.given()
	switch {
	case d.Unknown != "":
		v.unknown("its files in /proc do not answer: "+d.Unknown, "dmesg | grep -i nvrm")
	case d.Absent && given > 0:
		v.wrong(fmt.Sprintf("not loaded, but slurm.conf gives out %d GPUs here", given), load).
			because("jobs get GPUs that do not work: each hook finds BKD-NODRIVER")
	case d.Absent && given == 0:
		return "not loaded, and slurm.conf gives out no GPU here"
	case d.Absent:
		v.warn("not loaded", load+"   # on a node with GPUs")
	default:
		if d.Problem != "" {
			v.wrong(d.Problem, "nvidia-smi -L; dmesg | grep -i nvrm")
		}
		judgeCards(v)
		return judgeBackend(v)
	}
	return ""
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
	case skipped != "":
		v.unknown("not asked: "+skipped, try)
	case a.Panic != nil:
		v.unknown("bookend failed inside: "+a.Panic.Error(), "report it, with this line")
	case len(a.Troubles) > 0:
		v.wrong(fmt.Sprintf("%s: %s", a.Troubles[0].Code, a.Troubles[0].Detail), try)
	case len(a.Faults) > 0:
		v.wrong(fmt.Sprintf("it says %s: %s", a.Faults[0].Code, a.Faults[0].Detail), "nvidia-smi")
	case a.Hello == nil || len(a.Snapshots) == 0:
		v.wrong("the backend said nothing of any GPU", try)
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
		v.wrong(fmt.Sprintf("the backend is of version %.60s, bookend of %s", version, v.Version),
			"install both from the same package").because("programs of two releases were not tried together")
	case len(last.Faults) > 0:
		f := last.Faults[0]
		v.wrong(fmt.Sprintf("GPU %s: %s: %s", f.BusID, f.Code, f.Detail), "nvidia-smi; dmesg | grep -i xid").
			because("that GPU cannot be looked at")
	case took > limit/2:
		v.warn(fmt.Sprintf("took %v of the %v that a prolog has for it", took, limit),
			"systemctl enable --now nvidia-persistenced   # or a larger deadlines.prolog.driver").
			because("on a busy node the answer comes too late, and nothing is known of the GPUs")
	}
	return fmt.Sprintf("%s: %d GPUs in %v; a prolog has %v for it", cmp.Or(last.Driver.Version, "it answers"),
		len(last.Readings), took, limit)
}

// judgeOpen names the processes for which memory without a process never drains: a handle on it may be theirs.
func judgeOpen(v *view) string {
	const list = "fuser -v /dev/nvidia*"
	keep, unread := finding.Keepers(v.Survey.Open.Holdings, v.Config.Backend)
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
