package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
)

func versionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "the version of this program", Args: none,
		RunE: func(*cobra.Command, []string) error {
			return a.write(func() any { return answer.NewProgram(a.env.Version) }, func(w io.Writer) {
				fmt.Fprintf(w, "bookend %s\n", a.env.Version)
			})
		},
	}
	a.inJSON(cmd)
	return cmd
}
