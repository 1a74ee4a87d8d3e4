package slurm

import (
	"slices"
	"time"
)

// Slurm's own reasons for a node whose hook exits with something other than 0.
const (
	PrologError = "Prolog error"
	EpilogError = "Epilog error"
)

// Node is a node's state, as scontrol shows it.
type Node struct {
	Flags  []string  // the words of its state: "IDLE", "DRAIN", "COMPLETING"
	Silent bool      // it does not respond to slurmctld
	Reason string    // byte for byte, without the "[user@time]" that Slurm shows after it; empty for none
	By     string    // the user who wrote the reason, as Slurm shows it
	At     time.Time // when, to the second; zero if Slurm does not show it
}

// Drained is the flag of a node that takes no new jobs.
const Drained = "DRAIN"

// Drained reports whether the node takes no new jobs.
func (n Node) Drained() bool { return slices.Contains(n.Flags, Drained) }

// IdleFlags are those of a node without jobs in normal operation, drained or not.
var IdleFlags = []string{"IDLE", "PLANNED", "RESERVED", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", Drained}

// Idle reports whether the node, whatever its other flags, answers Slurm and has no job, not even a completing one.
func (n Node) Idle(other ...string) bool {
	busy := func(flag string) bool { return !slices.Contains(IdleFlags, flag) && !slices.Contains(other, flag) }
	return slices.Contains(n.Flags, "IDLE") && !n.Silent && !slices.ContainsFunc(n.Flags, busy)
}

// Vacant reports whether no job is on the node and none can begin. A maintenance reservation is no job.
func (n Node) Vacant() bool { return n.Drained() && n.Idle("MAINT") }
