package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/config"
	"bookend/internal/maintenance"
	"bookend/internal/node"
	"bookend/internal/slurmcmd"
)

func quarantineCommand(a *app) *cobra.Command {
	q, reason, wait, whole := slurmcmd.Quarantine{}, "", time.Duration(0), false
	cmd := &cobra.Command{
		Use: "quarantine", RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseUint(strings.Join(args, " "), 10, 16)
			if (err != nil || fmt.Sprint(n) != args[0]) != whole || whole && len(args) > 0 || q.For < 0 {
				return misused(cmd, "want a GPU's number in Slurm or --all-gpus, and no negative time")
			}
			if !whole {
				q.GPUs = []int{int(n)}
			}
			all, err := a.records()
			if err != nil {
				return err
			}
			q.Slurm = all.scontrol(time.Minute)
			held, err := maintenance.Quarantine(all.access(), q, wait, reason)
			for _, h := range held {
				a.say("GPU %d of %s is held by job %d; to end it: bookend release %[1]d", h.GPU, all.node, h.Job)
			}
			if err != nil && whole && len(held) > 0 {
				err = fmt.Errorf("these stay held (bookend release --all-gpus ends that): %w", err)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&whole, "all-gpus", false, "all GPUs of the node: only jobs without GPUs go on")
	f.StringVar(&reason, "reason", "", "a `TEXT` for bookend status")
	f.DurationVar(&q.For, "for", 0, "how long, as 72h or 90m; 0: until it is released")
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
		Use: "test", Args: operands(1, 1, "a GPU: Slurm's number, a UUID, a PCI bus id or nvidiaN"),
		RunE: a.onRecords(func(all records, args []string) error {
			card, found := all.device(args[0], all.askDriver(driverTime, false))
			if !found {
				return notFound("no such GPU: %q; see bookend snapshot", args[0])
			}
			access := all.forTests()
			if open, _ := maintenance.OpenToJobs(access, all.scontrol(slurmTime), card); open != "" {
				return errors.New(open)
			}
			text, passed := maintenance.TestNow(access, card)
			a.say("GPU %d of %s: %s", card.Index, all.node, text)
			return ending{code: answers[passed]}
		}),
	})
}

func diagnoseCommand(a *app) *cobra.Command {
	d := maintenance.Diagnose{Say: a.say}
	cmd := &cobra.Command{
		Use: "diagnose", Args: operands(0, 1, "a node's name in Slurm"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.node = strings.Join(args, "")
			all, err := a.open(a.config())
			if err != nil && (a.node == "" || a.env.EUID != 0) || d.Level != 2 && d.Level != 3 {
				return cmp.Or(err, misused(cmd, "want --level 2 or 3"))
			}
			all.node = cmp.Or(all.node, a.node) // of another host there are no records
			d.Access, d.Slurm = all.forTests(), all.scontrol(time.Minute)
			passed, err := d.Perform()
			return cmp.Or(err, error(ending{code: answers[passed]}))
		},
	}
	cmd.Flags().IntVar(&d.Level, "level", 2, "of dcgmi diag: 2 takes minutes, 3 about 15")
	cmd.Flags().BoolVar(&d.Dry, "dry-run", false, "print what would be done")
	cmd.Flags().BoolVar(&d.Submit, "submit", false, "if jobs may be on the node, submit a job that has it alone")
	return cmd
}

func releaseCommand(a *app) *cobra.Command {
	whole := false
	cmd := &cobra.Command{
		Use: "release", RunE: func(cmd *cobra.Command, args []string) error {
			number := strings.Join(args, " ")
			if len(args) > 1 || whole == (number != "") {
				return misused(cmd, "want a GPU's number in Slurm, or --all-gpus")
			}
			all, err := a.records()
			if err != nil {
				return err
			}
			found, err := maintenance.Release(all.access(), all.scontrol(time.Minute), number)
			what := map[bool]string{true: "each GPU", false: "GPU " + number}[whole]
			switch {
			case err == nil && found:
				a.say("the quarantine of %s is ended", what)
			case err == nil:
				return notFound("%.30s of %s is in no quarantine", what, all.node)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&whole, "all-gpus", false, "all GPUs of the node")
	return a.perNode(cmd)
}
