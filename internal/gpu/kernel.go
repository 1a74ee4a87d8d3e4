package gpu

import (
	"fmt"
	"time"
)

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
