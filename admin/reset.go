package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/child"
	"bookend/internal/condition"
	"bookend/internal/node"
	"bookend/internal/probe"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/internal/view"
)

func resetCommand(a *app) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use: "reset GPU", Short: "reset a GPU that no job can get, and prove that it is well",
		Args: operands(1, 1, "a GPU: Slurm's number, a UUID, a PCI bus id or nvidiaN"),
		RunE: func(_ *cobra.Command, args []string) error { return reset(a, args[0], dry) },
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the plan, or what speaks against it, and change nothing")
	return a.perNode(a.inJSON(cmd))
}

func reset(a *app, name string, dry bool) error {
	all, err := a.records()
	if err != nil {
		return err
	}
	release, err := all.store.Turns.Check() // nor does a health check open the GPUs meanwhile
	if err != nil {
		return fmt.Errorf("a health check or another reset is at work, try again: %w", err)
	}
	defer release()
	r, err := probe.NewReset(all.forTests(), all.resets(), a.warn)
	if err == nil && !dry {
		err = r.Finish()
	}
	if err == nil {
		err = all.inspect(r, name)
	}
	if err != nil {
		return err
	}
	switch refused := len(r.Report.Refused) > 0; {
	case !refused && !dry:
		all.carryOut(a, r)
	case refused && !dry && len(r.Facts.Counted()) == 1:
		err = r.Refuse()
	}
	code := map[record.Answer]int{record.No: exitTrouble, record.CannotTell: exitUntold}[r.Report.Succeeded()]
	return cmp.Or(err, a.write(r.Report, false), error(ending{code: code}))
}

// resets are on disk: whether one was tried counts beyond a reboot.
func (r records) resets() child.Journal[[]condition.ResetAttempt] {
	return child.Journal[[]condition.ResetAttempt]{Dir: r.cfg.Paths.Var, Name: "resets-" + r.node + ".json"}
}

// inspect fills in what is known of the GPU before the reset, and makes the plan.
func (r records) inspect(to *probe.Reset, name string) error {
	to.Look = func() node.Glance { return r.askDriver(time.Duration(r.cfg.Deadlines.Epilog.Driver), true) }
	to.Report.Version, to.Report.Node = view.Version, r.node
	now := to.Look()
	card, found := r.device(name, now)
	switch {
	case len(now.Snapshot.Readings) == 0 && now.Problem != "":
		return fmt.Errorf("ask driver: %.200q; if that stays, reboot the node", now.Problem)
	case !found:
		return notFound("no such GPU: %q; see bookend snapshot", name)
	}
	f := &to.Facts
	f.Card, f.Now = card, r.env.Clock.Wall()
	to.Open = func() (why string, idle bool) {
		why, idle = r.openTo(card)
		if job := condition.Holding(r.runs, card.Device, r.epoch()); job != "" && !idle {
			why = cmp.Or(why, fmt.Sprintf("job %s has it: wait for its end", job))
		}
		if nodes, err := state.Nodes(r.cfg.Paths.Run, ""); len(nodes) > 1 || err != nil {
			why = cmp.Or(why, "several nodes of Slurm share the GPUs of this host: a job of another may have it")
		}
		return why, idle
	}
	to.Plan(now)
	return nil
}

// carryOut resets the GPU, and ends the node's drain if that is ours, for this GPU alone, and the proof holds.
func (r records) carryOut(a *app, to *probe.Reset) {
	release, err := r.store.Turns.EndRecorder(15 * time.Second)
	if err != nil {
		to.Report.Failed = fmt.Sprintf("the recorder does not step aside: %v", err)
		return
	}
	defer release()
	to.CarryOut()
	if !to.Report.Done || to.Report.Proven == record.No || len(to.Changes.Undone()) > 0 {
		return
	}
	if r.isQuarantined(to.Facts.Card) {
		to.Report.Next = append(to.Report.Next, fmt.Sprintf("bookend release %d", to.Facts.Card.Index))
	}
	memory, _ := r.store.Drain()
	left := r.scontrol(slurmTime).ResumeIf(r.node, func(n slurm.Node) bool {
		return to.Report.Proven == record.Yes && memory.IsOnlyFor(to.Report.GPU, n, r.runs, to.Facts.Boot)
	})
	to.Report.Next = append(to.Report.Next, left...)
}
