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
func Claim(a *Access, wait time.Duration) judge.Turn {
	_, err := a.Store.Turns.Claim(a.Job.ID, a.Phase, wait)
	switch {
	case err == nil:
		return judge.First
	case errors.Is(err, state.ErrLocked):
		return judge.Concurrent
	}
	return judge.Undecided
}

func Tests(a *Access) (map[gpu.ID]record.TestRecord, []record.Finding) {
	if a.Config.Probe.At == config.ProbeNever {
		return nil, nil
	}
	records, err := state.Probes.Load(a.Store)
	return records, Fault(err)
}

func PutTests(a *Access, tests ...record.TestRecord) []record.Finding {
	return Fault(state.Probes.Put(a.Store, tests...))
}

// withBaselines returns the case with what the GPUs carry without any job, as recorded in this epoch.
func withBaselines(a *Access, c judge.Case) judge.Case {
	all, err := state.Baselines.Load(a.Store)
	c.Past.Baselines, c.Faults = judge.BaselinesOf(all, c.Seen.Epoch), slices.Concat(c.Faults, Fault(err))
	return c
}

// Records reads the records of all of the node's hooks as they are now: jobs may have begun or ended since.
func Records(store *state.Store) (*judge.Node, []record.Finding) {
	n, faults := runsOf(store)
	n.Check = state.LastCheck.Peek(store)
	for _, r := range state.Recorded.Peek(store).Runs {
		n.Proofs = append(n.Proofs, r.Proofs()...)
	}
	return &n, faults
}

// HostRecords reads the records of this node and of the other nodes on its host, which share its GPUs.
func HostRecords(a *Access) (*judge.Node, []record.Finding) {
	all, faults := Records(a.Store)
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
	return n, slices.Concat(faults, Fault(err))
}

// Complete returns the case with what is still missing of the node's records, and whether its GPUs may be shared.
func Complete(a *Access, c judge.Case) (judge.Case, []record.Finding) {
	var faults []record.Finding
	if c.Node == nil {
		c.Node, faults = Records(a.Store)
	}
	if c.Sharing == nil {
		c.Sharing = new(sharing(a))
	}
	return c, faults
}

// sharing returns whether others may use this job's GPUs. A job with a shard looks like one with the whole GPU.
func sharing(a *Access) slurm.Sharing {
	switch {
	case slices.Contains(a.Config.Slurm.SharedPartitions, a.Job.Partition):
		return slurm.Sharing{Shared: slurm.Yes, Why: "its partition is configured as shared"}
	case a.Job.MPSPercent != "":
		return slurm.Sharing{Shared: slurm.Yes, Why: "the job shares it through MPS"}
	}
	return nodeSharing(a)
}

func nodeSharing(a *Access) slurm.Sharing {
	limit := a.Left(config.Duration(slurmcmd.SharingTime))
	s := a.Config.Slurm
	return slurmcmd.NodeSharing(s.Sharing(), s.GresConf, a.Env.Getenv("SLURM_CONF"), a.Job.Node, limit)
}

// Exclusive reports whether Slurm's files say for certain that no GPU of this node is given out in parts.
func Exclusive(a *Access) bool { return nodeSharing(a).Shared == slurm.No }
