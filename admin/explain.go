package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/safetext"
	"bookend/internal/slurmconf"
)

func explainCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "explain CODE|NUMBER|TEXT...", Short: "explain a finding, a number, a drain reason or a line of a log",
		Long: `Explains a finding (BKD-ORPHAN, or orphan): what it means, what to do, what the policy
does with it, and its exit code. It also explains what you paste: a hook's exit code, an
Xid, a line of the kernel log, a drain reason of sinfo -R, also Slurm's own, and a return
code or message of NVML, CUDA or HIP; and what ends a process that stays (docker, mps, ray).`,
		Example: "  bookend explain orphan\n  bookend explain 10\n  bookend explain xid79\n  bookend explain " +
			"\"Epilog error\"\n  bookend explain \"NVRM: Xid (PCI:0000:3b:00): 48, pid=4711, name=python3\"\n" +
			"  bookend explain cuda 802\n  bookend explain requeue",
		Args: operands(1, -1, "a finding, an exit code, an Xid, a drain reason or another text"),
		RunE: func(_ *cobra.Command, args []string) error {
			what := strings.Join(args, " ")
			here, _ := node.LoadConfig(a.env) // config check reports its problems
			text := explanation(what, here)
			if text == "" {
				return notFound("%.200q is no finding, exit status, Xid, return code or reason of Slurm's%s", what,
					cmp.Or(suggestion(what), "; docs/findings.md has all findings"))
			}
			fmt.Fprint(a.env.Stdout, text)
			return nil
		},
	}
}

// explanation is the meaning and remedy of a code, a number or a pasted text, empty if there is nothing in it.
func explanation(what string, here config.Config) string {
	what = strings.TrimSpace(what[:min(len(what), 64<<10)])
	n, err := strconv.Atoi(what)
	xid, isXid := gpu.NamedXid(what)
	var paragraphs []string
	switch c, ok := catalog.Parse(what); {
	case ok:
		paragraphs = []string{here.Explain(c)}
	case isXid:
		paragraphs = explainXid(gpu.Xid{Code: xid}, here)
	case catalog.Topic(what) != "":
		paragraphs = []string{catalog.Topic(what)}
	case err == nil:
		paragraphs = explainExit(n, here)
		if e, known := catalog.LookupXid(n); known && !e.Old() { // a plain number is rather an exit code
			paragraphs = append(paragraphs, explainXid(gpu.Xid{Code: n}, here)...)
		}
		paragraphs = append(paragraphs, explainReturned(what)...)
	default:
		paragraphs = explainPasted(what, here)
	}
	return catalog.Explanation(paragraphs)
}

// suggestion ends an error with the known word that a misspelt one is most like; it is empty without any.
func suggestion(what string) string {
	names := append(gpu.ReturnNames(), "requeue")
	for _, e := range catalog.All() {
		names = append(names, string(e.Code), strings.TrimPrefix(string(e.Code), "BKD-"))
	}
	what = strings.Join(strings.Fields(what), " ")
	like := slurmconf.Closest(what[:min(len(what), 40)], append(names, catalog.SlurmForms()...))
	if code, short := catalog.Parse(like); short {
		like = string(code)
	}
	if like == "" {
		return ""
	}
	return didYouMean([]string{like})
}

// didYouMean ends an error with at most three words that a misspelt one is like; it is empty without any.
func didYouMean(near []string) string {
	if len(near) == 0 {
		return ""
	}
	words := strings.Join(near[:min(len(near), 3)], " or ")
	return "; did you mean " + strings.ReplaceAll(words, "\u00a0", " ") + "?"
}

// explainXid explains an error of a driver: by its number alone, or with what a line of the kernel's log says.
func explainXid(x gpu.Xid, here config.Config) []string {
	row, _ := catalog.LookupXid(x.Code)
	title, lines := gpu.Error(x.Code), [][2]string{{"means", row.Meaning}, {"cause", string(row.Cause)}}
	if x.BusID != "" {
		of := map[bool]string{true: "device", false: "GPU"}[row.Code == catalog.KernelLog]
		title += fmt.Sprintf(" of %s %s %s", of, x.BusID, x.Instance)
	}
	if first, _ := catalog.LookupXid(x.CausedBy); x.CausedBy != 0 { // that is the error, and this its consequence
		lines[1][1] = fmt.Sprintf("%s (Xid %d: %s)", first.Cause, x.CausedBy, first.Meaning)
	}
	if x.OwnerPID() != 0 {
		lines = append(lines, [2]string{"process", fmt.Sprintf("PID %d (%s)", x.PID, safetext.Clean(x.Name, 48))})
	}
	if x.Recovery != "" {
		lines = append(lines, [2]string{"recovery", "the driver now asks for: " + x.Recovery})
	}
	if row.Asks != "" {
		lines = append(lines, [2]string{"asked", row.Asks})
	}
	if row.Doubt != "" {
		lines = append(lines, [2]string{"doubt", row.Doubt})
	}
	return []string{catalog.Paragraph(strings.TrimSpace(title), "an error that the driver writes to the kernel log",
		lines...), here.Explain(row.Code)}
}

func explainExit(n int, here config.Config) []string {
	text := catalog.ExitMeaning(n)
	if text == "" {
		return nil
	}
	paragraphs := []string{catalog.Paragraph(fmt.Sprintf("exit code %d of Bookend's hooks", n), text)}
	if c, known := catalog.OfExit(n); known {
		paragraphs = append(paragraphs, here.Explain(c))
	}
	return paragraphs
}

// explainPasted explains what a text contains: lines of the kernel's log, a node's drain reason, codes of Bookend, and
// what a library returned.
func explainPasted(what string, here config.Config) (paragraphs []string) {
	for _, x := range gpu.PastedErrors(what) {
		paragraphs = append(paragraphs, explainXid(x, here)...)
	}
	if gpu.PastedMismatch(what) {
		paragraphs = append(paragraphs, here.Explain(catalog.Mismatch))
	}
	if len(paragraphs) > 0 {
		return paragraphs
	}
	for _, r := range catalog.SlurmReasons(what) {
		form := strings.ReplaceAll(r.Form, "#", "*")
		paragraphs = append(paragraphs, catalog.Paragraph("drain reason "+form, "Slurm's own text, not Bookend's",
			[2]string{"means", r.Meaning}, [2]string{"do", r.Remedy}))
	}
	for _, c := range catalog.Mentioned(what) {
		paragraphs = append(paragraphs, here.Explain(c))
	}
	return append(paragraphs, explainReturned(what)...)
}

// explainReturned explains the codes of vendors' libraries that a text names.
func explainReturned(what string) (paragraphs []string) {
	for _, r := range gpu.FindReturned(what) {
		paragraphs = append(paragraphs, catalog.Paragraph(r.Title(), "a return code of "+r.Library,
			[2]string{"means", r.Meaning}, [2]string{"do", r.Remedy}))
	}
	return paragraphs
}
