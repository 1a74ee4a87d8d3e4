package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/node"
	"bookend/internal/slurm"
)

func explainCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "explain CODE|EXITCODE|XID|REASON", Short: "explain a finding, an exit code, an Xid or a drain reason",
		Long: `Explains a finding by its code (BKD-ORPHAN, or orphan): what it means, what to do, what
the policy does with it, and its exit code. It also explains an exit code of the hooks
(10), an Xid, which is an error of the NVIDIA driver (xid79), and a drain reason as
sinfo -R shows it.`,
		Example: "  bookend explain orphan\n  bookend explain 10\n  bookend explain xid79\n  bookend explain " +
			"\"Epilog error\"",
		Args: operands(1, -1, "a finding, an exit code, an Xid or a drain reason"),
		RunE: func(_ *cobra.Command, args []string) error {
			what := strings.Join(args, " ")
			here, _ := node.LoadConfig(a.env) // config check reports its problems
			text := explanation(what, here)
			if text == "" {
				return notFound("no such finding, exit status, Xid (xid79) or drain reason: %q; docs/findings.md has "+
					"all findings, and NVIDIA lists all Xids", what)
			}
			fmt.Fprint(a.env.Stdout, text)
			return nil
		},
	}
}

// explanation is the meaning and remedy of a code, exit code, Xid or drain reason, empty if it is none of them.
func explanation(what string, here config.Config) string {
	what = strings.TrimSpace(what)
	n, err := strconv.Atoi(what)
	digits, isXid := strings.CutPrefix(strings.ToLower(what), "xid")
	xid, errXid := strconv.Atoi(strings.TrimSpace(digits))
	var paragraphs []string
	switch c, ok := catalog.Parse(what); {
	case ok:
		paragraphs = []string{explainCode(c, here)}
	case isXid && errXid == nil:
		paragraphs = explainXid(xid, here)
	case err == nil:
		paragraphs = explainExit(n, here)
		if e, _ := catalog.LookupXid(n); !e.Old() { // a plain number is rather an exit code
			paragraphs = append(paragraphs, explainXid(n, here)...)
		}
	default:
		paragraphs = explainReason(what, here)
	}
	return strings.Join(paragraphs, "\n")
}

func paragraph(title, text string, lines ...[2]string) string {
	text = fmt.Sprintf("%s: %s\n", title, text)
	for _, l := range lines {
		text += fmt.Sprintf("  %-8s %s\n", l[0]+":", l[1])
	}
	return text
}

func explainXid(number int, here config.Config) []string {
	row, ok := catalog.LookupXid(number)
	if !ok {
		return nil
	}
	return []string{paragraph(fmt.Sprintf("Xid %d", number), "an error that the driver writes to the kernel log",
		[2]string{"means", row.Meaning}, [2]string{"cause", string(row.Cause)},
		[2]string{"NVIDIA", row.Asks}), explainCode(row.Code, here)}
}

const scriptsExit0 = "The scripts in /etc/bookend/slurm/hooks exit 0 instead; " +
	"a node drains only if slurm.conf names the program itself. "

func explainExit(n int, here config.Config) []string {
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
	if text == "" {
		return nil
	}
	paragraphs := []string{paragraph(fmt.Sprintf("exit code %d of Bookend's hooks", n), text)}
	if known {
		paragraphs = append(paragraphs, explainCode(c, here))
	}
	return paragraphs
}

const hookFailed = " did not exit 0. slurmd's log on the node says which script, and its exit status. If it is " +
	"Bookend's, bookend status shows what was found, and bookend explain NUMBER explains the status."

// slurmReasons are the fixed texts with which slurmd drains a node because of a hook or of processes it cannot kill.
var slurmReasons = map[string]string{
	slurm.PrologError: "a Prolog" + hookFailed,
	slurm.EpilogError: "an Epilog" + hookFailed,
	"Kill task failed": "not Bookend's doing: processes of a job could not be killed within UnkillableStepTimeout. " +
		"On a GPU node that is often a driver that hangs: bookend status, and the kernel's log.",
}

// explainReason explains a node's drain reason: Slurm's own, or one that contains codes of Bookend.
func explainReason(what string, here config.Config) []string {
	var paragraphs []string
	for text, means := range slurmReasons {
		if strings.HasPrefix(strings.ToLower(what), strings.ToLower(text)) {
			paragraphs = append(paragraphs, paragraph("drain reason: "+text+"\n  Slurm's own text", means))
		}
	}
	for _, c := range codesIn(what) {
		paragraphs = append(paragraphs, explainCode(c, here))
	}
	return paragraphs
}

func explainCode(c catalog.Code, here config.Config) string {
	entry, _ := catalog.Lookup(c)
	policy, shipped := policyOf(c, here), policyOf(c, config.Default())
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
	return paragraph(string(c), entry.Title,
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
