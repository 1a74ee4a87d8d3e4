package main

import (
	"fmt"
	"time"

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
	return exitOK
}
