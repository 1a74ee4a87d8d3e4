package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"bookend/test/cluster"
	"bookend/test/gpu/record"
)

const (
	rowName = "row-cost"
	// rowLimit is what jobs in a row may take, by their time without Bookend: the project's own goal.
	rowLimit  = 2.5
	rowOf     = 10
	rowRounds = 5
)

// rowCost runs jobs that do nothing, each as soon as the node is free for it, with Bookend's hooks and with hooks that
// do nothing; who comes first changes with each round.
func (l *lane) rowCost(t *record.Timings) {
	l.awaitIdle()
	l.configure("observe", nil)
	p := record.Pair{Name: "ten jobs in a row", Limit: rowLimit, Ours: timing("with Bookend", "all hooks, as shipped"),
		Bare: timing("without", "hooks that do nothing"), What: "srun true, ten times, each waiting for the end of the " +
			"one before it"}
	for _, gpus := range slices.Compact([]int{1, len(l.cards)}) {
		p.Name, p.Ours.Command = fmt.Sprintf("ten jobs in a row, GPUs each: %d", gpus), fmt.Sprintf("srun --gres=gpu:%d true", gpus)
		p.Bare.Command = p.Ours.Command
		l.row(gpus) // the first end tests
		l.turns(t, rowRounds, p, func() time.Duration { return l.row(gpus) }, func() time.Duration {
			defer l.idleHooks()()
			return l.row(gpus)
		})
	}
}

// row is how long ten jobs take, one after the other, until the node is free again.
func (l *lane) row(gpus int) time.Duration {
	began := time.Now()
	for range rowOf {
		must(l.site.Srun(l.site.Users[0], fmt.Sprintf("--gres=gpu:%d", gpus), "--nodelist="+l.node, "true"))
	}
	must(l.site.WaitNode(l.node, oneRun, func(n cluster.NodeState) bool { return n.Has("IDLE") && !n.Has("COMPLETING") }))
	return time.Since(began)
}

// idleHooks puts hooks that do nothing in the place of Slurm's, until back.
func (l *lane) idleHooks() (back func()) {
	names := []string{"prolog", "epilog", "task-prolog", "task-epilog"}
	for _, name := range names {
		file := cluster.HookFile(l.site.Cluster.Dir(), name)
		try(os.Rename(file, file+".ours"))
		try(os.WriteFile(file, []byte("#!/bin/sh\nexit 0\n"), 0o755))
	}
	return func() {
		for _, name := range names {
			file := cluster.HookFile(l.site.Cluster.Dir(), name)
			try(os.Rename(file+".ours", file))
		}
	}
}
