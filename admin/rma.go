package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/condition"
	"bookend/internal/config"
	"bookend/internal/doctor"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/state"
	"bookend/internal/view"
)

// struck returns the GPUs with faults that the records prove. If the driver answered, GPUs that it does not have any
// more are left out.
func (r records) struck(now node.Glance, within time.Duration) []record.Struck {
	var last *record.Check
	if r.store != nil {
		last, _ = state.LastCheck.Load(r.store) // "bookend status" reports an unreadable one
	}
	return condition.History{Runs: r.runs, Check: last, Now: now.Snapshot, Faults: r.cfg.Strikes.Faults, Within: within,
		At: r.env.Clock.Wall()}.Struck()
}

func rmaCommand(a *app) *cobra.Command {
	var file string
	var bugReport bool
	cmd := &cobra.Command{
		Use: "rma GPU", Short: "collect what a vendor's ticket about a bad GPU needs",
		Long: `Writes an archive for a ticket about one GPU: a page to read first (summary.txt) with its
serial number, firmware, faults on record, counters and what was tried; records, lines
of the kernel log and nvidia-smi -q. There are no names of users, and none of jobs'
programs or files. What cannot be read is named; if the driver does not answer, the
records alone are used.

GPU is Slurm's number, a UUID, a PCI bus id or nvidiaN. An existing file is kept.`,
		Example: "  bookend rma 3\n  bookend rma -o /root/gpu3.tar.gz --bug-report GPU-5a0c...",
		Args:    operands(1, 1, "a GPU"),
		RunE:    func(_ *cobra.Command, args []string) error { return rma(a, args[0], file, bugReport) },
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to `FILE`; default: a new one in the current directory")
	cmd.Flags().BoolVar(&bugReport, "bug-report", false, "run nvidia-bug-report.sh, whose files name users")
	return a.perNode(cmd)
}

func rma(a *app, name, file string, bugReport bool) error {
	all, err := a.records()
	if err != nil {
		return err
	}
	now := all.askDriver(time.Duration(all.cfg.Deadlines.Epilog.Driver), true)
	card, found := all.assigned(name, now)
	if !found {
		return notFound("no such GPU: %q; see bookend snapshot", name)
	}
	t := doctor.Ticket{Node: all.node, Version: a.env.Version, Made: a.env.Clock.Wall(), Paths: all.cfg.Paths,
		Card: card, Runs: record.Newest(all.runs), Glance: now, Programs: config.NVIDIAPrograms, BugReport: bugReport}
	for _, s := range all.struck(now, 90*24*time.Hour) { // records are kept so long
		if s.Device.ID == card.Device.ID {
			t.Faults = s.Faults
		}
	}
	memory, err := all.store.Drain()
	t.Drain = string(memory.Words())
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

// assigned returns a GPU by its name: one that the driver has now, else the one that the newest record has.
func (r records) assigned(name string, now node.Glance) (record.Assigned, bool) {
	var cards []record.Assigned
	for _, g := range view.NewGPUs(r.readings(now)) {
		cards = append(cards, record.Assigned{Index: *cmp.Or(g.Index, new(-1)), Device: g.Device})
	}
	for _, run := range record.Newest(r.runs) {
		cards = append(cards, run.Devices...)
	}
	for _, c := range cards {
		if c.Device.ID != "" && c.Device.Parent == "" && (filter{gpu: name}).isGPU(c) {
			return c, true
		}
	}
	return record.Assigned{}, false
}
