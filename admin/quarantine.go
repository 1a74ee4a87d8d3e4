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
	"bookend/internal/slurmcmd"
)

func quarantineCommand(a *app) *cobra.Command {
	q, reason, wait := slurmcmd.Quarantine{}, "", time.Duration(0)
	cmd := &cobra.Command{
		Use: "quarantine GPU", Short: "keep one GPU of this node from all jobs, while the others go on",
		Args: operands(1, 1, "a GPU's number in Slurm"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n, _ := fmt.Sscan(args[0], &q.GPU); n == 0 || fmt.Sprint(q.GPU) != args[0] || q.GPU < 0 || q.For < 0 {
				return misused(cmd, "want a GPU's number in Slurm, and no negative time")
			}
			all, err := a.records()
			if err != nil {
				return err
			}
			q.Slurm = all.scontrol(time.Minute)
			held, err := probe.Quarantine(all.access(), q, wait, reason)
			if held.Job != 0 {
				a.say("GPU %d of %s is held by job %d; to end it: bookend release %[1]d", q.GPU, all.node, held.Job)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&reason, "reason", "", "a `TEXT` for bookend status")
	f.DurationVar(&q.For, "for", 0, "how long, as 72h; 0: until it is released")
	f.DurationVar(&wait, "wait", 0, "how long to wait for a job that has the GPU, as 2h")
	f.StringVar(&q.Partition, "partition", "", "the `PARTITION` of the job; default: one that fits, highest tier first")
	f.StringVar(&q.Account, "account", "", "the `ACCOUNT` of the job; default: root's own")
	f.BoolVar(&q.Resume, "resume", false, "end the node's drain once the jobs are in the queue")
	return a.perNode(cmd)
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
			found, err := probe.Release(all.access(), all.scontrol(time.Minute), args[0])
			switch {
			case err == nil && found:
				a.say("the quarantine of GPU %s is ended", args[0])
			case err == nil:
				return notFound("GPU %.20q of %s is in no quarantine", args[0], all.node)
			}
			return err
		},
	})
}
