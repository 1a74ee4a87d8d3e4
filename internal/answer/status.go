package answer

import (
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/ledger"
)

// Status is what "bookend status" says: the node at a glance.
type Status struct {
	Head
	Node     string       `json:"node"`
	At       *time.Time   `json:"at"`
	Mode     config.Mode  `json:"mode"` // observe, enforce
	Driver   Driver       `json:"driver"`
	Slurm    SlurmNode    `json:"slurm"`
	Hooks    []LastHook   `json:"last_hooks"`
	Check    *LastCheck   `json:"last_check"` // null where no health check has run
	Cards    []CardStatus `json:"gpus"`
	Troubles []Trouble    `json:"troubles"`
	Before   []Trouble    `json:"troubles_before"` // of the last day, and no more
	Running  []Summary    `json:"running"`
	Ended    []Summary    `json:"ended"` // the newest few
	OnRecord int          `json:"ended_on_record"`
	Damaged  []Damaged    `json:"damaged"`
}

// Driver is whether the GPUs' driver answers.
type Driver struct {
	Answers *bool   `json:"answers"` // null where it was not asked
	Release string  `json:"release"` // empty where it did not say
	Seconds float64 `json:"took_seconds"`
	Unknown Unknown `json:"unknown,omitempty"`
}

// SlurmNode is what Slurm says of the node.
type SlurmNode struct {
	State   *string    `json:"state"`        // as scontrol shows it: "IDLE+DRAIN"
	Drained *bool      `json:"drain"`        // it takes no new job
	Reason  *string    `json:"reason"`       // empty for none
	By      string     `json:"reason_by"`    // the user who wrote it, as Slurm shows it
	Since   *time.Time `json:"reason_since"` // null where Slurm does not say
	Bookend string     `json:"bookend"`      // what Bookend last did about a drain of the node; empty for nothing
	Unknown Unknown    `json:"unknown,omitempty"`
}

// LastHook is when one of Bookend's programs ran last for a job with GPUs, or of itself.
type LastHook struct {
	Hook string     `json:"hook"` // prolog, epilog, health_check
	At   *time.Time `json:"at"`
}

// LastCheck is what the last health check found.
type LastCheck struct {
	At          *time.Time  `json:"at"`
	TookSeconds float64     `json:"took_seconds"`
	Stopped     bool        `json:"stopped"` // before it was done: it has found nothing, and says nothing
	Codes       []code.Code `json:"codes"`   // without those that policy ignores or only notes
}

// NewCheck is a health check in short.
func NewCheck(c ledger.Check) LastCheck {
	n := LastCheck{At: moment(c.Wall), TookSeconds: seconds(c.Took), Stopped: c.Stopped, Codes: []code.Code{}}
	for i, f := range c.Findings {
		if c.Verdict.Tells(i) && !slices.Contains(n.Codes, f.Code) {
			n.Codes = append(n.Codes, f.Code)
		}
	}
	return n
}

// CardStatus is one GPU now; where the driver did not say, figures are null.
type CardStatus struct {
	Card
	Memory
	ListedBytes      *uint64   `json:"listed_bytes"`      // of listed processes
	UnexplainedBytes *uint64   `json:"unexplained_bytes"` // beyond them and the GPU's baseline
	Processes        []Process `json:"processes"`
	Jobs             []string  `json:"jobs"` // that have it now
	Last             *LastLook `json:"last"` // what the last job's end found on it
	Unknown          Unknown   `json:"unknown,omitempty"`
}

// LastLook is what was found on a GPU when a job with it ended, or began, last.
type LastLook struct {
	Job   string      `json:"job"`
	At    *time.Time  `json:"at"`
	Codes []code.Code `json:"codes"` // empty: nothing that was not there before
	Used  *uint64     `json:"used_bytes"`
}

// Trouble is something wrong with Bookend, the driver or the node's file systems.
type Trouble struct {
	Code    code.Code  `json:"code"` // empty for one that is no finding
	Title   string     `json:"title"`
	Said    []string   `json:"said"` // what was seen
	Remedy  string     `json:"remedy"`
	Since   *time.Time `json:"since"` // null where no hook has met it
	LastAt  *time.Time `json:"last_at"`
	LastJob string     `json:"last_job"` // whose hook met it last; empty for none
	// Which hook that was; empty where a record alone has it:
	LastHook string `json:"last_hook"`     // prolog, epilog, health_check
	Hooks    uint64 `json:"hooks"`         // how many met it
	Without  uint64 `json:"hooks_without"` // how many have run since, and did not meet it
}

// Damaged is a record that cannot be used and was set aside.
type Damaged struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// NotAsked is why a status without driver and Slurm does not know what they say.
const NotAsked = "not asked"

// NewStatus is the document of a node, of which nothing is known yet but its name.
func NewStatus(node string, at time.Time, mode config.Mode) Status {
	return Status{
		Head: head(KindStatus), Node: text(node), At: moment(at), Mode: mode, Hooks: []LastHook{},
		Cards: []CardStatus{}, Troubles: []Trouble{},
		Before: []Trouble{}, Running: []Summary{}, Ended: []Summary{}, Damaged: []Damaged{},
		Driver: Driver{Unknown: Unknown{"answers": NotAsked}},
		Slurm:  SlurmNode{Unknown: Unknown{"state": NotAsked, "drain": NotAsked, "reason": NotAsked}},
	}
}
