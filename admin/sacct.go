package main

import (
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/catalog"
	"bookend/internal/fleet"
	"bookend/internal/node"
	"bookend/internal/slurmcmd"
)

func sacctCommand(a *app) *cobra.Command {
	c := slurmcmd.Commenter{Say: a.say}
	cmd := &cobra.Command{
		Use: "sacct", Args: none, RunE: func(*cobra.Command, []string) error {
			found, err := fleet.Remarks(a.env.Stdin, func(code string) bool {
				e, known := catalog.Lookup(catalog.Code(code))
				return known && e.Scope != catalog.Own
			})
			var all []slurmcmd.Remark
			for _, r := range found {
				all = append(all, slurmcmd.Remark(r))
			}
			if err != nil {
				return err
			}
			here, _ := node.LoadConfig(a.env) // an admin's host need not have one
			c.Slurm = a.slurm(here, 30*time.Second)
			return c.Write(all)
		},
	}
	cmd.Flags().IntVar(&c.Most, "limit", 60, "write at most `N` jobs")
	cmd.Flags().BoolVar(&c.Dry, "dry-run", false, "only print what would be written")
	return cmd
}
