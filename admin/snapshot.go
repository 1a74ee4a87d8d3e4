package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
	"bookend/internal/attrib"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/inventory"
	"bookend/internal/stage"
)

func snapshotCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "snapshot", Short: "show each GPU's memory and processes now, from the driver",
		Long: `Asks the driver about every GPU of the node, and reads the processes on them from /proc.
Root sees their owners and each GPU's last test allocation. Other users see their own
processes, and only the number of others.`,
		Args: none, RunE: func(*cobra.Command, []string) error { return a.snapshot() },
	}
	a.inJSON(cmd)
	return cmd
}

// snapshot asks the driver once, for every GPU of the node.
func (a *app) snapshot() error {
	cfg := a.config()
	s, who, problem := stage.Snapshot(a.env, cfg)
	if a.env.EUID != 0 {
		s, who = ownOnly(s, who, uint32(a.env.EUID))
	}
	var tests map[gpu.ID]health.TestRecord
	if problem == nil {
		tests = a.tests(cfg)
	}
	d := answer.NewSnapshot(s, who, a.env.Clock.Booted().Add)
	d.AddTests(tests, inventory.ReadEpoch(cfg.Paths.Proc, cfg.Paths.Sys))
	if problem != nil {
		d.Problem = problem.Error()
	}
	err := a.write(func() any { return d }, func(w io.Writer) { d.Text(w) })
	if problem != nil {
		return problem
	}
	return err
}

// ownOnly leaves of who is on the cards what is a user's own: of the rest only that it is there, and its size.
func ownOnly(s gpu.Snapshot, who map[int]attrib.Process, uid uint32) (gpu.Snapshot, map[int]attrib.Process) {
	own := map[int]attrib.Process{}
	s.Readings = slices.Clone(s.Readings)
	for i := range s.Readings {
		r := &s.Readings[i]
		r.Processes = slices.Clone(r.Processes)
		for j, p := range r.Processes {
			if owner, known := who[p.PID]; known && owner.UID == uid && !owner.Gone && owner.Why == "" {
				own[p.PID] = owner
			} else {
				r.Processes[j].PID = answer.Others
			}
		}
	}
	own[answer.Others] = attrib.Process{Why: "another user's"}
	return s, own
}

// tests are the cards' last tests, where this node's hooks keep any.
func (a *app) tests(cfg config.Config) map[gpu.ID]health.TestRecord {
	all, err := read(a.env, cfg.Paths, "")
	if err != nil {
		return nil // no hook has run here yet, or they are root's
	}
	records, err := all.store.Probes()
	if err != nil {
		fmt.Fprintf(a.env.Stderr, "bookend: %v\n", err)
	}
	return records
}
