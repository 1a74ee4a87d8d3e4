package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/condition"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/state"
)

func baselineCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "baseline", Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return noCommand("accept GPU, reset UUID, reset all, or nothing")(cmd, args)
		},
		RunE: a.onRecords(func(all records, _ []string) error { return listBaselines(a, all) }),
	}
	cmd.AddCommand(
		a.perNode(&cobra.Command{
			Use: "accept", Args: operands(1, 1, "a GPU: a UUID, a PCI bus id or nvidiaN"),
			RunE: a.onRecords(func(all records, args []string) error { return acceptBaseline(a, all, args[0]) }),
		}),
		a.perNode(&cobra.Command{Use: "reset",
			Args: operands(1, 1, "a UUID, as bookend baseline shows it, or all"), ValidArgs: []string{"all"},
			RunE: a.onRecords(func(all records, args []string) error { return resetBaselines(a, all, args[0]) })}))
	return a.perNode(cmd)
}

func listBaselines(a *app, all records) error {
	baselines, err := state.Baselines.Load(all.store)
	if err != nil {
		return err
	}
	if len(baselines) == 0 {
		a.say("no GPU of node %s carries anything without a job, as far as is on record", all.node)
	}
	for _, id := range slices.Sorted(maps.Keys(baselines)) {
		fmt.Fprint(a.env.Stdout, condition.DescribeBaseline(baselines[id], all.epoch(), a.env.Clock.Booted()))
	}
	return nil
}

func resetBaselines(a *app, all records, name string) error {
	baselines, err := state.Baselines.Load(all.store)
	if err != nil {
		return err
	}
	ids := slices.Collect(maps.Keys(baselines))
	if name != "all" {
		ids = []gpu.ID{gpu.ID(name)}
		if baselines[ids[0]].GPU == "" {
			return notFound("no baseline of %s on node %s: bookend baseline shows which there are", name, all.node)
		}
	}
	if err := state.Baselines.Drop(all.store, ids...); err != nil {
		return err
	}
	fmt.Fprintf(a.env.Stdout, "baselines forgotten: %d; what services hold is learned again at the next job's start\n",
		len(ids))
	return nil
}

// acceptBaseline makes the memory that a GPU uses without a job or a process its baseline until the driver is reloaded.
// It takes two samples, the second while no probe runs: memory that changes is in use by a process, or is being freed.
func acceptBaseline(a *app, all records, name string) error {
	epoch := all.epoch()
	first, _, err := all.reading(name)
	if err != nil {
		return err
	}
	id := first.Device.ID
	if job := condition.Holding(all.runs, first.Device, epoch); job != "" {
		return fmt.Errorf("refusing to accept what is on %s while job %s has that GPU: wait for its end", id, job)
	}
	busy, release := all.store.Turns.Quiet([]gpu.ID{id}, quietTime)
	defer release()
	second, now, err := all.reading(string(id))
	if err != nil {
		return err
	}
	limits := record.NewLimits(all.cfg.Thresholds.Bytes())
	b, refused := condition.SettledBaseline(first, second, now.Who, limits, all.unread(id), busy[id])
	if refused != nil {
		return fmt.Errorf("refusing to accept what is on %s: %w", id, refused)
	}
	b.At, b.Epoch = now.Snapshot.At, epoch
	if err := state.Baselines.Put(all.store, b); err != nil {
		return err
	}
	fmt.Fprintf(a.env.Stdout, "accepted: %s on %s count as the GPU's own until the driver is reloaded; undo: bookend "+
		"baseline reset %s\n", gpu.Size(b.Bytes), id, id)
	return nil
}

// reading samples the GPUs, and returns what was read of the one with this UUID, bus ID or nvidiaN, and the sample.
func (r records) reading(name string) (gpu.Reading, node.Glance, error) {
	now := r.askDriver(time.Duration(r.cfg.Deadlines.Epilog.Driver), false)
	if now.Problem != "" {
		return gpu.Reading{}, now, fmt.Errorf("ask driver: %.200q", now.Problem)
	}
	i := slices.IndexFunc(now.Snapshot.Readings, func(r gpu.Reading) bool { return r.Device.Named(name) })
	if i < 0 {
		return gpu.Reading{}, now, notFound("no such GPU: %q; bookend snapshot shows them", name)
	}
	return now.Snapshot.Readings[i], now, nil
}

// unread returns an error if a job may have the GPU although no readable record shows it.
func (r records) unread(id gpu.ID) error {
	if i := slices.IndexFunc(r.damaged, func(d state.Damage) bool { return d.Unread }); i >= 0 {
		return fmt.Errorf("a job may have that GPU: %w", r.damaged[i])
	}
	damaged, err := r.store.Damaged()
	if i := slices.IndexFunc(damaged, func(d record.Damaged) bool { return d.MayHold(id) }); i >= 0 {
		return fmt.Errorf("job %d may have that GPU: its record is damaged", damaged[i].Job)
	}
	return err
}
