package answer

import (
	"fmt"
	"io"
)

// Text writes one look at the node's GPUs and who is on them, and each GPU's last test on record.
func (s Snapshot) Text(w io.Writer) {
	for _, c := range s.Cards {
		node := "(minor unknown)"
		if c.Minor != nil {
			node = fmt.Sprintf("nvidia%d", *c.Minor)
		}
		fmt.Fprintf(w, "%s %s  %s  %s used, %s free of %s%s\n", c.BusID, node, name(c.UUID), size(c.UsedBytes),
			size(c.FreeBytes), size(c.TotalBytes), c.reserve())
		if why := c.Unknown["processes"]; why != "" {
			fmt.Fprintf(w, "  processes unknown: %s\n", cut(why))
		}
		for _, p := range c.Processes {
			text := p.text()
			switch {
			case p.PID == Others:
				text = "another user's process"
			case p.Job != "":
				text += fmt.Sprintf(", job %s by its cgroup", p.Job)
			case p.Hint != "":
				text += fmt.Sprintf(", job %s by its environment (a hint)", p.Hint)
			}
			fmt.Fprintf(w, "  %s  %s\n", size(p.Bytes), cut(text))
		}
	}
	for _, f := range s.Faults {
		fmt.Fprintf(w, "%s %s: %s\n", name(f.UUID+f.BusID), f.Code, cut(f.Detail))
	}
	for _, t := range s.Tests {
		void := ""
		if t.Void { // it says nothing any more
			void = "; void: the driver was reloaded or the node booted since, or no one can tell"
		}
		fmt.Fprintf(w, "last test of %s, %s: %s%s\n", name(t.UUID), stamp(t.At), t.Test.text(), void)
	}
}

// reserve is what is neither used nor free: the driver keeps it on every GPU, whoever uses it.
func (m Memory) reserve() string {
	switch {
	case m.UsedHasReserved:
		return " (used includes the driver's own reserve)"
	case m.ReservedBytes != nil && *m.ReservedBytes > 0:
		return fmt.Sprintf(" (%s reserved by the driver itself)", size(m.ReservedBytes))
	}
	return ""
}

// Text writes what users may read of a job of theirs.
func (o OwnReport) Text(w io.Writer) {
	fmt.Fprintf(w, "%s on %s\n", inkOf(w).in(bold, "job "+name(o.Job)), name(o.Node))
	if len(o.Start) == 0 {
		fmt.Fprintln(w, "at its start: nothing to tell")
	} else {
		fmt.Fprintln(w, "at its start:")
	}
	for _, line := range o.Start {
		fmt.Fprintf(w, "  %s\n", cut(line))
	}
	fmt.Fprintln(w, "its end report is the last that Bookend wrote in its output")
}
