// Package code is the catalogue of findings. Codes never change their meaning; docs/findings.md is made from it.
package code

import "slices"

type (
	// Code names one kind of finding, "BKD-…".
	Code string
	// Severity ranks a finding for display. It decides nothing: policy does.
	Severity string
	// Scope says what a finding is about, and so whether it may decide a hook's exit code.
	Scope string
	// Whose says who has to act on a finding.
	Whose string
)

// The severities, scopes, and those who may have to act.
const (
	Note    Severity = "note"
	Warning Severity = "warning"
	Serious Severity = "serious"

	Card      Scope = "card"      // one GPU of the hook's job
	Elsewhere Scope = "elsewhere" // another GPU of the node: never drains, and decides no exit code
	Driver    Scope = "driver"    // the driver or backend as a whole
	Own       Scope = "own"       // Bookend itself: never drains unless on_own_error says so

	Job  Whose = "job"  // the user whose job left or did it
	Node Whose = "node" // the admin: GPU, driver or what runs on the node
	Site Whose = "site" // the admin: how Bookend is installed or configured
	Self Whose = "self" // Bookend: a defect of its own, to be reported
	None Whose = "none" // a circumstance worth knowing
)

// The catalogue's codes.
const (
	Orphan  Code = "BKD-ORPHAN"
	Residue Code = "BKD-RESIDUE"
	Phantom Code = "BKD-PHANTOM"
	Dirty   Code = "BKD-DIRTY"
	Foreign Code = "BKD-FOREIGN"
	Stray   Code = "BKD-STRAY"
	Moving  Code = "BKD-MOVING"
	Lost    Code = "BKD-LOST"
	Missing Code = "BKD-MISSING"
	Unread  Code = "BKD-UNREAD"
	// Trespass is about a card that is not the hook's job's.
	Trespass Code = "BKD-TRESPASS"
	Unjudged Code = "BKD-UNJUDGED"
	Ended    Code = "BKD-ENDED"

	Gap          Code = "BKD-GAP"
	Blocked      Code = "BKD-BLOCKED"
	Broken       Code = "BKD-BROKEN"
	Recovery     Code = "BKD-RECOVERY"
	RemapFailed  Code = "BKD-REMAPFAILED"
	RemapPending Code = "BKD-REMAP"
	Pages        Code = "BKD-PAGES"
	ECC          Code = "BKD-ECC"
	Fabric       Code = "BKD-FABRIC"
	// Xid is an error that speaks of the program that ran, XidFatal one after which NVIDIA calls for a reset or more.
	Xid         Code = "BKD-XID"
	XidFatal    Code = "BKD-XIDFATAL"
	Throttle    Code = "BKD-THROTTLE"
	Persistence Code = "BKD-PERSISTENCE"

	NoDriver Code = "BKD-NODRIVER"
	Mismatch Code = "BKD-MISMATCH"
	DriverKO Code = "BKD-DRIVER"
	Old      Code = "BKD-OLDDRIVER"
	Hang     Code = "BKD-HANG"
	Stuck    Code = "BKD-STUCK"
	Slow     Code = "BKD-SLOW"

	BackendMissing Code = "BKD-BK-MISSING"
	BackendRefused Code = "BKD-BK-REFUSED"
	BackendCrash   Code = "BKD-BK-CRASH"
	BackendGarbage Code = "BKD-BK-GARBAGE"
	BackendVersion Code = "BKD-BK-VERSION"
	BackendFlood   Code = "BKD-BK-FLOOD"

	Untraced    Code = "BKD-UNTRACED"
	Ambiguous   Code = "BKD-AMBIGUOUS"
	NoRecord    Code = "BKD-NORECORD"
	Again       Code = "BKD-AGAIN"
	RunInJob    Code = "BKD-RUNINJOB"
	BadEnv      Code = "BKD-ENV"
	BadConfig   Code = "BKD-CONFIG"
	StateDamage Code = "BKD-ST-DAMAGED"
	StateWrite  Code = "BKD-ST-WRITE"
	StateLock   Code = "BKD-ST-LOCK"
	LogFailed   Code = "BKD-LOG"
	// Output is about a user's file, and so in the user's hands: it never drains, nor counts as an error of Bookend's.
	Output Code = "BKD-OUTPUT"
	// ReasonFailed: the node is drained all the same, by the exit code.
	ReasonFailed Code = "BKD-REASON"
	Panicked     Code = "BKD-PANIC"
	Deadline     Code = "BKD-DEADLINE"
)

// Entry explains one code.
type Entry struct {
	Code     Code
	Severity Severity
	Scope    Scope
	Whose    Whose
	Title    string // a few words
	Meaning  string // what it means, for an admin
	Remedy   string // what to do
	Traits
}

// Traits are what a code implies beyond its words: who asks for them switches on no code.
type Traits struct {
	// Exit is the number with which a hook ends that drains for it, the same in prolog and epilog; 0 for ExitOther.
	Exit int
	// Start and End are the shipped policy of prolog and epilog. A drain at the start takes the node from a job that
	// has just got it: only an unusable GPU drains there; at the end also what would spoil the next job.
	Start, End Action
	// Unchecked: a health check that met it has not checked the node, and does not end with 0.
	Unchecked bool

	Memory Memory // whose memory on a card it is about; empty for none
	// Condition: it is about a GPU's condition or a test allocation, and so about no process, even if it names one.
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

// Stays reports memory that no live job holds: without somebody who ends its holder it is there for the next job.
func (m Memory) Stays() bool { return m == OwnProcess || m == Unlisted || m == Strangers }

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
