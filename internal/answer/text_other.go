package answer

import (
	"fmt"
	"io"
	"strings"

	"bookend/internal/code"
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

// Text writes what a finding, an exit code or a drain reason means.
func (e Explain) Text(w io.Writer) {
	i := inkOf(w)
	if r := e.Reason; r != nil {
		fmt.Fprintf(w, "%s %s\n  %s\n", i.in(bold, "drain reason:"), cut(r.Text), r.Means)
	}
	for _, x := range e.Exits {
		of := map[string]string{"hooks": "Bookend's hooks", "bookend": "bookend itself"}[x.Of]
		fmt.Fprintf(w, "%s of %s: %s\n", i.in(bold, fmt.Sprintf("exit code %d", x.Exit)), of, x.Meaning)
	}
	if x := e.Xid; x != nil {
		fmt.Fprintf(w, "%s an error that the driver writes to the kernel log\n", i.in(bold, fmt.Sprintf("Xid %d:", x.Number)))
		fmt.Fprintf(w, "  means:   %s\n  NVIDIA:  %s\n", x.Meaning, x.Asks)
	}
	for at, c := range e.Codes {
		if at > 0 || e.Xid != nil || len(e.Exits) > 0 || e.Reason != nil {
			fmt.Fprintln(w)
		}
		c.text(w)
	}
}

// abouts say what a finding is about, and whoseTurn who has to act.
var (
	abouts = map[code.Scope]string{
		code.Card: "a GPU of the job", code.Elsewhere: "another GPU of the node", code.Driver: "the driver as a whole",
		code.Own: "Bookend itself",
	}
	whoseTurn = map[code.Whose]string{
		code.Job: "the job's user", code.Node: "the admin: GPU, driver or node",
		code.Site: "the admin: how Bookend is installed or configured",
		code.Self: "Bookend's makers: report it", code.None: "no one",
	}
)

func (e Explanation) text(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n", inkOf(w).in(bold, string(e.Code)), e.Title)
	policy, exit := e.Here.text(), "none of its own"
	if e.Here != e.Shipped {
		policy += " (default: " + e.Shipped.text() + ")"
	}
	if e.Exit != nil {
		exit = fmt.Sprintf("%d where it drains", *e.Exit)
	}
	for _, line := range []struct{ label, text string }{
		{"about", abouts[e.Scope] + ", " + string(e.Severity)},
		{"means", e.Meaning},
		{"do", e.Remedy},
		{"acts", whoseTurn[e.Whose]},
		{"policy", policy},
		{"drains", e.Drain},
		{"exit", exit},
		{"more", "docs/findings.md#" + strings.ToLower(string(e.Code))},
	} {
		fmt.Fprintf(w, "  %-8s %s\n", line.label+":", line.text)
	}
}

func (a Actions) text() string {
	return fmt.Sprintf("prolog %s, epilog %s, health check %s", a.Prolog, a.Epilog, a.Check)
}
