package stage

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/operation"
	"bookend/internal/session"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// observe asks the driver for the job's GPUs, unless it is known to be stuck or must not be asked from here. Once the
// epoch is known, so is what counts of the past.
func observe(d *session.Driver, c judge.Case) (judge.Past, judge.Seen) {
	if !d.MayAsk() {
		return c.Past, judge.Seen{}
	}
	defer d.Leave()
	if !d.Meet() {
		return c.Past, judge.Seen{}
	}
	i := d.Inventory(c.Past.Run)
	before, found := judge.StartOf(c.Past.Run, d.Job, i.Epoch)
	d.Add(found...)
	c.Past.Before, c.Past.Baselines = before, baselines(d, i)
	side, cards := d.Look(c, i.Cards)
	if len(side.Snapshot.Readings) == 0 {
		d.Mismatched(i)
	}
	return c.Past, d.Seen(i, side, cards)
}

// baselines are what the node's GPUs carry without any job.
func baselines(d *session.Driver, i session.Inventory) map[gpu.ID]finding.Baseline {
	if d.Store == nil {
		return nil
	}
	all, err := d.Store.Baselines()
	d.Try(err)
	return judge.BaselinesOf(all, i.Epoch)
}

// consult reads the node's other records where something asks for them; on clean GPUs nothing does.
func consult(d *session.Driver, c judge.Case) (*judge.Node, *judge.Sharing) {
	switch {
	case c.Asks():
		return complete(d, c)
	case c.AsksCondition():
		return readNode(d), nil
	}
	return nil, nil
}

// complete reads what has not been read yet of the node's records, and of who may share its GPUs.
func complete(d *session.Driver, c judge.Case) (*judge.Node, *judge.Sharing) {
	if c.Node == nil {
		c.Node = readNode(d)
	}
	if c.Sharing == nil {
		c.Sharing = askSharing(d)
	}
	return c.Node, c.Sharing
}

// readNode reads the records of all of the node's hooks.
func readNode(d *session.Driver) *judge.Node {
	if d.Store == nil {
		return &judge.Node{}
	}
	seen, err := d.Store.Sighted()
	d.Try(err)
	return again(d, judge.Node{Sighted: seen})
}

// again reads the node's records as they are now: jobs may have begun, or ended, meanwhile.
func again(d *session.Driver, n judge.Node) *judge.Node {
	if d.Store == nil {
		return &n
	}
	runs, damaged := d.Store.Runs()
	n.Runs = runs
	for _, damage := range damaged {
		if damage.Unread {
			n.Unread = "not all records of this node's jobs were read: another may have this GPU"
		}
		d.Add(finding.Saw(code.StateDamage, fmt.Sprintf("%s: %s", damage.Path, damage.Why), "a whole record"))
	}
	return &n
}

// askSharing says why others may use this job's GPUs legally, or why nobody can tell. Slurm's environment marks MPS
// alone: a job with a shard looks to its hooks like one with the whole GPU.
func askSharing(d *session.Driver) *judge.Sharing {
	if slices.Contains(d.Config.Slurm.SharedPartitions, d.Job.Partition) {
		return &judge.Sharing{Why: "its partition is configured as shared"}
	}
	if d.Job.MPSPercent != "" {
		return &judge.Sharing{Why: "the job shares it through MPS"}
	}
	answer := nodeSharing(d)
	switch answer.Shared {
	case slurmconf.Yes:
		return &judge.Sharing{Why: answer.Why}
	case slurmconf.No:
		return &judge.Sharing{}
	}
	return &judge.Sharing{Unknown: answer.Why}
}

func nodeSharing(d *session.Driver) operation.Sharing {
	limit := d.Left(operation.SharingTime, d.Reserve())
	return operation.NodeSharing(d.Config.Slurm, d.Getenv("SLURM_CONF"), d.Job.Node, limit)
}

// claim makes this hook the only one that may test for this end, or start, of its job, as long as it lives. It is
// second where another came first and has not ended: Slurm may run an epilog twice, one beside the other, and gives the
// GPU away once either has ended. Where nobody can tell it is neither that nor the sole one, and there is no test.
func claim(d *session.Driver) (second, sole bool) {
	_, err := d.Store.Claim(d.Job, d.Phase, 0)
	return errors.Is(err, state.ErrLocked), err == nil
}

// outlast keeps a hook that is not the first of its kind until the first has ended, where that may be testing: once
// this one ends the GPU may be somebody else's. The first has the earlier deadline. Then it says whether the first
// closed the run: one that died on the way has closed nothing, and this is the job's end.
func outlast(d *session.Driver, past judge.Past) judge.Past {
	if !past.Second {
		return past
	}
	wait := time.Duration(0)
	if health.WhenTested(d.Config.Probe.At, d.Phase) {
		wait = d.Left(time.Hour, d.Reserve())
	}
	if _, err := d.Store.Claim(d.Job, d.Phase, wait); err != nil {
		return past // there is nothing else to do about it
	}
	_, which, _ := d.Store.Find(d.Job)
	past.Second, past.Again = false, which == ledger.ClosedRun
	return past
}

// diagnose answers why the job ran out of memory. For an answer that somebody will read, Slurm's files and the node's
// other records are worth their time.
func diagnose(d *session.Driver, c judge.Case, j judge.Judgement, h judge.Heard) *diagnosis.Diagnosis {
	if c.Past.Again || c.Past.Second {
		return nil
	}
	in := c.Symptoms(j, h, d.Clock.Wall())
	if first := diagnosis.Why(in); first.Reason == "" && len(first.Peaks) == 0 {
		return nil
	}
	c.Node, c.Sharing = complete(d, c)
	return c.Why(in)
}
