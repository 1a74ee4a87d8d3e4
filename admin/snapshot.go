package main

import (
	"fmt"
	"time"

	"bookend/internal/config"
	"bookend/internal/inventory"
	"bookend/internal/stage"
	"bookend/internal/view"
)

// snapshot asks the driver once, for every GPU of the node.
func snapshot(env stage.Env, _ call) int {
	cfg, problem := stage.LoadConfig(env)
	if problem != "" {
		fmt.Fprintf(env.Stderr, "bookend: %s\n", problem)
	}
	s, who, err := stage.Snapshot(env, cfg)
	booted := env.Clock.Wall().Add(-env.Clock.Boot())
	view.Snapshot(env.Stdout, s, who, func(boot time.Duration) time.Time { return booted.Add(boot) })
	if err != nil {
		return fail(env, err)
	}
	tests(env, cfg)
	return exitOK
}

// tests adds the cards' last tests, where this node's hooks keep any.
func tests(env stage.Env, cfg config.Config) {
	all, err := read(env, cfg.Paths, "")
	if err != nil {
		return // no hook has run here yet
	}
	records, err := all.store.Probes()
	if err != nil {
		fmt.Fprintf(env.Stderr, "bookend: %v\n", err)
	}
	view.Tests(env.Stdout, records, inventory.ReadEpoch(cfg.Paths.Proc, cfg.Paths.Sys))
}
