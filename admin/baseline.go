package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
	"bookend/internal/gpu"
	"bookend/internal/inventory"
	"bookend/internal/report"
)

// nameWidth bounds names from outside in a line.
const nameWidth = 48

func baselineCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "baseline", Short: "show, accept or reset the memory that GPUs use without any job",
		Long: `Lists the memory that each GPU uses without any job. Bookend learns what the node's
services use; an admin can accept more. It is valid until the driver is reloaded.`,
		Args: none,
		RunE: func(*cobra.Command, []string) error { return a.listBaselines() },
	}
	cmd.AddCommand(acceptCommand(a), resetCommand(a))
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return misused(cmd, fmt.Sprintf("no such command: %q: want accept GPU, reset UUID, reset all, or nothing",
				args[0]))
		}
		return nil
	}
	a.perNode(cmd)
	a.inJSON(cmd)
	return cmd
}

const cardNames = "GPU is a UUID, a PCI bus id or nvidiaN: bookend snapshot shows them."

func resetCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reset UUID|all", Short: "remove the baseline of a GPU, or of all",
		Long:              "Removes the baseline of a GPU. What services use is learned again at the next job's start.",
		Args:              operands(1, 1, "a UUID, as bookend baseline shows it, or all"),
		RunE:              func(_ *cobra.Command, args []string) error { return a.resetBaseline(args[0]) },
		ValidArgsFunction: firstOnly(fixed("all")),
	}
	a.perNode(cmd)
	return cmd
}

// listBaselines writes what is on record of each card. A baseline holds for one epoch of the driver.
func (a *app) listBaselines() error {
	cfg := a.config()
	all, err := read(a.env, cfg.Paths, a.node)
	if err != nil {
		return err
	}
	cards, err := all.store.Baselines()
	if err != nil {
		return err
	}
	now, booted := inventory.ReadEpoch(cfg.Paths.Proc, cfg.Paths.Sys), a.env.Clock.Booted()
	d := answer.NewBaselines(all.node)
	for _, id := range slices.Sorted(maps.Keys(cards)) {
		d.Cards = append(d.Cards, answer.NewBaseline(cards[id], now, booted))
	}
	return a.write(func() any { return d }, func(w io.Writer) {
		if len(d.Cards) == 0 {
			fmt.Fprintf(w, "no GPU of node %s carries anything without a job, as far as is on record\n", all.node)
		}
		for _, b := range d.Cards {
			fmt.Fprintf(w, "%s  %s\n", report.Keep(b.UUID, nameWidth), carried(b))
			for _, r := range b.Residents {
				fmt.Fprintf(w, "  PID %d (%s), %s\n", r.PID, report.Keep(r.Service, nameWidth),
					answer.Figure(gpu.Bytes(r.Bytes)))
			}
		}
	})
}

// carried words one baseline.
func carried(b answer.Baseline) string {
	text := fmt.Sprintf("%s without a process", answer.Figure(gpu.Bytes(b.Bytes)))
	if b.Holder != "" {
		text += ", held by " + string(report.Keep(b.Holder, nameWidth))
	}
	how := "learned"
	if b.Accepted {
		how = "accepted"
	}
	if b.At == nil {
		return text + ", " + how + " before the last driver reload or reboot: no longer counts"
	}
	return fmt.Sprintf("%s, %s %s", text, how, b.At.Local().Format("2006-01-02 15:04:05"))
}

// resetBaseline forgets the baseline of one card, or of all.
func (a *app) resetBaseline(name string) error {
	cfg := a.config()
	all, err := read(a.env, cfg.Paths, a.node)
	if err != nil {
		return err
	}
	cards, err := all.store.Baselines()
	if err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(cards))
	if name != "all" {
		if ids = []gpu.ID{gpu.ID(name)}; cards[ids[0]].GPU == "" {
			return notFound(fmt.Sprintf("no baseline of %s on node %s: bookend baseline shows which there are",
				plain(ids[0]), all.node))
		}
	}
	if err := all.store.DropBaselines(ids...); err != nil {
		return err
	}
	more := "s"
	if len(ids) == 1 {
		more = ""
	}
	fmt.Fprintf(a.env.Stdout, "forgotten: %d baseline%s; what services hold is learned again at the next job's "+
		"start\n", len(ids), more)
	return nil
}
