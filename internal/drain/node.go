package drain

import (
	"cmp"
	"slices"
	"time"
)

// Node is what Slurm says of this node.
type Node struct {
	// Flags are the words of its state: "IDLE", "DRAIN", "COMPLETING".
	Flags  []string
	Silent bool      // slurmctld does not hear from it
	Reason string    // byte for byte, without the "[user@time]" that is shown behind it; empty for none
	By     string    // the user who wrote the reason, as Slurm shows it
	At     time.Time // when, to the second; zero where Slurm does not say
}

// Slurm's own texts where a hook exits with something other than 0.
const (
	PrologError = "Prolog error"
	EpilogError = "Epilog error"
)

const drained = "DRAIN"

// quiet are the flags of a node that is in nobody's hands: with any other an admin, a power plan or a fault has a say.
var quiet = []string{
	"IDLE", "ALLOCATED", "MIXED", "PLANNED", "RESERVED", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", drained,
}

// busy are further flags with which a reason may be written, but nothing resumed: a job's end is at work on the node
// and may drain it yet, or the node is in a maintenance reservation.
var busy = []string{"COMPLETING", "MAINT"}

func (n Node) Drained() bool { return slices.Contains(n.Flags, drained) }

// beyond is the first flag of the state that is none of these, empty for none.
func (n Node) beyond(flags ...string) string {
	i := slices.IndexFunc(n.Flags, func(f string) bool { return !slices.Contains(flags, f) })
	if i < 0 {
		return ""
	}
	return n.Flags[i]
}

// other is a flag because of which the node's reason is to be left alone, empty for none.
func (n Node) other() string { return n.beyond(slices.Concat(quiet, busy)...) }

// whose says why the node's drain is none of ours.
func (n Node) whose() string {
	switch {
	case !n.Drained():
		return "the node is not drained any more"
	case n.Reason == "":
		return "the node is drained without a reason"
	case n.Reason == PrologError || n.Reason == EpilogError:
		return n.Reason + " is not ours: no Bookend hook failed then; it is " + n.written()
	}
	return "the node has " + n.written()
}

func (n Node) written() string {
	text := "a reason of " + cmp.Or(n.By, "somebody") + "'s"
	if !n.At.IsZero() {
		text += ", of " + clock(n.At)
	}
	return text
}

// The controller's clock, in whole seconds, and this node's: how much earlier a drain may be stamped than the hook's
// verdict that it follows, and how much later. Between them lie the hook's outputs and slurmd's message, a second or
// two; with more time a drain that another script asked for, on a node resumed meanwhile, could pass for ours.
const (
	early = 2 * time.Second
	late  = 20 * time.Second
)

// follows reports whether what Slurm stamped at may be the consequence of what happened here at wall.
func follows(at, wall time.Time) bool {
	after := at.Sub(wall)
	return !at.IsZero() && !wall.IsZero() && after >= -early && after <= late
}
