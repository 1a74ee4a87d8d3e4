package main

import (
	"fmt"
	"slices"

	"bookend/internal/answer"
	"bookend/internal/config"
	"bookend/internal/ledger"
	"bookend/internal/operation"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// records are all runs of a node: those in memory first, then the history on disk.
type records struct {
	node    string
	store   *state.Store
	runs    []ledger.Run
	damaged []state.Damage
}

// read opens a node's records; an empty name means this host's only node.
func read(env operation.Env, paths config.Paths, node string) (records, error) {
	if env.EUID != 0 {
		return records{}, denied("needs root: the records of a node's jobs are for root alone; bookend show JOBID " +
			"shows a job of your own")
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
		return records{}, notFound(fmt.Sprintf("no records in %q, which is expected before the first GPU job",
			paths.Run))
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
		if answer.Names(ref, run) {
			out = append(out, run)
		}
	}
	return out
}

// unreadable says that some records could not be read; empty where all could.
func (r records) unreadable() string {
	if len(r.damaged) == 0 {
		return ""
	}
	return fmt.Sprintf("bookend: damaged records on this node: %d (bookend history names them)\n", len(r.damaged))
}
