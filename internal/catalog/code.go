// Package catalog is the catalogue of findings; docs/findings.md is made from it. A code never changes its meaning.
package catalog

import "slices"

type (
	Code string // Code names one kind of finding, "BKD-…"
	// Severity ranks a finding for display. It decides nothing; policy does.
	Severity string
	Scope    string // what a finding is about, and so whether it may decide a hook's exit code
)

// The severities and the scopes.
const (
	Note    Severity = "note"
	Warning Severity = "warning"
	Serious Severity = "serious"

	Card      Scope = "card"      // one GPU of the hook's job
	Elsewhere Scope = "elsewhere" // another GPU of the node: never drains, and decides no exit code
	Driver    Scope = "driver"    // the driver or backend as a whole
	Host      Scope = "host"      // the node's own memory and processes: never drains
	Own       Scope = "own"       // Bookend itself: never drains unless on_own_error says so
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
	// NoAnswer is about one GPU, DriverKO about the driver as a whole.
	NoAnswer Code = "BKD-NOANSWER"
	// Trespass is about a GPU that does not belong to the hook's job.
	Trespass Code = "BKD-TRESPASS"
	Unjudged Code = "BKD-UNJUDGED"
	Ended    Code = "BKD-ENDED"

	Gap          Code = "BKD-GAP"
	Blocked      Code = "BKD-BLOCKED"
	Broken       Code = "BKD-BROKEN"
	Bits         Code = "BKD-BITS"
	SlowMemory   Code = "BKD-SLOWMEM"
	Reset        Code = "BKD-RESET"
	Diagnosed    Code = "BKD-DIAG"
	Recovery     Code = "BKD-RECOVERY"
	RemapFailed  Code = "BKD-REMAPFAILED"
	RemapPending Code = "BKD-REMAP"
	Pages        Code = "BKD-PAGES"
	ECC          Code = "BKD-ECC"
	Fabric       Code = "BKD-FABRIC"
	// Xid is an error that points to the program that ran, XidFatal one after which NVIDIA calls for a reset or more.
	Xid         Code = "BKD-XID"
	XidFatal    Code = "BKD-XIDFATAL"
	Throttle    Code = "BKD-THROTTLE"
	Persistence Code = "BKD-PERSISTENCE"
	Exclusive   Code = "BKD-EXCLUSIVE"

	NoDriver Code = "BKD-NODRIVER"
	Mismatch Code = "BKD-MISMATCH"
	DriverKO Code = "BKD-DRIVER"
	Old      Code = "BKD-OLDDRIVER"
	Hang     Code = "BKD-HANG"
	Stuck    Code = "BKD-STUCK"
	Slow     Code = "BKD-SLOW"
	// KernelLog is an error in the kernel log that names no GPU.
	KernelLog Code = "BKD-KERNELLOG"
	// External is what the site's own check (health.external) said. The health check alone finds it.
	External Code = "BKD-EXTERNAL"

	// SharedMemory is what a job left in the host's memory, not in a GPU's.
	SharedMemory Code = "BKD-SHM"
	// Survivor is a process or container that a job left, with or without a GPU.
	Survivor Code = "BKD-SURVIVOR"
	// HostMemory is about all of the host's memory while no job is on the node. The health check alone finds it.
	HostMemory Code = "BKD-HOSTMEM"

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
	// Output is about a user's file, which the user controls: by default it is only noted, not an error of Bookend.
	Output Code = "BKD-OUTPUT"
	// ReasonFailed does not prevent the drain, which depends on the exit code.
	ReasonFailed Code = "BKD-REASON"
	Panicked     Code = "BKD-PANIC"
	Deadline     Code = "BKD-DEADLINE"
)

// Entry is the catalogue's entry for one code.
type Entry struct {
	Code     Code
	Severity Severity
	Scope    Scope
	Title    string // a few words
	Actor    string // who acts on it, as findings.txt says
	Meaning  string // for an admin
	Remedy   string // what an admin does about it
	Traits
}

// Traits are what a code implies besides its texts, so that callers need no switch over codes.
type Traits struct {
	// Exit is the exit code of a hook that drains for it, the same in prolog and epilog; 0 stands for ExitOther.
	Exit int
	// Start and End are the default policy of prolog and epilog. A drain at the start takes the node from a job that
	// has just got it, so only an unusable GPU drains there; at the end also what would spoil the next job.
	Start, End Action
	// Unchecked means that a health check with this finding has not checked the node, and does not exit 0.
	Unchecked bool

	Memory Memory // whose memory on a GPU it is about; empty for none
	// Condition is set if it is about a GPU's condition or a test allocation: about no process, even if it names one.
	Condition bool
	// Unusable means that GPU programs may fail on the GPU, however much of its memory is free.
	Unusable bool
	Milder   string // what reports say of a GPU instead of "had a fault" if it is not a fault

	// Fault is what failed, for the diagnosis of why a job ran out of memory; empty if nothing did. Doubtful means that
	// it proves nothing once there is a doubt. Other faults did happen, whatever the driver reports later.
	Fault    string
	Doubtful bool
	Silence  string // why it is unknown whether driver and GPU are well; empty if it is known
}

func (c Code) Traits() Traits {
	e, _ := Lookup(c)
	return e.Traits
}

type (
	Action string // what policy does with a finding
	Group  string // a kind of findings that drain by default, as the key drain_on names it
	Memory string // Memory classifies memory that should not be on a GPU by its owner
)

// The actions, mildest first; the groups; the kinds of memory.
const (
	ToIgnore Action = "ignore"
	ToNote   Action = "note"
	ToWarn   Action = "warn"
	// ToRepeat warns, and drains if the last job on the GPU or the node ended with the same before this one began.
	ToRepeat Action = "repeat"
	ToDrain  Action = "drain"

	Leftovers Group = "leftovers" // memory or a process that stays
	Faults    Group = "faults"    // what the driver itself calls a fault of the GPU

	OwnProcess Memory = "process"   // of the ended job
	Unlisted   Memory = "unlisted"  // no live process is listed with it
	Strangers  Memory = "strangers" // of a process of no job
	Inherited  Memory = "inherited" // was there before the job
	Others     Memory = "others"    // of another live job
)

// Check returns the default policy of the health check: that of a job's end, but it drains for nothing.
func (t Traits) Check() Action {
	if t.End == ToDrain || t.End == ToRepeat {
		return ToWarn
	}
	return t.End
}

// Group returns the group of findings that a code belongs to, if it drains.
func (t Traits) Group() Group {
	if t.Memory != "" {
		return Leftovers
	}
	return Faults
}

// NeverDrains says why no policy makes a finding drain, empty if one can.
func (e Entry) NeverDrains() string {
	switch {
	case e.Code == Reset || e.Code == Diagnosed:
		return "the node is drained already, and a drain's reason gets this code"
	case e.Scope == Own:
		return "a fault of Bookend itself drains only by on_own_error: drain"
	case e.Scope == Elsewhere:
		return "it is about a GPU that is not the hook's job's"
	case e.Scope == Host:
		return "it is about the node itself, which its users and the admin can put right"
	case e.Scope == Card && e.Severity == Note:
		return "it tells of a GPU and says nothing against it"
	}
	return ""
}

// Stays reports whether no live job holds the memory: unless its holder is ended, it is there for the next job.
func (m Memory) Stays() bool { return m == OwnProcess || m == Unlisted || m == Strangers }

// ExitOther is the exit code of a drain whose finding has no number of its own.
const ExitOther = 40

func Exits() []Entry {
	all := slices.DeleteFunc(All(), func(e Entry) bool { return e.Exit == 0 })
	slices.SortFunc(all, func(a, b Entry) int { return a.Exit - b.Exit })
	return all
}

// Exit returns the exit code of a drain that c caused. Slurm only distinguishes zero from non-zero; the number is for
// the reader of slurmd's log. 2 is left to crashes of the Go runtime; 126 and above belong to shells and signals. The
// scripts in deploy/slurm pass on two-digit numbers only: a cause with another number would never drain.
func Exit(c Code) int {
	if exit := c.Traits().Exit; exit != 0 {
		return exit
	}
	return ExitOther
}

// OfExit returns the code that an exit code stands for, false if it stands for several or none.
func OfExit(exit int) (Code, bool) {
	for _, e := range Exits() {
		if e.Exit == exit {
			return e.Code, true
		}
	}
	return "", false
}
