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
		return well(name, driverPath, "not searched (look.holders: false); memory without a process never drains")
	}
	keep, unread := s.keepers()
	var bad []Result
	for _, h := range keep[:min(len(keep), mostKeepers)] {
		who := fmt.Sprintf("PID %d (%s)", h.PID, report.Clean(h.Name, 32))
		seen := fmt.Sprintf("%s, outside of jobs and services, has %s open", who, strings.Join(h.Open(), ", "))
		why := fmt.Sprintf("drains for memory without a process are off on this node while %s keeps the driver open: the memory may be its own", who)
		fix := fmt.Sprintf("systemctl status %d   # shows what started it: stop it, or run it as a systemd service that starts before jobs do", h.PID)
		bad = append(bad, Result{name, Warning, driverPath, seen, why, fix})
	}
	if more := len(keep) - mostKeepers; more > 0 {
		bad = append(bad, Result{name, Warning, driverPath, fmt.Sprintf("%d more processes outside of jobs and services have it open", more), "each of them has the same effect", "fuser -v /dev/nvidia*"})
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
			"memory without a process does not drain while one that is not known may hold it", "fuser -v /dev/nvidia*"}}
	}
	return well(name, driverPath, "open in no process outside of jobs and services")
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
