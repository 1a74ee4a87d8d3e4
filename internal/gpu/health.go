package gpu

import (
	"fmt"
	"slices"
	"time"
)

// Health is one sample of a device's condition. Facts its driver never reports are missing; failed reads are unknown.
type Health struct {
	Device ID     `json:"device"`
	Facts  []Fact `json:"facts"`
}

// Fact is one fact about a device's health: a code, its value and where it was read.
type Fact struct {
	Code    FactCode `json:"code"`
	Value   string   `json:"value,omitempty"` // a decimal number or a word, depending on Code
	Unknown string   `json:"unknown,omitempty"`
	Source  string   `json:"source"` // the call that returned it
}

// FactCode names what a fact is about.
type FactCode string

// The facts. Counters only grow until the driver is reloaded, except those marked "ever".
const (
	ECCUncorrected FactCode = "ecc_uncorrected"   // errors since the driver was loaded
	RemapPending   FactCode = "remap_pending"     // yes, no: rows wait for a reset to be remapped
	RemapFailed    FactCode = "remap_failed"      // yes, no: a row could not be remapped
	RemapRows      FactCode = "remap_uncorrected" // rows remapped for uncorrected errors, ever
	RetiredPending FactCode = "retired_pending"   // yes, no: pages wait for a reset to be retired
	// RecoveryAction: a word of RecoveryActions, or a number.
	RecoveryAction  FactCode = "recovery_action"
	FabricState     FactCode = "fabric_state" // not_supported, not_started, in_progress, completed, failed
	PersistenceMode FactCode = "persistence"  // on, off
	ComputeMode     FactCode = "compute_mode" // default, exclusive_thread, prohibited, exclusive_process, or a number
	Throttled       FactCode = "throttled"    // none, or reasons joined by "+"
)

// What identifies a GPU to its vendor, and what its errors were counted to, ever. They are read for a ticket only.
const (
	Serial         FactCode = "serial"
	PartNumber     FactCode = "part_number"
	VBIOS          FactCode = "vbios"
	InfoROM        FactCode = "inforom" // version of the image
	ECCEver        FactCode = "ecc_uncorrected_ever"
	CorrectedEver  FactCode = "ecc_corrected_ever"
	RemapCorrected FactCode = "remap_corrected" // rows remapped for corrected errors
)

// RecoveryActions are words for the recovery actions that NVIDIA's driver asks for, by number.
var RecoveryActions = [...]string{
	"none", "reset", "reboot", "drain_p2p", "drain_reset", "recover_imex", "bus_reset", "system_reboot",
}

func (h Health) Fact(c FactCode) (Fact, bool) {
	return first(h.Facts, func(f Fact) bool { return f.Code == c })
}

// KernelLog holds the kernel log's entries about GPUs and about processes killed because host memory ran out.
type KernelLog struct {
	Last     KernelMark `json:"last"` // the newest entry
	Xids     []Xid      `json:"xids,omitempty"`
	Before   []Xid      `json:"before,omitempty"` // from an earlier mark to the requested one: the newest of each code
	Kills    []HostKill `json:"kills,omitempty"`
	Mismatch string     `json:"mismatch,omitempty"` // newest line about different versions of library and module
	Unknown  string     `json:"unknown,omitempty"`  // why the log could not be read
	Lost     bool       `json:"lost,omitempty"`     // entries after the requested mark were overwritten
	Epoch    Epoch      `json:"epoch,omitzero"`     // at the time of reading; does not need a working driver
}

// Since returns the log without what it has of GPUs from before their last reset, by the newest entry then.
func (l KernelLog) Since(resets map[BusID]KernelMark, of Epoch) KernelLog {
	over := func(x Xid) bool { mark, was := resets[x.BusID]; return was && x.Seq <= mark.Seq }
	if l.Epoch.Same(of) && len(resets) > 0 {
		l.Xids = slices.DeleteFunc(slices.Clone(l.Xids), over)
		l.Before = slices.DeleteFunc(slices.Clone(l.Before), over)
	}
	return l
}

// KernelMark identifies one entry of the kernel log. Marks are comparable only within one boot.
type KernelMark struct {
	Seq uint64        `json:"seq"`
	At  time.Duration `json:"at_ns"` // on the log's own clock, which is not comparable with any other
}

// Xid is an error reported by a vendor's kernel module; Xid is NVIDIA's name for it.
type Xid struct {
	KernelMark
	// BusID is the GPU's, or that of the NVSwitch or PCIe port that the line is about; empty if the line has none.
	BusID    BusID  `json:"bus_id"`
	Instance string `json:"instance,omitempty"`  // of MIG: "GPU-I 5 GPU-CI 0"
	Code     int    `json:"code"`                // NVIDIA's number, or one of ours if the error has none
	CausedBy int    `json:"caused_by,omitempty"` // number of the error that caused this one, if the line names it
	Recovery string `json:"recovery,omitempty"`  // of Xid 154: the RecoveryAction that the driver asks for from now on
	PID      int    `json:"pid,omitempty"`       // 0 if none is named; see OwnerPID
	Name     string `json:"name,omitempty"`      // the process's name: untrusted text
	Text     string `json:"text,omitempty"`      // the rest of the line: untrusted text
	More     int    `json:"more,omitempty"`      // number of earlier lines alike on this GPU that this one replaces
	// Seen is when the recorder first saw it or its driver event (CLOCK_BOOTTIME), 0 if it did not. If EventOnly is set
	// no line of the kernel log shows it.
	Seen      time.Duration `json:"seen_ns,omitempty"`
	EventOnly bool          `json:"event_only,omitempty"`
}

// LacksLine reports whether only the recorder saw it: the kernel log does not have the line, or not any more.
func (x Xid) LacksLine() bool { return x.Seen > 0 && x.KernelMark == KernelMark{} }

// Event is an error that a driver reported as it happened. Its Code is that of an Xid, or one of those of events.
type Event struct {
	Device ID  `json:"device"`
	Code   int `json:"code"`
}

// HostKill is a process that the kernel killed because host memory ran out.
type HostKill struct {
	KernelMark
	PID    int    `json:"pid"`
	Name   string `json:"name,omitempty"`   // untrusted text
	Cgroup string `json:"cgroup,omitempty"` // the process's cgroup; empty if the log does not contain it
	// Limit is the memory limit of the job or step that was full, in bytes; 0 if it was the node's memory, or unknown.
	Limit uint64 `json:"limit_bytes,omitempty"`
	Whole bool   `json:"whole,omitempty"` // Whole reports that the node's memory was full, and no limit
}

// Describe says the end of a process, for admins.
func (k HostKill) Describe() string {
	text := fmt.Sprintf("host memory ran out: PID %d (%s) was ended", k.PID, k.Name)
	if k.Limit > 0 {
		text += "; the job's limit was " + Size(k.Limit)
	}
	return text
}
