package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"bookend/internal/page"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/internal/view"
)

func showCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show"}
	cmd.Flags().BoolVar(&a.check, "exit-code", false, "exit 1 if something was found")
	return ofJob(a, cmd, show)
}

func whyCommand(a *app) *cobra.Command {
	cmd := ofJob(a, &cobra.Command{Use: "why"}, why)
	cmd.Args = operands(0, 1, "JOBID")
	return cmd
}

// ofJob makes a command take a job: root gets all records of the node, users get the reports of their own job. show
// returns the document of a job's runs, and whether something was found.
func ofJob(a *app, cmd *cobra.Command, show func(ref slurm.Ref, runs []record.Run, all records) (view.Document, bool),
) *cobra.Command {
	cmd.Args = operands(1, 1, "JOBID")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return lastFailed(a, cmd)
		}
		ref, err := slurm.ParseRef(args[0])
		switch {
		case err != nil:
			return misused(cmd, err.Error())
		case a.env.EUID != 0 && a.check:
			return denied("--exit-code is about what was found, which is in root's records")
		case a.env.EUID != 0:
			return ownReport(a, ref)
		}
		all, err := a.records()
		if err != nil {
			return err
		}
		if n := len(all.damaged); n > 0 {
			a.warn(fmt.Sprintf("damaged records on this node: %d (bookend history names them)", n))
		}
		is := func(r record.Run) bool { return ref.Selects(r.Job, r.Display.Array) }
		runs := record.Newest(page.Filter{Of: is}.Pick(all.runs))
		if len(runs) == 0 {
			return notFound("no record of job %s on node %s; elsewhere: srun -w NODE bookend why %[1]s", ref.Text,
				all.node)
		}
		slices.Reverse(runs)
		slices.SortStableFunc(runs, func(x, y record.Run) int { return cmp.Compare(x.Job.ID, y.Job.ID) })
		return a.write(show(ref, runs, all))
	}
	return a.perNode(a.inJSON(cmd))
}

func why(ref slurm.Ref, runs []record.Run, all records) (view.Document, bool) {
	var start, end, running string
	last := record.Newest(runs)[0]
	if last.Start != nil {
		start = last.Start.Report
	}
	if last.Closed() {
		end = last.Last().Report
	} else if r, err := all.store.Users.Report(last.Job.UID, last.Job.Owner()); err == nil {
		running = r.Running
	}
	clean := last.Start != nil && last.Start.Report == "" && last.Start.Verdict.Code == "" // else not known
	return view.NewOwnReport("node", all.node, ref.Text, clean, start, end, running), false
}

func show(ref slurm.Ref, runs []record.Run, all records) (view.Document, bool) {
	return view.NewShow(all.node, ref.Text, runs, all.runs, state.Recorded.Peek(all.store).Runs), found(runs)
}

func found(runs []record.Run) bool { return len(page.Filter{Found: true}.Pick(runs)) > 0 }

// ownReport shows the reports of a user's own job. It opens them as that user, so the kernel checks the permission.
func ownReport(a *app, ref slurm.Ref) error {
	cfg := a.config()
	node := nodeOf(a.env, cfg.Paths, a.node)
	// Threat: none: the file is opened as the calling user, and only the job's own user can read it.
	users := state.Users{Run: cfg.Paths.Run, Node: node}
	r, err := users.Report(uint32(a.env.EUID), slurm.Owner{ID: ref.ID, SLUID: ref.SLUID})
	if ref.Sign != "" { // a task or component, which has an id of its own here: only the spool has its name
		err = fs.ErrNotExist
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		if answered, err := elsewhere(a, cfg, ref); answered {
			return err
		}
		// Both errors have one text, so that it does not reveal whether another user's job ran here.
		const text = "bookend: no report of job %s for you on %s: not yours, no longer kept (its output has it), " +
			"or it ran elsewhere: sacct -j %[1]s -o NodeList, then srun -w NODE bookend why %[1]s"
		why := fmt.Sprintf(text, ref.Text, node)
		if ref.Sign != "" {
			why += "; here its own id is needed: squeue -j " + ref.Text + " -O JobArrayID,JobID while it runs"
		}
		return ending{exitDenied, why}
	case err != nil:
		return fmt.Errorf("read the report of job %s: %w", ref.Text, err)
	}
	return a.write(view.NewOwnReport("node", node, ref.Text, r.Clean, r.Text, r.End, r.Running), false)
}
