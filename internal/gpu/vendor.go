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
	// Surroundings are the errors of a test allocation that may come from what it was given to run in, not from the
	// card.
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

// The kinds of device nodes; the zero value is none.
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

// ParseNode reads the path of a device node, and returns besides the folder that takes the place of /dev: empty for the
// root.
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
