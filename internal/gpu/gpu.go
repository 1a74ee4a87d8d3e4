// Package gpu defines vendor-neutral values for a node's GPUs: devices, readings, health facts and driver faults. It
// has no effects, and every other package may import it.
package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ID is a device's identity as the vendor's driver gives it ("GPU-8f0b…", "MIG-…"). It is never parsed here.
type ID string

// Figure is a number of bytes that may be unknown. An unknown figure carries the reason; it is never a plain 0.
type Figure struct {
	Bytes   uint64 `json:"bytes"`
	Unknown string `json:"unknown,omitempty"` // why it could not be read; empty if Bytes is valid
}

func Bytes(n uint64) Figure { return Figure{Bytes: n} }

// Unknown returns a figure that could not be read, with the reason. An empty reason becomes "not read".
func Unknown(why string) Figure { return Figure{Unknown: cmp.Or(why, "not read")} }

// ImpossibleSize is why a size that a program printed is unknown if no machine can have as much.
const ImpossibleSize = "not a possible size"

func (f Figure) Known() bool { return f.Unknown == "" }

func (f Figure) Text(unknown string) string {
	if !f.Known() {
		return unknown
	}
	return Size(f.Bytes)
}

// Device identifies one GPU or MIG instance.
type Device struct {
	ID     ID     `json:"id"`
	BusID  BusID  `json:"bus_id,omitempty"`
	Minor  *int   `json:"minor,omitempty"`  // N of its device node (nvidiaN); nil if unknown
	Parent ID     `json:"parent,omitempty"` // the physical GPU of a MIG instance
	Name   string `json:"name,omitempty"`   // model name from the driver: untrusted text
	Vendor string `json:"vendor,omitempty"` // "nvidia", "amd"
}

// Node returns the file name of the device's node under /dev, or "" if its minor is unknown.
func (d Device) Node() string {
	if d.Minor == nil {
		return ""
	}
	return VendorOf(d).DeviceNode(*d.Minor)
}

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
	// Unjudged is the reason why Used cannot show what a job left behind; empty if it can. Either the operating system
	// keeps files in this memory (a GPU that is a NUMA node), or other virtual machines use the GPU (vGPU).
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

// Process is one process that the driver lists, merged by PID. It created the memory, and may be dead already.
type Process struct {
	PID    int    `json:"pid"`
	Memory Figure `json:"memory"`
	Kinds  []Kind `json:"kinds,omitempty"`
}

// FaultCode classifies a failure to read a device.
type FaultCode string

// The faults a backend reports; FaultDriver is any other driver error.
const (
	FaultNoDriver  FaultCode = "no_driver"        // the vendor's library found no driver
	FaultNoLibrary FaultCode = "no_library"       // the library is not at the expected path
	FaultMismatch  FaultCode = "version_mismatch" // library and kernel module disagree
	FaultNoDevice  FaultCode = "no_device"        // a requested device does not exist
	FaultLost      FaultCode = "gpu_lost"         // the GPU fell off the bus
	FaultReset     FaultCode = "reset_required"
	FaultNoSymbol  FaultCode = "no_symbol"     // the driver lacks a required function
	FaultForbidden FaultCode = "no_permission" // it may come from what asks: library, cgroup, host memory
	FaultDriver    FaultCode = "driver_error"
)

// Fault is a failure the driver reported, for one device or for the whole driver.
type Fault struct {
	Code   FaultCode `json:"code"`
	Device ID        `json:"device,omitempty"` // empty if the whole driver is affected
	BusID  BusID     `json:"bus_id,omitempty"`
	Detail string    `json:"detail,omitempty"` // the failed call and the driver's message: untrusted text
}

// Concerns reports whether a fault is of a device or, for a MIG instance, its GPU. Other instances share its bus id.
func (f Fault) Concerns(d Device) bool {
	if f.Device != "" && d.ID != "" {
		return f.Device == d.ID || f.Device == d.Parent
	}
	return f.BusID == d.BusID && (d.BusID != "" || f.Device == d.ID)
}

// Reading is what one sample contains about one device.
type Reading struct {
	Device           Device    `json:"device"`
	Memory           Memory    `json:"memory"`
	Processes        []Process `json:"processes"`
	ProcessesUnknown string    `json:"processes_unknown,omitempty"` // why the list could not be read or trusted
	Busy             *Busy     `json:"busy,omitempty"`              // only in a recording, if the driver reports it
	KnownBad         string    `json:"known_bad,omitempty"`         // known defect of this driver in freeing memory
	Parts            bool      `json:"parts,omitempty"`             // a GPU that is assigned in parts (MIG mode)
}

// Process returns the process listed under the PID, or false if there is none.
func (r Reading) Process(pid int) (Process, bool) {
	return first(r.Processes, func(p Process) bool { return p.PID == pid })
}

// Busy is the share of the driver's last sample period, in percent, in which a kernel ran and memory was accessed.
type Busy struct {
	GPU    int `json:"gpu"`
	Memory int `json:"memory"`
}

// Driver names the driver that answered.
type Driver struct {
	Version string `json:"version,omitempty"`
	Library string `json:"library,omitempty"` // the vendor library's own version
}

// Snapshot is one sample of a set of devices.
type Snapshot struct {
	At       time.Duration `json:"at"` // CLOCK_BOOTTIME when the last device was read
	Driver   Driver        `json:"driver"`
	Readings []Reading     `json:"readings"`
	Faults   []Fault       `json:"faults,omitempty"`
	// Events are errors that the driver reported since the last sample; only in a recording, if the driver supports it.
	Events []Event `json:"events,omitempty"`
}

func (s Snapshot) Reading(id ID) (Reading, bool) {
	return first(s.Readings, func(r Reading) bool { return r.Device.ID == id })
}

func first[T any](list []T, is func(T) bool) (none T, ok bool) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], true
	}
	return none, false
}

// Physical is one physical GPU of the node, read without the driver's library.
type Physical struct {
	Device Device `json:"device"` // ID is empty until the driver has cached the GPU's UUID
	// Excluded is true for a GPU that the driver does not manage: no process can use it. It still has a minor.
	Excluded bool   `json:"excluded,omitempty"`
	Unknown  string `json:"unknown,omitempty"` // why only the bus ID is known; empty if more is known
}

// Ordinal returns the number that NVML has for a device among a node's GPUs, and DCGM if it was started with these:
// both count NVIDIA's GPUs that the driver manages, from 0, by bus id. It is -1 for others, and for MIG instances.
func (d Device) Ordinal(cards []Physical) int {
	counted := slices.DeleteFunc(slices.Clone(cards), func(c Physical) bool {
		return c.Excluded || c.Device.Vendor != NVIDIA.Name
	})
	slices.SortFunc(counted, func(a, b Physical) int { return cmp.Compare(a.Device.BusID, b.Device.BusID) })
	return slices.IndexFunc(counted, func(c Physical) bool {
		if d.ID == "" || c.Device.ID == "" {
			return d.BusID != "" && d.BusID == c.Device.BusID
		}
		return d.ID == c.Device.ID
	})
}

// Epoch identifies one uninterrupted period of a node's driver. Measurements of one epoch are not valid in another: a
// boot, a driver update or a reload of the module frees all GPU memory and may renumber the devices.
type Epoch struct {
	Boot   string `json:"boot,omitempty"`   // the kernel's boot id; empty when unknown
	Driver string `json:"driver,omitempty"` // version of the loaded driver; empty when unknown
	Module string `json:"module,omitempty"` // identity of the loaded module; empty when unknown
}

// Same reports whether both are known to be one epoch. An unknown part equals nothing, so two unknown epochs differ.
func (e Epoch) Same(other Epoch) bool {
	return known(e.Boot, other.Boot) && known(e.Driver, other.Driver) && known(e.Module, other.Module)
}

// Changed reports whether a part that is known in both epochs differs. If neither Same nor Changed, it is unknown.
func (e Epoch) Changed(other Epoch) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(e.Boot, other.Boot) || differ(e.Driver, other.Driver) || differ(e.Module, other.Module)
}

// Continues reports whether both are of one known boot and no part is known to differ.
func (e Epoch) Continues(earlier Epoch) bool {
	return e.Boot != "" && earlier.Boot != "" && !e.Changed(earlier)
}

func (e Epoch) OtherBoot(other Epoch) bool {
	return Epoch{Boot: e.Boot}.Changed(Epoch{Boot: other.Boot})
}

// Or fills in unknown parts from an earlier epoch, unless a known part differs from it. If a later epoch is the same as
// the result, the driver was not reloaded in between; if it was, no later epoch is the same.
func (e Epoch) Or(earlier Epoch) Epoch {
	if e.Changed(earlier) {
		return e
	}
	return Epoch{cmp.Or(e.Boot, earlier.Boot), cmp.Or(e.Driver, earlier.Driver), cmp.Or(e.Module, earlier.Module)}
}

func known(a, b string) bool { return a != "" && a == b }

// BusID is a PCI address in the form "0000:1b:00.0", lower case. NVML writes an eight-digit domain, CUDA four.
type BusID string

// ParseBusID converts a PCI address of either form to a BusID.
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

// Size formats bytes like the frameworks do, so that users can compare them.
func Size(bytes uint64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
