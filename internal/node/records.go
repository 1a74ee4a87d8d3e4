package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

// Claim makes this hook the only one that may test for this start or end of its job, while it lives, and returns its
// turn. It waits for a hook that came first.
func (a *Access) Claim(wait time.Duration) judge.Turn {
	_, err := a.Store.Turns.Claim(a.Job.ID, a.Phase, wait)
	switch {
	case err == nil:
		return judge.First
	case errors.Is(err, state.ErrLocked):
		return judge.Concurrent
	}
	return judge.Undecided
}

// Tests returns the last test allocation of each GPU.
func (a *Access) Tests() (map[gpu.ID]record.TestRecord, []record.Finding) {
	if a.Config.Probe.At == config.ProbeNever {
		return nil, nil
	}
	records, err := state.Probes.Load(a.Store)
	return records, Fault(err)
}

// Baselines returns what the GPUs carry without any job, as recorded in this epoch.
func (a *Access) Baselines(epoch gpu.Epoch) (map[gpu.ID]record.Baseline, []record.Finding) {
	all, err := state.Baselines.Load(a.Store)
	return judge.BaselinesOf(all, epoch), Fault(err)
}

// Records reads the records of all of the node's hooks as they are now: jobs may have begun or ended since.
func (a *Access) Records() (*judge.Node, []record.Finding) {
	n, faults := runsOf(a.Store)
	n.Proofs = state.Recorded.Peek(a.Store).Runs.Proofs()
	return &n, faults
}

// HostRecords reads the records of this node and of the other nodes on its host, which share its GPUs.
func (a *Access) HostRecords() (*judge.Node, []record.Finding) {
	all, faults := a.Records()
	names, err := state.Nodes(a.Config.Paths.Run, "")
	for _, name := range names {
		if err != nil || name == a.Job.Node {
			continue
		}
		var other *state.Store
		if other, err = state.Open(a.Config.Paths.Run, name); err == nil {
			node, more := runsOf(other)
			all.SameHost, all.Unread = append(all.SameHost, node), cmp.Or(all.Unread, node.Unread)
			faults = append(faults, more...)
		}
	}
	if err != nil {
		all.Unread = cmp.Or(all.Unread, fmt.Sprintf("the records of this host's other nodes were not read: %v", err))
	}
	return all, faults
}

// runsOf reads the records of one of this host's nodes.
func runsOf(store *state.Store) (n judge.Node, faults []record.Finding) {
	runs, damaged := store.Runs()
	n.Runs = runs
	for _, damage := range damaged {
		if damage.Unread {
			n.Unread = "not all records of this node's jobs were read: another may have this GPU"
		}
		text := fmt.Sprintf("%s: %s", damage.Path, damage.Why)
		faults = append(faults, record.Saw(catalog.StateDamage, text, "a whole record"))
	}
	var err error
	n.Damaged, err = store.Damaged()
	if err != nil { // after the records: those found damaged are among these
		n.Unread = fmt.Sprintf("which records of this node's jobs are damaged could not be read: %v", err)
	}
	return n, faults
}

// Complete returns the case with what is still missing of the node's records, and whether its GPUs may be shared.
func (a *Access) Complete(c judge.Case) (judge.Case, []record.Finding) {
	var faults []record.Finding
	if c.Node == nil {
		c.Node, faults = a.Records()
	}
	if c.Sharing == nil {
		answer := a.sharing()
		c.Sharing = &answer
	}
	return c, faults
}

// sharing returns whether others may use this job's GPUs. A job with a shard looks like one with the whole GPU.
func (a *Access) sharing() slurm.Sharing {
	switch {
	case slices.Contains(a.Config.Slurm.SharedPartitions, a.Job.Partition):
		return slurm.Sharing{Shared: slurm.Yes, Why: "its partition is configured as shared"}
	case a.Job.MPSPercent != "":
		return slurm.Sharing{Shared: slurm.Yes, Why: "the job shares it through MPS"}
	}
	return a.nodeSharing()
}

func (a *Access) nodeSharing() slurm.Sharing {
	limit := a.Left(config.Duration(slurmcmd.SharingTime))
	return slurmcmd.NodeSharing(a.Config.Slurm, a.Env.Getenv("SLURM_CONF"), a.Job.Node, limit)
}

// Exclusive reports whether Slurm's files say for certain that no GPU of this node is given out in parts.
func (a *Access) Exclusive() bool { return a.nodeSharing().Shared == slurm.No }
