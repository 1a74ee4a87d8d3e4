package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/config"
	"bookend/internal/node"
	"bookend/internal/probe"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

func quarantineCommand(a *app) *cobra.Command {
	q, reason := slurmcmd.Quarantine{}, ""
	cmd := &cobra.Command{
		Use: "quarantine GPU", Short: "keep one GPU of this node from all jobs, while the others go on",
		Args: operands(1, 1, "a GPU's number in Slurm"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n, _ := fmt.Sscan(args[0], &q.GPU); n == 0 || fmt.Sprint(q.GPU) != args[0] || q.GPU < 0 || q.For < 0 {
				return misused(cmd, "want a GPU's number in Slurm, and no negative time")
			}
			return quarantine(a, q, reason)
		},
	}
	f := cmd.Flags()
	f.StringVar(&reason, "reason", "", "a `TEXT` for bookend status")
	f.DurationVar(&q.For, "for", 0, "how long, as 72h; 0: until it is released")
	f.DurationVar(&q.Wait, "wait", 0, "how long to wait for a job that has the GPU, as 2h")
	f.StringVar(&q.Partition, "partition", "", "the `PARTITION` of the job; default: one that fits, highest tier first")
	f.StringVar(&q.Account, "account", "", "the `ACCOUNT` of the job; default: root's own")
	f.BoolVar(&q.Resume, "resume", false, "end the node's drain once the jobs are in the queue")
	return a.perNode(cmd)
}

func quarantine(a *app, q slurmcmd.Quarantine, reason string) error {
	all, err := a.records()
	if err != nil {
		return err
	}
	q.Slurm, q.Node, q.Clock = all.scontrol(time.Minute), all.node, a.env.Clock.Boot
	q.Keep = func(gpu int, jobs ...slurm.JobID) error {
		is, now := state.LastCheck.Peek(all.store).IDAt(gpu), a.env.Clock.Wall()
		return all.store.Quarantine(state.Quarantine{GPU: gpu, UUID: is, Since: now, Reason: reason}, jobs)
	}
	job, err := q.Begin()
	if err == nil {
		a.say("GPU %d of %s is held by job %d; to end it: bookend release %[1]d", q.GPU, all.node, job)
	}
	return err
}

// forTests returns the access for a test of a GPU: the driver may have to attach it first, twice.
func (r records) forTests() *node.Access {
	access := node.ForRecorder(r.env, r.node)
	access.Store, access.Times.Probe = r.store, config.Duration(20*time.Second)
	return access
}

func testCommand(a *app) *cobra.Command {
	return a.perNode(&cobra.Command{
		Use: "test GPU", Short: "test a GPU and its memory now, on a drained node or in quarantine",
		Args: operands(1, 1, "a GPU: Slurm's number, a UUID, a PCI bus id or nvidiaN"),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := a.records()
			if err != nil {
				return err
			}
			card, found := all.device(args[0], all.askDriver(driverTime, false))
			if !found {
				return notFound("no such GPU: %q; see bookend snapshot", args[0])
			}
			access := all.forTests()
			if open, _ := probe.OpenToJobs(access, all.scontrol(slurmTime), card); open != "" {
				return errors.New(open)
			}
			text, passed := probe.Now(access, card)
			a.say("GPU %d of %s: %s", card.Index, all.node, text)
			return ending{code: map[record.Answer]int{record.No: exitTrouble, record.CannotTell: exitUntold}[passed]}
		},
	})
}

func releaseCommand(a *app) *cobra.Command {
	return a.perNode(&cobra.Command{
		Use: "release GPU", Short: "end the quarantine of a GPU", Args: operands(1, 1, "a GPU's number in Slurm"),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := a.records()
			if err != nil {
				return err
			}
			for _, q := range state.Quarantines.Peek(all.store) {
				if fmt.Sprint(q.GPU) == args[0] {
					if err := all.scontrol(time.Minute).Release(q.Job); err != nil {
						return err
					}
					a.say("the quarantine of GPU %d is ended: job %d is cancelled", q.GPU, q.Job)
					q.GPU = -1 // hooks have to know the job until its epilog, if there is one, removes it
					return all.store.Quarantine(q, []slurm.JobID{q.Job})
				}
			}
			return notFound("GPU %.20q of %s is in no quarantine", args[0], all.node)
		},
	})
}
