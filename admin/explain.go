package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"bookend/internal/condition"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/node"
)

func explainCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "explain", Args: operands(1, -1, "a finding, an exit code, an Xid, a drain reason or another text"),
		RunE: func(_ *cobra.Command, args []string) error {
			what := strings.Join(args, " ")
			here, _ := node.LoadConfig(a.env) // config check reports its problems
			text := condition.Explanation(what, here.Explain)
			if text == "" {
				return notFound("%.200q is no finding, exit status, Xid, return code or reason of Slurm's%s", what,
					cmp.Or(config.DidYouMean(config.Suggest(what, append(gpu.ReturnNames(), "requeue")...)),
						"; docs/findings.md has all findings"))
			}
			fmt.Fprint(a.env.Stdout, text)
			return nil
		},
	}
}
