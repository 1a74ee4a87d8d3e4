// Package gpu holds the vendor-neutral values that describe a node's GPUs: what a device is, what one
// reading of it said, and what could not be read. It does no work; every band may import it.
package gpu

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ID is a device's opaque, vendor-given identity ("GPU-8f0b…", "MIG-…"). It is never parsed here.
type ID string

// Figure is a number of bytes that may not be known. An unknown figure carries the reason and is never 0.
type Figure struct {
	Bytes   uint64 `json:"bytes"`
	Unknown string `json:"unknown,omitempty"` // why it could not be read; empty when Bytes holds
}

func Bytes(n uint64) Figure { return Figure{Bytes: n} }

// Unknown returns a figure that could not be read, with the reason. An empty reason becomes "not read".
func Unknown(why string) Figure {
	if why == "" {
		why = "not read"
	}
	return Figure{Unknown: why}
}

func (f Figure) Known() bool { return f.Unknown == "" }

// Device identifies one GPU or MIG instance.
type Device struct {
	ID     ID     `json:"id"`
	BusID  BusID  `json:"bus_id,omitempty"`
	Minor  *int   `json:"minor,omitempty"`  // N of its device node (nvidiaN); nil when unknown
	Parent ID     `json:"parent,omitempty"` // the whole card of a MIG instance
	Name   string `json:"name,omitempty"`   // model as the driver names it: a string from outside
	Vendor string `json:"vendor,omitempty"` // "nvidia", "amd"
}

// Node is the name of a device's node in /dev; empty where that is unknown.
func (d Device) Node() string {
	if d.Minor == nil {
		return ""
	}
	return VendorOf(d).CardNode(*d.Minor)
}

// Named reports whether somebody means this device: by UUID, bus id, or by its device node.
func (d Device) Named(name string) bool {
	if bus, err := ParseBusID(name); err == nil && bus == d.BusID {
		return true
	}
	return name != "" && (name == d.Node() || strings.EqualFold(name, string(d.ID)))
}

// Memory is one reading of a device's memory.
type Memory struct {
	Total    Figure `json:"total"`
	Reserved Figure `json:"reserved"` // kept by the driver itself
	Used     Figure `json:"used"`
	Free     Figure `json:"free"`
	// Unjudged is why Used says nothing about what a job left behind, empty where it does: the operating system
	// keeps files in this memory (a GPU that is a NUMA node), or other guests use the card (vGPU).
	Unjudged string `json:"unjudged,omitempty"`
}

// Kind is the role in which a process was listed on a device.
type Kind string

// The roles a driver lists processes under.
const (
	Compute  Kind = "compute"
	Graphics Kind = "graphics"
	MPS      Kind = "mps"
)

// Process is one process that the driver lists, merged by PID: the creator's, which may be dead while memory lives.
type Process struct {
	PID    int    `json:"pid"`
	Memory Figure `json:"memory"`
	Kinds  []Kind `json:"kinds,omitempty"`
}

// FaultCode says what kind of thing went wrong below a reading.
type FaultCode string

// The faults a backend reports; FaultDriver is any other driver error.
const (
	FaultNoDriver  FaultCode = "no_driver"        // no driver behind the vendor's library
	FaultNoLibrary FaultCode = "no_library"       // it is not where it was looked for
	FaultMismatch  FaultCode = "version_mismatch" // library and kernel module disagree
	FaultNoDevice  FaultCode = "no_device"        // a device asked for does not exist
	FaultLost      FaultCode = "gpu_lost"         // fell off the bus
	FaultReset     FaultCode = "reset_required"
	FaultNoSymbol  FaultCode = "no_symbol" // the driver is older than a call that is needed
	FaultForbidden FaultCode = "no_permission"
	FaultDriver    FaultCode = "driver_error"
)

// Fault is a failure the driver reported, for one device or for the whole driver.
type Fault struct {
	Code   FaultCode `json:"code"`
	Device ID        `json:"device,omitempty"` // empty: the driver as a whole
	BusID  BusID     `json:"bus_id,omitempty"`
	Detail string    `json:"detail,omitempty"` // call and the driver's own words: a string from outside
}

// Reading is what one look at one device said.
type Reading struct {
	Device           Device    `json:"device"`
	Memory           Memory    `json:"memory"`
	Processes        []Process `json:"processes"`
	ProcessesUnknown string    `json:"processes_unknown,omitempty"` // why the list could not be read or trusted
	Busy             *Busy     `json:"busy,omitempty"`              // in a recording, where the driver tells
	KnownBad         string    `json:"known_bad,omitempty"`         // what this driver is known to do with memory
	Parts            bool      `json:"parts,omitempty"`             // a whole GPU that is given out in parts (MIG mode)
}

// Process returns the process that is listed under a PID, false where none is.
func (r Reading) Process(pid int) (Process, bool) {
	for _, p := range r.Processes {
		if p.PID == pid {
			return p, true
		}
	}
	return Process{}, false
}

// Busy is the share of the driver's last sample period, in percent, with a running kernel, and with memory accesses.
type Busy struct {
	GPU    int `json:"gpu"`
	Memory int `json:"memory"`
}

// Driver names the driver that answered.
type Driver struct {
	Version string `json:"version,omitempty"`
	Library string `json:"library,omitempty"` // the vendor library's own version
}

// Snapshot is one look at a set of devices.
type Snapshot struct {
	At       time.Duration `json:"at"` // CLOCK_BOOTTIME when the last device was read
	Driver   Driver        `json:"driver"`
	Readings []Reading     `json:"readings"`
	Faults   []Fault       `json:"faults,omitempty"`
}

func (s Snapshot) Reading(id ID) (Reading, bool) {
	for _, r := range s.Readings {
		if r.Device.ID == id {
			return r, true
		}
	}
	return Reading{}, false
}

// Card is one physical GPU of the node, read without asking the driver's library.
type Card struct {
	Device Device `json:"device"` // ID is empty while the driver has not cached the card's UUID
	// Excluded is true for a GPU that the driver leaves alone: no process can use it. It still has a minor.
	Excluded bool `json:"excluded,omitempty"`
	// Unknown is why nothing but the bus id is known, when it is so.
	Unknown string `json:"unknown,omitempty"`
}

// Epoch names one uninterrupted life of a node's driver. What was measured in one epoch says nothing about
// another: a boot, a driver update or a reload of the module frees all GPU memory and may renumber the devices.
type Epoch struct {
	Boot   string `json:"boot,omitempty"`   // the kernel's boot id; empty when unknown
	Driver string `json:"driver,omitempty"` // version of the loaded driver; empty when unknown
	Module string `json:"module,omitempty"` // identity of the loaded module; empty when unknown
}

// Same reports whether both are known to be one epoch. An unknown part equals nothing, so two unknown epochs differ.
func (e Epoch) Same(other Epoch) bool {
	return known(e.Boot, other.Boot) && known(e.Driver, other.Driver) && known(e.Module, other.Module)
}

// Changed reports that a part of the epoch, known on both sides, is another. Epochs may be neither the same nor
// changed: then nobody knows.
func (e Epoch) Changed(other Epoch) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(e.Boot, other.Boot) || differ(e.Driver, other.Driver) || differ(e.Module, other.Module)
}

// OtherBoot reports that the node has booted between the two.
func (e Epoch) OtherBoot(other Epoch) bool {
	return Epoch{Boot: e.Boot}.Changed(Epoch{Boot: other.Boot})
}

// Or fills in what is unknown from an earlier epoch that nothing contradicts. If that is the present one again, the
// driver was never reloaded meanwhile; if it is not, what is filled in equals no other epoch either.
func (e Epoch) Or(earlier Epoch) Epoch {
	if e.Changed(earlier) {
		return e
	}
	return Epoch{cmp.Or(e.Boot, earlier.Boot), cmp.Or(e.Driver, earlier.Driver), cmp.Or(e.Module, earlier.Module)}
}

func known(a, b string) bool { return a != "" && a == b }

// BusID is a PCI address as "0000:1b:00.0", lower case; NVML writes eight digits of domain, CUDA four.
type BusID string

// ParseBusID brings a PCI address of any of these forms into normal form.
func ParseBusID(s string) (BusID, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return "", fmt.Errorf("parse bus id %q: want domain:bus:device.function", s)
	}
	device, function, ok := strings.Cut(parts[2], ".")
	if !ok {
		return "", fmt.Errorf("parse bus id %q: no function", s)
	}
	var n [4]uint64
	for i, field := range []struct {
		text string
		bits int
	}{{parts[0], 32}, {parts[1], 8}, {device, 5}, {function, 3}} {
		v, err := strconv.ParseUint(field.text, 16, field.bits)
		if err != nil {
			return "", fmt.Errorf("parse bus id %q: %q is not a hexadecimal number of %d bits", s, field.text,
				field.bits)
		}
		n[i] = v
	}
	return BusID(fmt.Sprintf("%04x:%02x:%02x.%x", n[0], n[1], n[2], n[3])), nil
}
