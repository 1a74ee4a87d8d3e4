package view

import (
	"fmt"
	"io"
	"strings"

	"bookend/internal/answer"
	"bookend/internal/code"
	"bookend/internal/report"
)

// Explain writes what a finding, an exit code or a drain reason means.
func Explain(w io.Writer, e answer.Explain) {
	i := inkOf(w)
	if r := e.Reason; r != nil {
		fmt.Fprintf(w, "%s %s\n  %s\n", i.in(bold, "drain reason:"), report.Keep(r.Text, textWidth), r.Means)
	}
	for _, x := range e.Exits {
		fmt.Fprintf(w, "%s of %s: %s\n", i.in(bold, fmt.Sprintf("exit code %d", x.Exit)), exitsOf[x.Of], x.Meaning)
	}
	for at, c := range e.Codes {
		if at > 0 || len(e.Exits) > 0 || e.Reason != nil {
			fmt.Fprintln(w)
		}
		explanation(w, c)
	}
}

var exitsOf = map[string]string{"hooks": "Bookend's hooks", "bookend": "bookend itself"}

// abouts say what a finding is about, and whoseTurn who has to act.
var (
	abouts = map[code.Scope]string{
		code.Card: "a GPU of the job", code.Elsewhere: "another GPU of the node", code.Driver: "the driver as a whole",
		code.Own: "Bookend itself",
	}
	whoseTurn = map[code.Whose]string{
		code.Job: "the job's user", code.Node: "the admin: card, driver or node",
		code.Site: "the admin: how Bookend is installed or configured",
		code.Self: "Bookend's makers: report it", code.None: "nobody",
	}
)

func explanation(w io.Writer, c answer.Explanation) {
	i := inkOf(w)
	fmt.Fprintf(w, "%s: %s\n", i.in(bold, string(c.Code)), c.Title)
	for _, line := range []struct{ label, text string }{
		{"about", abouts[c.Scope] + ", " + string(c.Severity)},
		{"means", c.Meaning},
		{"do", c.Remedy},
		{"acts", whoseTurn[c.Whose]},
		{"policy", policyWords(c)},
		{"drains", c.Drain},
		{"exit", exitWords(c)},
		{"metric", strings.Join(c.Metrics, ", ")},
		{"more", "docs/findings.md#" + strings.ToLower(string(c.Code))},
	} {
		fmt.Fprintf(w, "  %-8s %s\n", line.label+":", line.text)
	}
}

func policyWords(c answer.Explanation) string {
	text := actionWords(c.Here)
	if c.Here != c.Shipped {
		text += " (as shipped: " + actionWords(c.Shipped) + ")"
	}
	return text
}

func actionWords(a answer.Actions) string {
	return fmt.Sprintf("prolog %s, epilog %s, health check %s", a.Prolog, a.Epilog, a.Check)
}

func exitWords(c answer.Explanation) string {
	if c.Exit == nil {
		return "none of its own"
	}
	return fmt.Sprintf("%d where it drains", *c.Exit)
}
