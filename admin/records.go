package main

import (
	"errors"
	"fmt"
	"slices"

	"bookend/internal/config"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/stage"
	"bookend/internal/state"
)

// records are all runs of a node: those in memory first, then the history on disk.
type records struct {
	node    string
	store   *state.Store
	runs    []ledger.Run
	damaged []state.Damage
}

// notFound says that nothing is on record of what was asked for.
type notFound string

func (n notFound) Error() string { return string(n) }

// read opens a node's records; an empty name means this host's only node.
func read(env stage.Env, paths config.Paths, node string) (records, error) {
	if env.EUID != 0 {
		return records{}, errors.New("only root may read the records: run as root")
	}
	nodes, err := recorded(paths)
	if err != nil {
		return records{}, err
	}
	switch {
	case node != "" && !slices.Contains(nodes, node):
		return records{}, notFound(fmt.Sprintf("no such node: %q; nodes with records here: %q", node, nodes))
	case node != "":
	case len(nodes) == 1:
		node = nodes[0]
	case len(nodes) == 0:
		return records{}, notFound(fmt.Sprintf("no records in %q: has a GPU job run here yet?", paths.Run))
	default:
		return records{}, fmt.Errorf("records of several nodes in %q: name one of %q with --node", paths.Run, nodes)
	}
	return load(paths, node)
}

// recorded are the nodes with records: of this boot, or of earlier ones alone.
func recorded(paths config.Paths) ([]string, error) { return state.Nodes(paths.Run, paths.Var) }

func load(paths config.Paths, node string) (records, error) {
	store, err := state.Open(paths.Run, node)
	if err != nil {
		return records{}, err
	}
	r := records{node: node, store: store}
	r.runs, r.damaged = store.Runs()
	known := map[string]bool{}
	for _, run := range r.runs {
		known[id(run)] = true
	}
	old, damaged := state.History(paths.Var, node)
	for _, run := range old {
		if !known[id(run)] {
			r.runs = append(r.runs, run)
		}
	}
	r.damaged = append(r.damaged, damaged...)
	return r, nil
}

func id(r ledger.Run) string { return fmt.Sprintf("%d/%s", r.Job.ID, r.Key) }

// of returns the runs that a reference names, in the order of records.
func (r records) of(ref slurm.Ref) []ledger.Run {
	var out []ledger.Run
	for _, run := range r.runs {
		if names(ref, run) {
			out = append(out, run)
		}
	}
	return out
}

func names(ref slurm.Ref, run ledger.Run) bool {
	switch ref.Kind {
	case slurm.RefRun:
		return run.Job.SLUID == ref.SLUID
	case slurm.RefArray:
		return run.Display.Array.Master == ref.ID && run.Display.Array.Task == ref.Part
	case slurm.RefHet:
		return run.Job.HetJobID == ref.ID && run.Job.ID == ref.ID+slurm.JobID(ref.Part)
	}
	return run.Job.ID == ref.ID
}
