package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
)

func explainCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain CODE|EXITCODE|XID|REASON", Short: "explain a finding, an exit code, an Xid or a drain reason " +
			"means, " +
			"and what to do",
		Long: `Explains a finding by its code (BKD-ORPHAN, or orphan): what it means, what to do, what
the policy does with it, whether it can drain a node, and its exit code and metrics. It
also explains one of Bookend's exit codes (10), an Xid, which is an error of the NVIDIA
driver (xid79), and a drain reason as sinfo -R shows it.`,
		Example: "  bookend explain orphan\n  bookend explain 10\n  bookend explain xid79\n  bookend explain " +
			"\"Epilog error\"",
		Args: operands(1, -1, "a finding, an exit code, an Xid or a drain reason"),
		RunE: func(_ *cobra.Command, args []string) error { return a.explain(strings.Join(args, " ")) },
	}
	return cmd
}

func (a *app) explain(what string) error {
	var own []answer.ExitStatus
	for _, x := range exits {
		own = append(own, answer.ExitStatus{Code: x.code, Means: x.means})
	}
	if !answer.Explain(a.env.Stdout, what, a.config(), own) {
		return notFound(fmt.Sprintf("no such finding, exit status, Xid or drain reason: %q; docs/findings.md has "+
			"all findings, "+
			"and NVIDIA lists all Xids", what))
	}
	return nil
}
