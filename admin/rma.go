package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/condition"
	"bookend/internal/config"
	"bookend/internal/doctor"
	"bookend/internal/maintenance"
	"bookend/internal/node"
	"bookend/internal/page"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/view"
)

func rmaCommand(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{Use: "rma", Args: operands(1, 1, "a GPU"),
		RunE: a.onRecords(func(all records, args []string) error { return rma(a, all, args[0], file) })}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to `FILE`; default: a new one in the current directory")
	return a.perNode(cmd)
}

func rma(a *app, all records, name, file string) error {
	now := all.askDriver(time.Duration(all.cfg.Deadlines.Epilog.Driver), true)
	d, found := all.device(name, now)
	if !found {
		return notFound("no such GPU: %q; see bookend snapshot", name)
	}
	t := doctor.Ticket{Node: all.node, Made: a.env.Clock.Wall(), Paths: all.cfg.Paths, Device: d.Device,
		Runs: record.Newest(all.runs), Glance: now, Programs: config.NVIDIAPrograms}
	const kept = 90 * 24 * time.Hour // what records are
	for _, s := range condition.StruckBy(all.runs, now.Snapshot, all.cfg.Strikes.Faults, kept, t.Made) {
		if s.Device.ID == d.Device.ID {
			t.Faults = s.Faults
		}
	}
	memory, err := all.store.Drain()
	t.Drain = string(memory.Words())
	t.Diagnoses, _ = maintenance.Diagnoses(all.access())
	if err != nil {
		a.warn(err)
	}
	data, err := t.Archive()
	if err == nil {
		file = cmp.Or(file, t.FileName())
		// Threat: another user's link in the path, to a file for root to overwrite: Create refuses and replaces none.
		err = safefile.Create(file, data, false)
	}
	if err != nil {
		return fmt.Errorf("rma: %w", err)
	}
	a.say("written: %s: read summary.txt in it before you send it", file)
	return nil
}

// device returns a GPU by its name: one that the driver has now, else the one that the newest record has. Slurm may
// have other numbers since that record.
func (r records) device(name string, now node.Glance) (record.Assigned, bool) {
	var all []record.Assigned
	for _, g := range view.NewGPUs(r.readings(now)) {
		all = append(all, record.Assigned{Index: *cmp.Or(g.Index, new(-1)), Device: g.Device})
	}
	first := len(all)
	kept := node.Numbering.PeekNode(r.cfg.Paths.Run, r.node)
	all = kept.Renumber(page.WithRecorded(all, r.runs), r.cfg.NVIDIA.GPUMap)
	return page.Filter{GPU: name}.FirstGPU(all, first)
}
