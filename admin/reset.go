package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"bookend/internal/maintenance"
	"bookend/internal/view"
)

func resetCommand(a *app) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{Use: "reset", Args: operands(1, 1, "a GPU: Slurm's number, a UUID, a PCI bus id or nvidiaN"),
		RunE: a.onRecords(func(all records, args []string) error { return reset(a, all, args[0], dry) })}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the plan, or what speaks against it, and change nothing")
	return a.perNode(a.inJSON(cmd))
}

func reset(a *app, all records, name string, dry bool) error {
	release, err := all.store.Turns.Check(0) // nor does a health check open the GPUs meanwhile
	if err != nil {
		return fmt.Errorf("a health check or another reset is at work, try again: %w", err)
	}
	defer release()
	access := all.forTests()
	r, err := maintenance.NewReset(access, all.scontrol(slurmTime), all.runs, a.warn)
	if err == nil && !dry {
		err = r.Finish()
	}
	if err != nil {
		return err
	}
	now := r.SampleAll()
	card, found := all.device(name, now)
	switch {
	case len(now.Snapshot.Readings) == 0 && now.Problem != "":
		return fmt.Errorf("ask driver: %.200q; if that stays, reboot the node", now.Problem)
	case !found:
		return notFound("no such GPU: %q; see bookend snapshot", name)
	}
	r.Report.Version, r.Report.Node = view.Version, all.node
	r.Plan(card, now)
	switch refused := len(r.Report.Refused) > 0; {
	case !refused && !dry:
		r.CarryOut()
	case refused && !dry && len(r.Facts.Counted()) == 1:
		err = r.Refuse()
	}
	return cmp.Or(err, a.write(r.Report, false), error(ending{code: answers[r.Report.Succeeded()]}))
}
