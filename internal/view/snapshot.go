package view

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/gpu"
	"bookend/internal/report"
)

// Snapshot writes one look at the node's cards and who is on them; at turns time since boot into that of a clock.
func Snapshot(w io.Writer, s gpu.Snapshot, who map[int]attrib.Process, at func(boot time.Duration) time.Time) {
	for _, r := range s.Readings {
		node := cmp.Or(r.Device.Node(), "(minor unknown)")
		id := report.Clean(string(r.Device.ID), nameWidth)
		fmt.Fprintf(w, "%s %s  %s  %s used, %s free of %s%s\n", r.Device.BusID, node, id,
			Figure(r.Memory.Used), Figure(r.Memory.Free), Figure(r.Memory.Total), reserve(r.Memory))
		if r.ProcessesUnknown != "" {
			fmt.Fprintf(w, "  processes unknown: %s\n", report.Clean(r.ProcessesUnknown, 200))
		}
		for _, p := range r.Processes {
			owner := who[p.PID]
			owner.PID = p.PID
			if p.PID == Others {
				fmt.Fprintf(w, "  %s  another user's process\n", Figure(p.Memory))
				continue
			}
			fmt.Fprintf(w, "  %s  %s%s\n", Figure(p.Memory), report.Clean(process(owner, at), 200), jobOf(owner))
		}
	}
	for _, f := range s.Faults {
		fmt.Fprintf(w, "%s %s: %s\n", report.Clean(string(f.Device)+string(f.BusID), nameWidth), f.Code, report.Clean(f.Detail, 200))
	}
}

// Others is the PID that stands for a process which the reader is not to know more of than that it is there.
const Others = 0

// reserve is what is neither used nor free: the driver keeps it on every card, whoever uses it.
func reserve(m gpu.Memory) string {
	switch {
	case m.UsedHasReserved:
		return " (used includes the driver's own reserve)"
	case m.Reserved.Known() && m.Reserved.Bytes > 0:
		return fmt.Sprintf(" (%s reserved by the driver itself)", Figure(m.Reserved))
	}
	return ""
}

func jobOf(p attrib.Process) string {
	switch {
	case p.Cgroup.Found():
		return fmt.Sprintf(", job %s by its cgroup", p.Cgroup.Name())
	case p.EnvJobID != 0:
		return fmt.Sprintf(", job %d by its environment (a hint)", p.EnvJobID)
	}
	return ""
}
