// Package code is the catalogue of findings: what each code means and what to do about it. Codes never
// change their meaning; docs/findings.md is tested against this table.
package code

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
	Own       Scope = "own"       // Bookend itself: never drains unless on_unknown says so

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
