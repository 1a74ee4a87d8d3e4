package gpu

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Vendor is what a vendor's driver looks like from outside: its names in /dev and /sys, its lines in the kernel's log,
// what it takes for itself. What has to be asked of the driver, its backend knows. Whatever is empty, nobody has yet
// found out or needed.
type Vendor struct {
	Name    string   // Device.Vendor
	PCI     string   // its number on the bus, as sysfs writes it
	Classes []string // begin the classes of its cards there
	Module  string   // the kernel's module
	Library string   // the library whose real file is named by the driver's version
	Nodes   Nodes
	MPS     string // begins the names of its multi-process service's programs, in the 15 bytes that the kernel keeps
	Context uint64 // bytes that the driver takes of a card for each process
	// Untried is why nothing that this driver tells is certain enough to drain for; empty where it was measured.
	Untried string
	// Surroundings are errors of a test allocation that may come from its environment, not from the GPU.
	Surroundings []int
	// Fault reads an entry of the kernel's log on an error of a card, Mismatch one on a library of another version than
	// the module.
	Fault    func(entry string) (Xid, bool)
	Mismatch func(entry string) (line string, ok bool)
}

// Nodes are the names of a driver's device nodes.
type Nodes struct {
	Card    string   // a card's, before its minor
	Control string   // names no card
	Shared  []string // of memory that host and cards share: names no card
	Caps    string   // the folder of its capabilities, in which all names begin with Cap
	Cap     string
	Folder  string // of /dev in which they are; empty for /dev itself
}

// Vendors are those of which anything is known. A device that names none, as in an old record, is of the first.
var Vendors = [...]*Vendor{&NVIDIA, &AMD}

// VendorOf returns a device's vendor.
func VendorOf(d Device) *Vendor {
	for _, v := range Vendors {
		if v.Name == d.Vendor {
			return v
		}
	}
	return Vendors[0]
}

// NodeKind is what a device node is of the driver's.
type NodeKind int

const (
	CardNode NodeKind = iota + 1
	ControlNode
	SharedNode
	CapsNode
)

// Node is a driver's device node; Minor is a card's.
type Node struct {
	Vendor *Vendor
	Kind   NodeKind
	Minor  int
}

// CardNode is the name of a card's device node.
func (v *Vendor) CardNode(minor int) string { return fmt.Sprintf("%s%d", v.Nodes.Card, minor) }

// MayBeNode is a quick look at a name without its folder: whether ParseNode is worth the trouble.
func MayBeNode(name []byte) bool {
	for _, v := range Vendors {
		if prefix := v.Nodes.Card; len(name) > len(prefix) && string(name[:len(prefix)]) == prefix {
			return true
		}
	}
	return false
}

// ParseNode reads the path of a device node, and returns the directory in the place of /dev too: empty for the root.
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

// ParseMinor reads the number behind a prefix, as a device node's name has it.
func ParseMinor(name, prefix string) (int, bool) {
	number, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	minor, err := strconv.ParseUint(number, 10, 20) // the 20 bits of a Linux minor
	if err != nil || strconv.FormatUint(minor, 10) != number {
		return 0, false
	}
	return int(minor), true
}

// IsCardNode reports the name of a whole card's device node, of whatever vendor.
func IsCardNode(name string) bool {
	return slices.ContainsFunc(Vendors[:], func(v *Vendor) bool {
		_, ok := ParseMinor(name, v.Nodes.Card)
		return ok
	})
}

// OfMPS reports the name of a program of a multi-process service. A process may take any.
func OfMPS(name string) bool {
	return slices.ContainsFunc(Vendors[:],
		func(v *Vendor) bool { return v.MPS != "" && strings.HasPrefix(name, v.MPS) })
}

// NVIDIA is NVIDIA's driver. A context was measured on an H200.
var NVIDIA = Vendor{
	Name: "nvidia", PCI: "0x10de", Classes: []string{"0x03"}, Module: "nvidia", Library: "libnvidia-ml.so.1",
	Nodes: Nodes{
		Card: "nvidia", Control: "nvidiactl", Shared: []string{"nvidia-uvm", "nvidia-uvm-tools"},
		Caps: "nvidia-caps", Cap: "nvidia-cap",
	},
	MPS:     "nvidia-cuda-mps", // -control and -server
	Context: 530 << 20,
	Surroundings: []int{
		2,   // OUT_OF_MEMORY: of cuInit under ulimit -v (measured); of an allocation it would be no error
		34,  // STUB_LIBRARY
		35,  // INSUFFICIENT_DRIVER
		100, // NO_DEVICE
		101, // INVALID_DEVICE
		304, // OPERATING_SYSTEM
	},
	Fault:    parseXid,
	Mismatch: parseMismatch,
}

// parseMismatch joins an entry's lines, each with the driver's name: longer than a process's name (15) can fake.
func parseMismatch(entry string) (line string, ok bool) {
	if !strings.HasPrefix(entry, "NVRM: API mismatch: ") {
		return "", false
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(entry, "\nNVRM: ", " ")), " "), true
}

// xidBegins begins each Xid line. It has 11 bytes, fewer than a process's name may have; what follows, a bus id and
// "): ", does not fit in one.
const xidBegins = "NVRM: Xid ("

// parseXid parses "NVRM: Xid (PCI:0000:1b:00 GPU-I:01 GPU-CI:00): 31, pid=1234, name=python3, text". The parts of a MIG
// instance, the process and the text may be missing; drivers before 2013 had no "PCI:".
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
	if x.Code, ok = Decimal(strings.TrimSpace(number), maxXid); !ok || !parsePlace(place, &x) {
		return Xid{}, false
	}
	x.Text = parseProcess(strings.TrimSpace(rest), &x)
	return x, true
}

// maxXid is larger than any number in use: 185 is the largest by early 2026.
const maxXid = 9999

// MaxPID is Linux's PID_MAX_LIMIT.
const MaxPID = 4 << 20

// parsePlace parses the bus id, which has no function, and the parts of a MIG instance.
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
	if x.BusID, err = ParseBusID(id); err != nil {
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

// parseProcess takes "pid=..., name=..., " off the front. The number is the driver's; the process chose the name.
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

// Decimal parses digits only.
func Decimal(s string, most int) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n > uint64(most) {
		return 0, false
	}
	return int(n), true
}

// AMD is AMD's driver, as its backend and Slurm name its cards.
var AMD = Vendor{
	Name: "amd", PCI: "0x1002", Classes: []string{"0x0380", "0x12"}, Module: "amdgpu",
	Nodes:   Nodes{Card: "renderD", Folder: "dri"},
	Untried: "Bookend was never tried on AMD's hardware",
	Fault:   parseAMD,
}

// AMD's driver numbers none of its errors. These stand for its words, beyond all of NVIDIA's.
const (
	AMDUncorrected = maxXid + 1 + iota
	AMDReset
	AMDPageFault
	AMDNotGivenBack
)

var amdWords = []struct {
	words string // what follows the place and the prefixes, or is in it
	begin bool
	code  int
}{
	{"VM memory stats for proc ", true, AMDNotGivenBack}, // names of processes follow
	{"uncorrectable hardware error", false, AMDUncorrected},
	{"GPU reset begin", true, AMDReset},
	{"page fault (src_id:", false, AMDPageFault},
}

// parseAMD parses "amdgpu 0000:e3:00.0: amdgpu: text"; newer kernels leave the second name out, and number an event of
// the RAS: "{1}text". The first 21 bytes are more than the name of a process that begins a line can have.
func parseAMD(entry string) (x Xid, ok bool) {
	rest, ok := strings.CutPrefix(entry, "amdgpu ")
	place, text, found := strings.Cut(rest, ": ")
	if !ok || !found {
		return Xid{}, false
	}
	var err error
	if x.BusID, err = ParseBusID(place); err != nil {
		return Xid{}, false
	}
	x.Text, _, _ = strings.Cut(strings.TrimPrefix(text, "amdgpu: "), "\n")
	said := x.Text
	if number, after, numbered := strings.Cut(said, "}"); numbered && strings.HasPrefix(number, "{") {
		said = after
	}
	for _, w := range amdWords {
		if strings.HasPrefix(said, w.words) || !w.begin && strings.Contains(said, w.words) {
			x.Code = w.code
			return x, true
		}
	}
	return Xid{}, false
}
