package main

import (
	"fmt"

	"bookend/internal/backend"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/stage"
	"bookend/internal/view"
	"bookend/internal/wire"
)

// status writes the node at a glance, from the records and Slurm's files: it asks no driver and cannot hang.
func status(env stage.Env, c call) int {
	cfg, problem := stage.LoadConfig(env)
	all, err := read(env, cfg.Paths, c.node)
	if err != nil {
		return fail(env, err)
	}
	n := view.Node{Name: all.node, Mode: cfg.Mode, Runs: all.runs, Damaged: all.damaged}
	for _, trouble := range []string{problem, stuck(env, cfg, all), unable(cfg), untold(env, cfg, all.node)} {
		if trouble != "" {
			n.Troubles = append(n.Troubles, trouble)
		}
	}
	view.Status(env.Stdout, n)
	return exitOK
}

// unable says why the hooks cannot start the backend; empty when they can.
func unable(cfg config.Config) string {
	t := backend.Check(backend.Params{Path: cfg.Backend, Root: true}, wire.Options{NVMLLibrary: cfg.NVIDIA.NVMLLibrary})
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%s: the backend cannot be started: %s", t.Code, t.Detail)
}

func stuck(env stage.Env, cfg config.Config, all records) string {
	s, err := all.store.Stuck()
	if err != nil || s == nil || !child.Alive(cfg.Paths.Proc, s.PID, s.StartTicks) {
		return ""
	}
	since := env.Clock.Wall().Add(s.Since - env.Clock.Boot())
	return fmt.Sprintf("driver not answering since %s: PID %d (%s) cannot be killed", since.Format("2006-01-02 15:04:05"), s.PID, s.Op)
}
