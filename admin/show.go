package main

import (
	"fmt"

	"bookend/internal/slurm"
	"bookend/internal/stage"
	"bookend/internal/view"
)

// show writes both ends of a job, every run of it.
func show(env stage.Env, c call) int {
	ref, err := slurm.ParseRef(c.args[0])
	if err != nil {
		fmt.Fprintf(env.Stderr, "bookend: %v\n", err)
		return exitUsage
	}
	cfg, problem := stage.LoadConfig(env)
	if problem != "" {
		fmt.Fprintf(env.Stderr, "bookend: %s\n", problem)
	}
	all, err := read(env, cfg.Paths, c.node)
	if err != nil {
		return fail(env, err)
	}
	runs := all.of(ref)
	if len(runs) == 0 {
		fmt.Fprintf(env.Stderr, "bookend: no record of job %s on node %s\n", ref, all.node)
		return exitNotFound
	}
	for i, run := range runs {
		if i > 0 {
			fmt.Fprintln(env.Stdout)
		}
		view.Job(env.Stdout, run)
	}
	return exitOK
}
