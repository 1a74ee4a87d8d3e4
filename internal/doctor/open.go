package doctor

import (
	"fmt"
	"strings"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/report"
	"bookend/internal/slurm"
)

// mostKeepers is how many processes are named.
const mostKeepers = 5

// judgeOpen names the processes for which memory without a process never drains: a handle on it may be theirs.
func judgeOpen(s Site, _ Seen) []Result {
	const name = "driver-open"
	scan := s.Survey.Open
	if !s.Config.Look.Holders {
		return well(name, driverPath, "not searched (look.holders: false): GPU memory without a listed process never drains this node")
	}
	const means = "GPU memory without a listed process may belong to such a process, so Bookend reports such memory but does not drain this node for it"
	keep, unread := s.keepers()
	var bad []Result
	for _, h := range keep[:min(len(keep), mostKeepers)] {
		who := fmt.Sprintf("PID %d (%s)", h.PID, report.Clean(h.Name, 32))
		seen := fmt.Sprintf("%s, which belongs to no job and is not a systemd service, keeps the GPU driver open (%s)", who, strings.Join(h.Open(), ", "))
		fix := fmt.Sprintf("systemctl status %d   # shows what started it. Stop it, or run it as a systemd service that starts before jobs do", h.PID)
		bad = append(bad, Result{name, Warning, driverPath, seen, means, fix})
	}
	if more := len(keep) - mostKeepers; more > 0 {
		bad = append(bad, Result{name, Warning, driverPath, fmt.Sprintf("%d more such processes keep the GPU driver open", more), means, "fuser -v /dev/nvidia*"})
	}
	why := scan.Partial
	if why == "" && unread > 0 {
		why = fmt.Sprintf("%d that have the driver open could not be read", unread)
	}
	switch {
	case len(bad) > 0:
		return bad
	case why != "":
		return []Result{{name, Unknown, driverPath, "not every process was looked into: " + string(report.Clean(why, 200)),
			"GPU memory without a listed process may belong to one of these, and then does not drain this node", "fuser -v /dev/nvidia*"}}
	}
	return well(name, driverPath, "only jobs and systemd services keep it open")
}

// keepers takes every job that a cgroup names for one on record: it reads no records.
func (s Site) keepers() (keep []attrib.Holding, unread int) {
	var cards []finding.Card
	for _, c := range s.Survey.Driver.Cards {
		if !c.Excluded {
			cards = append(cards, finding.Card{Device: c.Device})
		}
	}
	t := s.Config.Thresholds
	return finding.Keepers(s.Survey.Open.Holdings, s.Config.Backend, cards, finding.Limits{
		Report: uint64(t.Report), Drain: uint64(t.Drain), PerClient: uint64(t.PerClient),
	}, func(slurm.Owner) bool { return true })
}
