package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

func showCommand(a *app) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use: "show JOBID", Short: "show a job's start and end: memory, processes, findings, why it ran out of memory",
		Long: `Shows what Bookend recorded at the start and the end of a job, for each run of it on this
node. JOBID is a job id (1234), a task of an array (1234_7), a component of a
heterogeneous job (1234+1) or a SLUID. The id of an array means all of its tasks here.

Users other than root get the start report of their own job, while Bookend keeps it.`,
		Example: "  bookend show 1234\n  bookend show 1234_7 --json",
		Args:    operands(1, 1, "JOBID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := slurm.ParseRef(args[0])
			if err != nil {
				return misused(cmd, err.Error())
			}
			if a.env.EUID != 0 {
				if check {
					return denied("needs root: what was found at a job's ends, which --exit-code is of, is in " +
						"root's records")
				}
				return a.own(ref)
			}
			return a.show(ref, check)
		},
	}
	a.perNode(cmd)
	a.inJSON(cmd)
	cmd.Flags().BoolVar(&check, "exit-code", false, "exit 1 if something was found")
	return cmd
}

// show writes both ends of a job, every run of it, the oldest first.
func (a *app) show(ref slurm.Ref, check bool) error {
	all, err := read(a.env, a.config().Paths, a.node)
	if err != nil {
		return err
	}
	runs := all.of(ref)
	fmt.Fprint(a.env.Stderr, all.unreadable())
	if len(runs) == 0 {
		return notFound(fmt.Sprintf("no record of job %s on node %s", ref, all.node))
	}
	slices.SortStableFunc(runs, func(x, y ledger.Run) int {
		return cmp.Or(cmp.Compare(x.Job.ID, y.Job.ID), x.LastSeen().Compare(y.LastSeen()))
	})
	s := answer.NewShow(all.node, ref.String(), runs, all.runs)
	err = a.write(func() any { return s }, func(w io.Writer) { s.Text(w) })
	if err == nil && check && len(answer.Filter{Found: true}.Pick(runs)) > 0 {
		return answered(exitTrouble)
	}
	return err
}
