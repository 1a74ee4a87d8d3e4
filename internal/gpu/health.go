package gpu

import (
	"fmt"
	"time"
)

// Health is one look at a device's condition: without what its driver never tells; what it could not is unknown.
type Health struct {
	Device     ID         `json:"device"`
	Facts      []Fact     `json:"facts"`
	Accounting Accounting `json:"accounting,omitzero"`
}

// Fact is one health statement: a code, its value and where it was read.
type Fact struct {
	Code    FactCode `json:"code"`
	Value   string   `json:"value,omitempty"` // a decimal number or a word, as the code says
	Unknown string   `json:"unknown,omitempty"`
	Source  string   `json:"source"` // the call
}

// FactCode names what a fact is about.
type FactCode string

// The facts. Counters only grow between two loads of the driver, unless they say "ever".
const (
	ECCUncorrected FactCode = "ecc_uncorrected"   // errors since the driver was loaded
	RemapPending   FactCode = "remap_pending"     // yes, no: rows wait for a reset to be remapped
	RemapFailed    FactCode = "remap_failed"      // yes, no: a row could not be remapped
	RemapRows      FactCode = "remap_uncorrected" // rows remapped for uncorrected errors, ever
	RetiredPending FactCode = "retired_pending"   // yes, no: pages wait for a reset to be retired
	// RecoveryAction: none, reset, reboot, drain_p2p, drain_reset, recover_imex, or a number.
	RecoveryAction  FactCode = "recovery_action"
	FabricState     FactCode = "fabric_state" // not_supported, not_started, in_progress, completed, failed
	PersistenceMode FactCode = "persistence"  // on, off
	Throttled       FactCode = "throttled"    // none, or reasons joined by "+"
)

func (h Health) Fact(c FactCode) (Fact, bool) {
	for _, f := range h.Facts {
		if f.Code == c {
			return f, true
		}
	}
	return Fact{}, false
}

// Accounting is what the driver keeps of processes that have ended, where that is switched on.
type Accounting struct {
	Mode      string      `json:"mode,omitempty"` // on, off; empty if not asked
	Unknown   string      `json:"unknown,omitempty"`
	Processes []Accounted `json:"processes,omitempty"`
}

// Accounted is one process of accounting, alive or not.
type Accounted struct {
	PID     int           `json:"pid"`
	Peak    Figure        `json:"peak"`           // most memory at any time, bytes
	Began   time.Time     `json:"began,omitzero"` // wall time
	Ran     time.Duration `json:"ran_ns"`         // 0 while it runs
	Running bool          `json:"running,omitempty"`
}

// KernelLog is what the kernel's log says of GPUs and of processes that it ended for want of memory.
type KernelLog struct {
	Last     KernelMark `json:"last"` // the newest entry
	Xids     []Xid      `json:"xids,omitempty"`
	Kills    []HostKill `json:"kills,omitempty"`
	Mismatch string     `json:"mismatch,omitempty"` // the newest line on a library of another version than the module
	Unknown  string     `json:"unknown,omitempty"`  // why the log could not be read
	Lost     bool       `json:"lost,omitempty"`     // entries after the mark asked for were overwritten
	Epoch    Epoch      `json:"epoch,omitzero"`     // in which it was read, however the driver does
}

// KernelMark is one entry of the kernel's log. Only marks of one boot compare.
type KernelMark struct {
	Seq uint64        `json:"seq"`
	At  time.Duration `json:"at_ns"` // by that log's own clock, which is no other's
}

// Xid is an error that a vendor's kernel module reported, which NVIDIA calls an Xid.
type Xid struct {
	KernelMark
	BusID    BusID  `json:"bus_id"`
	Instance string `json:"instance,omitempty"` // of MIG: "GPU-I 5 GPU-CI 0"
	Code     int    `json:"code"`               // NVIDIA's number, or one of ours for what has none
	PID      int    `json:"pid,omitempty"`      // 0: none named
	Name     string `json:"name,omitempty"`     // of the process: a string from outside
	Text     string `json:"text,omitempty"`     // the rest of the line: a string from outside
	More     int    `json:"more,omitempty"`     // lines before it, of this number and card, that it stands for
}

// Error names an error by its number, or by the driver that numbers none.
func Error(code int) string {
	if code > maxXid {
		return AMD.Module
	}
	return fmt.Sprintf("Xid %d", code)
}

// HostKill is a process that the kernel ended because host memory ran out.
type HostKill struct {
	KernelMark
	PID    int    `json:"pid"`
	Name   string `json:"name,omitempty"`   // a string from outside
	Cgroup string `json:"cgroup,omitempty"` // of the process; empty where the log does not say
}
