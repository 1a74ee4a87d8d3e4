package holders

import (
	"bytes"
	"path"
	"reflect"
	"slices"
	"strings"

	"bookend/internal/attrib"
	"bookend/internal/gpu"
)

// deleted is what the kernel adds to the path of a file without a name. A device node loses its name when a
// container's /dev is emptied or the driver's nodes are made anew; whoever has it open still has the device.
const deleted = " (deleted)"

// mayBeNode is a quick look at a path: whether parseNode is worth the trouble.
func mayBeNode(target []byte) bool {
	at := bytes.LastIndexByte(target, '/')
	return at >= 0 && gpu.MayBeNode(target[at+1:])
}

// parseNode reads a path as the kernel writes it in links and maps, and returns the node that its name stands for and
// the folder that takes the place of /dev: empty for the root.
func parseNode(target string) (n gpu.Node, folder string, ok bool) {
	// Threat: memfd_create and DMA buffers let a process choose all of what follows the colon.
	if strings.HasPrefix(target, "/memfd:") || strings.HasPrefix(target, "/dmabuf:") {
		return gpu.Node{}, "", false
	}
	return gpu.ParseNode(strings.TrimSuffix(target, deleted))
}

// place says in which folders a process's device nodes are.
type place struct {
	dev string // /dev
	// foreign reports a process with a root or a mount namespace of its own: a container's /dev shows as /dev, or with
	// the path of its root before it, and is none of the host's folders. In the host's own the very folder counts:
	// another file of that name is a file.
	foreign func() bool
}

// has reports whether a folder is one of device nodes. The root counts: a file shows so once what it was mounted
// on has been taken away, as with umount -l and with the death of a container.
func (p place) has(folder string) bool {
	dev := strings.TrimRight(p.dev, "/")
	return folder == dev || folder == "" || p.foreign() && path.Base(folder) == path.Base(dev)
}

// nodes is what a process holds of the driver's device nodes.
type nodes struct {
	minors             []int // sorted
	control, uvm, caps bool
	over               bool // more minors than are kept
}

// maxMinors is more than the driver has: its cards have the numbers below 254.
const maxMinors = 64

// add takes a path in when it is a device node of this place.
func (n *nodes) add(target []byte, in place) {
	if !mayBeNode(target) {
		return
	}
	found, folder, ok := parseNode(string(target))
	if !ok || !in.has(folder) {
		return
	}
	switch found.Kind {
	case gpu.CardNode:
		n.addMinor(found.Minor)
	case gpu.ControlNode:
		n.control = true
	case gpu.SharedNode:
		n.uvm = true
	case gpu.CapsNode:
		n.caps = true
	}
}

func (n *nodes) addMinor(minor int) {
	at, have := slices.BinarySearch(n.minors, minor)
	switch {
	case have:
	case len(n.minors) == maxMinors:
		n.over = true
	default:
		n.minors = slices.Insert(n.minors, at, minor)
	}
}

func (n nodes) any() bool { return len(n.minors) > 0 || n.control || n.uvm || n.caps }

// with joins what two looks found.
func (n nodes) with(more nodes) nodes {
	all := nodes{slices.Clone(n.minors), n.control || more.control, n.uvm || more.uvm, n.caps || more.caps,
		n.over || more.over}
	for _, minor := range more.minors {
		all.addMinor(minor)
	}
	return all
}

// holding words what a process has open and what it has mapped.
func holding(p attrib.Process, open, mapped nodes) attrib.Holding {
	all := open.with(mapped)
	return attrib.Holding{Process: p, Minors: all.minors, Control: all.control, UVM: all.uvm, Caps: all.caps,
		Mapped: !reflect.DeepEqual(all, open.with(nodes{over: all.over}))}
}

// mapFields are the fields before the path in a line of maps: addresses, rights, offset, device, inode.
const mapFields = 5

// parseMap returns the path in a line of /proc/PID/maps, nothing where none is mapped. The kernel writes a newline
// in a path as \012 and blanks as they are; a name in brackets, such as the one a process gave its anonymous
// memory, begins with no slash.
func parseMap(line []byte) []byte {
	for range mapFields {
		line = bytes.TrimLeft(line, " ")
		at := bytes.IndexByte(line, ' ')
		if at < 0 {
			return nil
		}
		line = line[at:]
	}
	if line = bytes.TrimLeft(line, " "); !bytes.HasPrefix(line, []byte("/")) {
		return nil
	}
	return line
}
