package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Args: none,
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintf(a.env.Stdout, "bookend %s\n", a.env.Version)
			return nil
		},
	}
}
