package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
	"bookend/internal/backend"
	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/metrics"
	"bookend/internal/operation"
	"bookend/internal/stage"
	"bookend/internal/state"
)

func statusCommand(a *app) *cobra.Command {
	var records, check bool
	cmd := &cobra.Command{
		Use: "status", Short: "show the node at a glance: driver, GPUs, jobs, findings, errors",
		Long: `Shows the node's mode, whether the driver and Slurm answer, each GPU with its memory,
job and processes, errors with what to do about them, and the last jobs. The driver
has 3 s and Slurm 2 s to answer; if one does not, the rest is shown.`,
		Args: none, RunE: func(*cobra.Command, []string) error { return a.status(records, check) },
	}
	cmd.Flags().BoolVar(&records, "records", false, "use records only: do not ask the driver or Slurm")
	cmd.Flags().BoolVar(&check, "exit-code", false, "exit 1 if something is wrong, 5 if the driver did not answer")
	a.perNode(cmd)
	a.inJSON(cmd)
	return cmd
}

// status writes the node at a glance: from the records, the counts, Slurm's files, a look at what hooks need, and what
// driver and Slurm answer. Where the records cannot be opened it says all the rest, and ends with why.
func (a *app) status(recordsAlone, check bool) error {
	cfg, problem := stage.LoadConfig(a.env)
	all, unread := read(a.env, cfg.Paths, a.node)
	if a.env.EUID != 0 || errors.As(unread, new(notFound)) && a.node != "" {
		return unread
	}
	n := a.condition(cfg, problem, all, unread)
	if unread != nil && len(n.Now)+len(n.Met) == 0 {
		return unread
	}
	if !recordsAlone {
		a.ask(&n, cfg, all)
	}
	s := n.Status()
	err := a.write(func() any { return s }, func(w io.Writer) { s.Text(w) })
	switch {
	case unread != nil || err != nil:
		return errors.Join(unread, err)
	case check && !s.Sound():
		return answered(exitTrouble)
	case check && n.Driver != nil && (n.Driver.Answers == nil || !*n.Driver.Answers):
		return answered(exitUntold)
	}
	return nil
}

// condition is the node as records, counts, files and a look at what hooks need show it.
func (a *app) condition(cfg config.Config, problem string, all records, unread error) answer.Node {
	name := all.node
	if unread != nil {
		name = nodeOf(a.env, cfg.Paths, a.node)
	}
	n := answer.Node{
		Name: name, Mode: cfg.Mode, At: a.env.Clock.Wall(), Runs: all.runs, Damaged: all.damaged,
		Well: map[code.Code]bool{},
	}
	look(&n, code.BadConfig, problem)
	t := backend.Check(backend.Params{Path: cfg.Backend, Root: true}, cfg.NVIDIA.ForLooks())
	if t != nil {
		look(&n, t.Code, "the backend cannot be started: "+t.Detail)
	}
	n.Well[code.BackendRefused] = t == nil
	if unread == nil {
		look(&n, code.Stuck, stuck(a.env, cfg, all))
		look(&n, "", drained(&n, all))
	}
	look(&n, "", unseen(operation.Readers{Config: cfg, Clock: a.env.Clock}, all))
	look(&n, "", untold(a.env, cfg, name))
	counted(&n, cfg)
	a.lastCheck(&n, all)
	return n
}

// lastCheck adds what the last health check found.
func (a *app) lastCheck(n *answer.Node, all records) {
	if all.store == nil {
		return
	}
	c, err := all.store.LastCheck()
	if err != nil {
		look(n, "", fmt.Sprintf("what the last health check saw cannot be read: %v", err))
	}
	if c != nil {
		short := answer.NewCheck(*c)
		n.Check = &short
	}
}

// look notes a trouble, or that there is none of its kind.
func look(n *answer.Node, c code.Code, trouble string) {
	switch {
	case trouble != "":
		n.Now = append(n.Now, answer.Symptom{Code: c, Text: trouble})
	case c != "":
		n.Well[c] = true
	}
}

// counted adds what the hooks have counted.
func counted(n *answer.Node, cfg config.Config) {
	s, err := metrics.Read(cfg.Paths.Var)
	if err != nil {
		look(n, "", fmt.Sprintf("what the hooks have counted cannot be read: %v", err))
	}
	n.Met, n.Last = s.Troubles, s.Last
}

func stuck(env operation.Env, cfg config.Config, all records) string {
	s, err := all.store.Stuck()
	if err != nil || s == nil || !child.Alive(cfg.Paths.Proc, s.PID, s.StartTicks) {
		return ""
	}
	since := env.Clock.Wall().Add(s.Since - env.Clock.Boot())
	return operation.StuckText(*s, since.Format("2006-01-02 15:04:05"))
}

// drained adds what is remembered of the node's drain; its trouble is that nothing can be.
func drained(n *answer.Node, all records) string {
	m, err := all.store.Drain()
	if err != nil {
		return fmt.Sprintf("what is remembered of the node's drain cannot be read: %v", err)
	}
	n.Drain = m
	return ""
}

// unseen is the trouble of jobs that use GPUs while no hook has run for them; empty where all are on record, on any of
// this host's nodes.
func unseen(readers operation.Readers, all records) string {
	cfg := readers.Config
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
	for _, job := range operation.JobsOnCards(readers) {
		known := false
		for _, r := range runs {
			known = known || job.SLUID != "" && r.Job.SLUID == job.SLUID || job.ID != 0 && r.Job.ID == job.ID
		}
		if !known {
			return fmt.Sprintf("job %s uses a GPU and no hook has run for it: it began before Bookend was installed, "+
				"or Prolog and Epilog are not set in slurm.conf", job.Name())
		}
	}
	return ""
}
