package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"bookend/internal/catalog"
	"bookend/internal/condition"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/node"
	"bookend/internal/slurm"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain CODE|EXITCODE|XID|REASON", Short: "explain a finding, an exit code, an Xid or a drain reason",
		Long: `Explains a finding by its code (BKD-ORPHAN, or orphan): what it means, what to do, what
the policy does with it, and its exit code. It also explains an exit code of the hooks
(10), an Xid, which is an error of the NVIDIA driver (xid79), and a drain reason as
sinfo -R shows it.`,
		Example: "  bookend explain orphan\n  bookend explain 10\n  bookend explain xid79\n  bookend explain " +
			"\"Epilog error\"",
		Args: operands(1, -1, "a finding, an exit code, an Xid or a drain reason"),
		RunE: func(_ *cobra.Command, args []string) error { return a.explain(strings.Join(args, " ")) },
	}
}

func (a *app) explain(what string) error {
	here, _ := node.LoadConfig(a.env) // config check reports its problems
	if writeExplanation(a.env.Stdout, what, here) {
		return nil
	}
	return notFound("no such finding, exit status, Xid (xid79) or drain reason: %q; docs/findings.md has all "+
		"findings, and NVIDIA lists all Xids", what)
}

// writeExplanation writes the meaning and remedy of a code, exit code, Xid or drain reason, and whether there is one.
func writeExplanation(w io.Writer, what string, here config.Config) bool {
	e := explainer{here: here}
	what = strings.TrimSpace(what)
	n, err := strconv.Atoi(what)
	digits, isXid := strings.CutPrefix(strings.ToLower(what), "xid")
	xid, errXid := strconv.Atoi(strings.TrimSpace(digits))
	switch c, ok := catalog.Parse(what); {
	case ok:
		e.code(c)
	case isXid && errXid == nil:
		e.xid(xid)
	case err == nil:
		e.exit(n)
		e.xid(n)
	default:
		e.reason(what)
	}
	fmt.Fprint(w, strings.Join(e.said, "\n"))
	return len(e.said) > 0
}

type explainer struct {
	here config.Config
	said []string
}

func (e *explainer) paragraph(title, text string, lines ...[2]string) {
	text = fmt.Sprintf("%s: %s\n", title, text)
	for _, l := range lines {
		text += fmt.Sprintf("  %-8s %s\n", l[0]+":", l[1])
	}
	e.said = append(e.said, text)
}

func (e *explainer) xid(number int) {
	if row, ok := condition.XidRow(number); ok {
		e.paragraph(fmt.Sprintf("Xid %d", number), "an error that the driver writes to the kernel log",
			[2]string{"means", row.Meaning}, [2]string{"NVIDIA", row.Asks})
		e.code(row.Code)
	}
}

const scriptsExit0 = "The scripts in /etc/bookend/slurm/hooks exit 0 instead; " +
	"a node drains only if slurm.conf names the program itself. "

func (e *explainer) exit(n int) {
	text := ""
	c, known := catalog.OfExit(n)
	switch entry, _ := catalog.Lookup(c); {
	case n == 0:
		text = "nothing to drain for"
	case n == 2:
		text = "a crash of Go's runtime, which Bookend did not catch: no process or thread was available, for " +
			"example. " + scriptsExit0 + "Raise the limit (pids cgroup, kernel.threads-max) or see syslog"
	case n == catalog.ExitOther:
		text = "a finding without a number of its own that the policy drains for"
	case known:
		text = "the node was drained: " + entry.Title
	case n >= 126 && n <= 255:
		text = "not a verdict: the hook could not be started, or a signal ended it (128 and its number). " +
			scriptsExit0 + "See syslog and bookend doctor"
	}
	if text != "" {
		e.paragraph(fmt.Sprintf("exit code %d of Bookend's hooks", n), text)
	}
	if known {
		e.code(c)
	}
}

const hookFailed = " did not exit 0. slurmd's log on the node says which script, and its exit status. If it is " +
	"Bookend's, bookend status shows what was found, and bookend explain NUMBER explains the status."

// slurmReasons are the fixed texts with which slurmd drains a node because of a hook or of processes it cannot kill.
var slurmReasons = map[string]string{
	drain.PrologError: "a Prolog" + hookFailed,
	drain.EpilogError: "an Epilog" + hookFailed,
	"Kill task failed": "not Bookend's doing: processes of a job could not be killed within UnkillableStepTimeout. " +
		"On a GPU node that is often a driver that hangs: bookend status, and the kernel's log.",
}

// reason explains a node's drain reason: Slurm's own, or one that contains codes of Bookend.
func (e *explainer) reason(what string) {
	for text, means := range slurmReasons {
		if strings.HasPrefix(strings.ToLower(what), strings.ToLower(text)) {
			e.paragraph("drain reason: "+text+"\n  Slurm's own text", means)
		}
	}
	for _, c := range codesIn(what) {
		e.code(c)
	}
}

func (e *explainer) code(c catalog.Code) {
	entry, _ := catalog.Lookup(c)
	policy, shipped := policyOf(c, e.here), policyOf(c, config.Default())
	if policy != shipped {
		policy += " (default: " + shipped + ")"
	}
	drains := "in mode enforce, if the policy says drain and the evidence is certain"
	if strings.Contains(policy, string(config.Repeat)) {
		drains = "in mode enforce, if the last job on the GPU or the node ended with the same before this one began"
	}
	if why := entry.NeverDrains(); entry.Scope != catalog.Own && why != "" {
		drains = "never: " + why
	} else if c == catalog.Output {
		drains = "never: it is about a file in its user's hands"
	}
	exit := "none of its own"
	if !strings.HasPrefix(drains, "never") {
		exit = fmt.Sprintf("%d if it drains", catalog.Exit(c))
	}
	e.paragraph(string(c), entry.Title,
		[2]string{"means", entry.Meaning}, [2]string{"do", entry.Remedy}, [2]string{"policy", policy},
		[2]string{"drains", drains}, [2]string{"exit", exit},
		[2]string{"more", "docs/findings.md#" + strings.ToLower(string(c))})
}

// policyOf returns the policy's action for a finding in each phase, in partitions that have no policy of their own.
func policyOf(of catalog.Code, c config.Config) string {
	return fmt.Sprintf("prolog %s, epilog %s, health check %s", c.Action(slurm.Prolog, "", of),
		c.Action(slurm.Epilog, "", of), c.Action(slurm.HealthCheck, "", of))
}

func codesIn(words string) (found []catalog.Code) {
	apart := func(r rune) bool { return r != '-' && (r < 'A' || r > 'Z') && (r < '0' || r > '9') }
	for _, word := range strings.FieldsFunc(words, apart) {
		if _, ok := catalog.Lookup(catalog.Code(word)); ok {
			found = append(found, catalog.Code(word))
		}
	}
	return found
}
