package gpu

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Vendor describes what is visible of a vendor's driver without querying it: its names in /dev and /sys, and its lines
// in the kernel log. Empty fields are unknown or unneeded so far.
type Vendor struct {
	Name    string   // Device.Vendor
	PCI     string   // vendor ID on the PCI bus, as sysfs writes it
	Classes []string // prefixes of its GPUs' PCI class codes in sysfs
	Module  string   // name of the kernel module
	Library string   // library whose real file name contains the driver's version
	Nodes   Nodes
	MPS     string // prefix of its MPS programs' names, within the 15 bytes that the kernel keeps
	// Untried is why no finding with this driver is certain enough to drain; empty if the driver was measured.
	Untried string
	// Surroundings are error codes of a test allocation that may come from its environment instead of the GPU.
	Surroundings []int
	// Fault parses a kernel-log entry about a GPU error, Mismatch one about a library of a version unlike the module's.
	Fault    func(entry string) (Xid, bool)
	Mismatch func(entry string) (line string, ok bool)
}

// Nodes are the names of a driver's device nodes.
type Nodes struct {
	Card    string   // prefix of a GPU's node; its minor follows
	Control string   // belongs to no single GPU
	Shared  []string // for memory shared by host and GPUs; belong to no single GPU
	Caps    string   // directory of capabilities; all names in it begin with Cap
	Cap     string
	Folder  string // directory in /dev that contains the nodes; empty for /dev itself
}

// Vendors are the supported vendors. A device without a vendor, as in old records, belongs to the first.
var Vendors = [...]*Vendor{&NVIDIA, &AMD}

func VendorOf(d Device) *Vendor {
	for _, v := range Vendors {
		if v.Name == d.Vendor {
			return v
		}
	}
	return Vendors[0]
}

// NodeKind is the purpose of a driver's device node.
type NodeKind int

const (
	CardNode NodeKind = iota + 1
	ControlNode
	SharedNode
	CapsNode
)

// Node is a device node of a driver. Minor is set only for a CardNode.
type Node struct {
	Vendor *Vendor
	Kind   NodeKind
	Minor  int
}

func (v *Vendor) DeviceNode(minor int) string { return fmt.Sprintf("%s%d", v.Nodes.Card, minor) }

// MayBeNode is a fast check of a file name, without its directory, that tells whether calling ParseNode is worthwhile.
func MayBeNode(name []byte) bool {
	return slices.ContainsFunc(Vendors[:], func(v *Vendor) bool {
		prefix := v.Nodes.Card
		return len(name) > len(prefix) && string(name[:len(prefix)]) == prefix
	})
}

// ParseNode parses a device node's path. It also returns the directory that takes the place of /dev; "" is the root.
func ParseNode(file string) (n Node, folder string, ok bool) {
	if !strings.HasPrefix(file, "/") {
		return Node{}, "", false
	}
	at := strings.LastIndexByte(file, '/')
	folder, name := file[:at], file[at+1:]
	for _, v := range Vendors {
		minor, isCard := ParseMinor(name, v.Nodes.Card)
		switch {
		case isCard && v.Nodes.Folder != "":
			dev, ok := strings.CutSuffix(folder, "/"+v.Nodes.Folder)
			return Node{v, CardNode, minor}, dev, ok
		case isCard:
			return Node{v, CardNode, minor}, folder, true
		case v.Nodes.Control == "":
		case name == v.Nodes.Control:
			return Node{Vendor: v, Kind: ControlNode}, folder, true
		case slices.Contains(v.Nodes.Shared, name):
			return Node{Vendor: v, Kind: SharedNode}, folder, true
		case path.Base(folder) == v.Nodes.Caps && strings.HasPrefix(name, v.Nodes.Cap):
			return Node{Vendor: v, Kind: CapsNode}, folder[:strings.LastIndexByte(folder, '/')], true
		}
	}
	return Node{}, "", false
}

func ParseMinor(name, prefix string) (int, bool) {
	number, ok := strings.CutPrefix(name, prefix)
	minor, decimal := Decimal(number, 1<<20-1) // Linux minors have 20 bits
	return minor, ok && decimal && strconv.Itoa(minor) == number
}

// IsDeviceNode reports whether this is the name of a GPU's device node, of any vendor.
func IsDeviceNode(name string) bool {
	return slices.ContainsFunc(Vendors[:], func(v *Vendor) bool {
		_, ok := ParseMinor(name, v.Nodes.Card)
		return ok
	})
}

// OfMPS reports whether a program's name is that of a multi-process service. Any process can choose such a name.
func OfMPS(name string) bool {
	return slices.ContainsFunc(Vendors[:],
		func(v *Vendor) bool { return v.MPS != "" && strings.HasPrefix(name, v.MPS) })
}

// NVIDIA describes NVIDIA's driver.
var NVIDIA = Vendor{
	Name: "nvidia", PCI: "0x10de", Classes: []string{"0x03"}, Module: "nvidia", Library: "libnvidia-ml.so.1",
	Nodes: Nodes{
		Card: "nvidia", Control: "nvidiactl", Shared: []string{"nvidia-uvm", "nvidia-uvm-tools"},
		Caps: "nvidia-caps", Cap: "nvidia-cap",
	},
	MPS: "nvidia-cuda-mps", // -control and -server
	Surroundings: []int{
		2,   // OUT_OF_MEMORY: from cuInit under ulimit -v (measured); not an error from an allocation
		34,  // STUB_LIBRARY
		35,  // INSUFFICIENT_DRIVER
		100, // NO_DEVICE
		101, // INVALID_DEVICE
		304, // OPERATING_SYSTEM
		800, // NOT_PERMITTED
		// INVALID_VALUE, NOT_INITIALIZED, DEINITIALIZED, INVALID_CONTEXT, INVALID_HANDLE: of the test's own calls
		1, 3, 4, 201, 400,
		// of a multi-process service
		805, 806, 807, 808, 809, 810,
	},
	Fault:    parseXid,
	Mismatch: parseMismatch,
}

// parseMismatch joins the lines of an entry. No process name (15 bytes) can contain the prefix.
func parseMismatch(entry string) (line string, ok bool) {
	if !strings.HasPrefix(entry, "NVRM: API mismatch: ") {
		return "", false
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(entry, "\nNVRM: ", " ")), " "), true
}

// xidBegins begins each Xid line. It would fit in a process name, but not with the bus ID and "): " that must follow.
const xidBegins = "NVRM: Xid ("

// parseXid parses "NVRM: Xid (PCI:0000:1b:00 GPU-I:01 GPU-CI:00): 31, pid=1234, name=python3, text". The MIG instance,
// the process and the text are optional; drivers before 2013 omit "PCI:".
func parseXid(text string) (Xid, bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), xidBegins)
	if !ok {
		return Xid{}, false
	}
	place, rest, ok := strings.Cut(rest, "):")
	if !ok {
		return Xid{}, false
	}
	var x Xid
	number, rest, _ := strings.Cut(strings.TrimSpace(rest), ",")
	x.Code, ok = Decimal(strings.TrimSpace(number), maxXid)
	if !ok || !parsePlace(place, &x) {
		return Xid{}, false
	}
	x.Text = parseProcess(strings.TrimSpace(rest), &x)
	x.CausedBy, x.Recovery = parseCause(x), parseRecovery(x)
	return x, true
}

// maxXid exceeds every Xid in use: 185 is the largest by early 2026.
const maxXid = 9999

// MaxPID is Linux's PID_MAX_LIMIT.
const MaxPID = 4 << 20

// parsePlace parses the bus ID, which has no function number, and the optional MIG instance.
func parsePlace(place string, x *Xid) bool {
	fields := strings.Fields(place)
	if len(fields) == 0 {
		return false
	}
	id := strings.TrimPrefix(fields[0], "PCI:")
	if !strings.Contains(id, ".") {
		id += ".0"
	}
	var err error
	x.BusID, err = ParseBusID(id)
	if err != nil {
		return false
	}
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, ":")
		if n, ok := Decimal(value, 255); ok && (key == "GPU-I" || key == "GPU-CI") {
			x.Instance = strings.TrimSpace(fmt.Sprintf("%s %s %d", x.Instance, key, n))
		}
	}
	return true
}

// parseProcess removes a leading "pid=..., name=..., ". The driver sets the PID; the process chooses its name.
func parseProcess(rest string, x *Xid) (text string) {
	if after, ok := strings.CutPrefix(rest, "pid="); ok {
		pid, more, _ := strings.Cut(after, ",")
		x.PID, _ = Decimal(strings.Trim(pid, "'"), MaxPID)
		rest = strings.TrimSpace(more)
	}
	if after, ok := strings.CutPrefix(rest, "name="); ok {
		name, more, _ := strings.Cut(after, ", ")
		x.Name, rest = strings.TrimSuffix(name, ","), strings.TrimSpace(more)
	}
	return rest
}

// Decimal parses an unsigned decimal number that is not larger than most.
func Decimal(s string, most int) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n > uint64(most) {
		return 0, false
	}
	return int(n), true
}

// AMD describes AMD's driver, with the device names used by its backend and by Slurm.
var AMD = Vendor{
	Name: "amd", PCI: "0x1002", Classes: []string{"0x0380", "0x12"}, Module: "amdgpu",
	Nodes:   Nodes{Card: "renderD", Folder: "dri"},
	Untried: "Bookend was never tried on AMD's hardware",
	Fault:   parseAMD,
}
