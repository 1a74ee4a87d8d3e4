package main

import (
	"errors"
	"fmt"

	"bookend/internal/backend"
	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/metrics"
	"bookend/internal/slurm"
	"bookend/internal/stage"
	"bookend/internal/state"
	"bookend/internal/view"
	"bookend/internal/wire"
)

// status writes the node at a glance: from the records, the counts, Slurm's files, and a look at what hooks need. It asks
// no driver. Where the records cannot be opened it says all the rest, and ends with why.
func status(env stage.Env, c call) int {
	cfg, problem := stage.LoadConfig(env)
	all, unread := read(env, cfg.Paths, c.node)
	if env.EUID != 0 || errors.As(unread, new(notFound)) && c.node != "" {
		return fail(env, unread)
	}
	name := all.node
	if unread != nil {
		name = nodeOf(cfg.Paths, c.node)
	}
	n := view.Node{Name: name, Mode: cfg.Mode, At: env.Clock.Wall(), Runs: all.runs, Damaged: all.damaged, Well: map[code.Code]bool{}}
	look(&n, code.BadConfig, problem)
	t := backend.Check(backend.Params{Path: cfg.Backend, Root: true}, wire.Options{NVMLLibrary: cfg.NVIDIA.NVMLLibrary})
	if t != nil {
		look(&n, t.Code, "the backend cannot be started: "+t.Detail)
	}
	n.Well[code.BackendRefused] = t == nil
	if unread == nil {
		look(&n, code.Stuck, stuck(env, cfg, all))
		look(&n, "", drained(&n, all))
	}
	for _, r := range rooms(cfg) {
		look(&n, r.Code, r.Text)
	}
	look(&n, "", unseen(cfg, all))
	look(&n, "", untold(env, cfg, name))
	counted(&n, cfg)
	if unread != nil && len(n.Now)+len(n.Met) == 0 {
		return fail(env, unread)
	}
	view.Status(env.Stdout, n)
	if unread != nil {
		return fail(env, unread)
	}
	return exitOK
}

// look notes a trouble, or that there is none of its kind.
func look(n *view.Node, c code.Code, trouble string) {
	switch {
	case trouble != "":
		n.Now = append(n.Now, view.Trouble{Code: c, Text: trouble})
	case c != "":
		n.Well[c] = true
	}
}

// counted adds what the hooks have counted.
func counted(n *view.Node, cfg config.Config) {
	s, err := metrics.Read(cfg.Paths.Var)
	if err != nil {
		look(n, "", fmt.Sprintf("what the hooks have counted cannot be read: %v", err))
	}
	n.Met, n.Last = s.Troubles, s.Last
}

func stuck(env stage.Env, cfg config.Config, all records) string {
	s, err := all.store.Stuck()
	if err != nil || s == nil || !child.Alive(cfg.Paths.Proc, s.PID, s.StartTicks) {
		return ""
	}
	since := env.Clock.Wall().Add(s.Since - env.Clock.Boot())
	return stage.StuckText(*s, since.Format("2006-01-02 15:04:05"))
}

// drained adds what is remembered of the node's drain; its trouble is that nothing can be.
func drained(n *view.Node, all records) string {
	m, err := all.store.Drain()
	if err != nil {
		return fmt.Sprintf("what is remembered of the node's drain cannot be read: %v", err)
	}
	n.Drain = m
	return ""
}

// unseen is the trouble of jobs that use GPUs while no hook has run for them; empty where all are on record, on any of
// this host's nodes.
func unseen(cfg config.Config, all records) string {
	nodes, err := recorded(cfg.Paths)
	if err != nil {
		return "" // said already
	}
	runs := all.runs
	for _, node := range nodes {
		if store, err := state.Open(cfg.Paths.Run, node); err == nil && node != all.node {
			others, _ := store.Runs()
			runs = append(runs, others...)
		}
	}
	for _, job := range stage.JobsOnCards(cfg) {
		known := false
		for _, r := range runs {
			known = known || job.SLUID != "" && r.Job.SLUID == job.SLUID || job.ID != 0 && r.Job.ID == job.ID
		}
		if !known {
			return fmt.Sprintf("job %s uses a GPU and no hook has run for it: it began before Bookend was installed, or Prolog and Epilog are not set in slurm.conf", jobName(job))
		}
	}
	return ""
}

func jobName(job slurm.Owner) string {
	if job.ID != 0 {
		return fmt.Sprint(job.ID)
	}
	return string(job.SLUID)
}
