package code

import (
	"slices"
)

// Traits are what a code implies beyond its words: who asks for them switches on no code.
type Traits struct {
	// Exit is the number with which a hook ends that drains for it, the same in prolog and epilog; 0 for ExitOther.
	Exit int
	// Start and End are the shipped policy of prolog and epilog. A drain at the start takes the node from a job that
	// has just got it, so there only a card that cannot be used at all drains; at the end also what would spoil the
	// next job.
	Start, End Action
	// Unchecked: a health check that met it has not checked the node, and does not end with 0.
	Unchecked bool

	Memory Memory // whose memory on a card it is about; empty for none
	// Condition: it is about a card's condition or a test allocation, and so about no process, whatever one may be
	// named with it.
	Condition bool
	// Milder is what to say of a card in place of "had a fault", where it is none.
	Milder string

	// Fault is what failed, for who asks why a job ran out of memory; empty where nothing did. Doubtful: it proves
	// nothing once there is a doubt. The others did happen, whatever the driver says of them later.
	Fault    string
	Doubtful bool
	// Silence is why nobody can tell whether driver and card are well; empty where somebody can.
	Silence string
}

// Traits are the code's; of one that does not exist it has none.
func (c Code) Traits() Traits {
	e, _ := Lookup(c)
	return e.Traits
}

type (
	// Action is what policy does with a finding.
	Action string
	// Group is a kind of findings that drain by default, as the key drain_on names it.
	Group string
	// Memory tells memory on a card that is there by no right, by whose it is.
	Memory string
)

// The actions, mildest first; the groups; the kinds of memory.
const (
	ToIgnore Action = "ignore"
	ToNote   Action = "note"
	ToWarn   Action = "warn"
	// ToRepeat warns, and drains if the last job on the GPU, or on the node, ended with the same before this one began.
	ToRepeat Action = "repeat"
	ToDrain  Action = "drain"

	Leftovers Group = "leftovers" // memory or a process that stays
	Faults    Group = "faults"    // what the driver itself calls a fault of the card

	OwnProcess Memory = "process"   // of the ended job
	Unlisted   Memory = "unlisted"  // no live process is listed with it
	Strangers  Memory = "strangers" // of a process of no job
	Inherited  Memory = "inherited" // was there before the job
	Others     Memory = "others"    // of another live job
)

// Check is the shipped policy of the health check: that of a job's end, but it drains for nothing.
func (t Traits) Check() Action {
	if t.End == ToDrain || t.End == ToRepeat {
		return ToWarn
	}
	return t.End
}

// Group is the group of findings that a code belongs to, where it drains.
func (t Traits) Group() Group {
	if t.Memory != "" {
		return Leftovers
	}
	return Faults
}

// NeverDrains says why a finding drains under no policy, empty for one that may.
func (e Entry) NeverDrains() string {
	switch {
	case e.Scope == Own:
		return "a fault of Bookend itself drains only by on_own_error: drain"
	case e.Scope == Elsewhere:
		return "it is about a GPU that is not the hook's job's"
	case e.Scope == Card && e.Severity == Note:
		return "it tells of a GPU and says nothing against it"
	}
	return ""
}

// OfTheEnded reports memory that an ended job left itself.
func (m Memory) OfTheEnded() bool { return m == OwnProcess || m == Unlisted }

// Stays reports memory that no live job holds: without somebody who ends its holder it is there for the next job.
func (m Memory) Stays() bool { return m.OfTheEnded() || m == Strangers }

// ExitOther is the exit code of a drain whose finding has no number of its own.
const ExitOther = 40

// Exits are the entries with an exit code of their own, in the order of these.
func Exits() []Entry {
	all := slices.DeleteFunc(All(), func(e Entry) bool { return e.Exit == 0 })
	slices.SortFunc(all, func(a, b Entry) int { return a.Exit - b.Exit })
	return all
}

// Exit returns the exit code of a drain that c caused. Slurm only tells zero from non-zero; the number is for the
// reader of slurmd's log. 0 is every outcome that does not drain; 2 is left to the Go runtime's own crashes; 126 and
// above belong to shells and signals. The scripts in deploy/slurm pass on the numbers of two digits alone: a cause with
// another number would never drain.
func Exit(c Code) int {
	if exit := c.Traits().Exit; exit != 0 {
		return exit
	}
	return ExitOther
}

// OfExit returns the code that an exit code stands for, false where it stands for several or none.
func OfExit(exit int) (Code, bool) {
	all := Exits()
	i := slices.IndexFunc(all, func(e Entry) bool { return e.Exit == exit })
	if i < 0 {
		return "", false
	}
	return all[i].Code, true
}
