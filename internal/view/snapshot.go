package view

import (
	"fmt"
	"io"

	"bookend/internal/answer"
	"bookend/internal/report"
)

// Snapshot writes one look at the node's cards and who is on them, and each card's last test on record.
func Snapshot(w io.Writer, s answer.Snapshot) {
	for _, c := range s.Cards {
		node := "(minor unknown)"
		if c.Minor != nil {
			node = fmt.Sprintf("nvidia%d", *c.Minor)
		}
		fmt.Fprintf(w, "%s %s  %s  %s used, %s free of %s%s\n", c.BusID, node, report.Keep(c.UUID, nameWidth),
			mib(c.UsedBytes), mib(c.FreeBytes), mib(c.TotalBytes), reserve(c.Memory))
		if why := c.Unknown["processes"]; why != "" {
			fmt.Fprintf(w, "  processes unknown: %s\n", report.Keep(why, textWidth))
		}
		for _, p := range c.Processes {
			text := process(p) + jobOf(p)
			if p.PID == answer.Others {
				text = "another user's process"
			}
			fmt.Fprintf(w, "  %s  %s\n", mib(p.Bytes), report.Keep(text, textWidth))
		}
	}
	for _, f := range s.Faults {
		fmt.Fprintf(w, "%s %s: %s\n", report.Keep(f.UUID+f.BusID, nameWidth), f.Code, report.Keep(f.Detail, textWidth))
	}
	for _, t := range s.Tests {
		at, void := "at an unknown time", ""
		if t.At != nil {
			at = t.At.Local().Format(timestamp)
		}
		if t.Void { // it says nothing any more
			void = "; void: the driver was reloaded or the node booted since, or nobody can tell"
		}
		fmt.Fprintf(w, "last test of %s, %s: %s%s\n", report.Keep(t.UUID, nameWidth), at, test(t.Test), void)
	}
}

// reserve is what is neither used nor free: the driver keeps it on every card, whoever uses it.
func reserve(m answer.Memory) string {
	switch {
	case m.UsedHasReserved:
		return " (used includes the driver's own reserve)"
	case m.ReservedBytes != nil && *m.ReservedBytes > 0:
		return fmt.Sprintf(" (%s reserved by the driver itself)", mib(m.ReservedBytes))
	}
	return ""
}

func jobOf(p answer.Process) string {
	switch {
	case p.Job != "":
		return fmt.Sprintf(", job %s by its cgroup", p.Job)
	case p.Hint != "":
		return fmt.Sprintf(", job %s by its environment (a hint)", p.Hint)
	}
	return ""
}
