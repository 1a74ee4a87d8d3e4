package attrib

import (
	"path"
	"slices"

	"bookend/internal/gpu"
)

// Class is what kind of holder a process is. A holder may be of several.
type Class string

// The classes of holders.
const (
	Orphan    Class = "orphan"    // its job has ended
	Phantom   Class = "phantom"   // the driver lists it, but it is gone
	Exported  Class = "exported"  // may hold an exported handle: it has the driver open and nothing that explains why
	Stopped   Class = "stopped"   // state T or t: SIGKILL ends it
	Dying     Class = "dying"     // a zombie whose threads live on, or in uninterruptible sleep
	MPS       Class = "mps"       // a vendor's multi-process service: its server, its daemon or a client
	Container Class = "container" // in a container, or in another PID namespace
	System    Class = "system"    // a service of the system manager: not a job's
)

// Classes says what kind of holder a process is by itself; kinds is how the driver lists it, nothing for one that
// it does not list. Orphan and Exported need more than the process, and are the caller's to add.
func Classes(p Process, kinds ...gpu.Kind) []Class {
	if p.Gone {
		return []Class{Phantom}
	}
	var all []Class
	for _, c := range []struct {
		is    bool
		class Class
	}{
		{p.State == "T" || p.State == "t", Stopped},
		{p.State == "Z" || p.State == "D" || p.State == "X", Dying},
		{slices.Contains(kinds, gpu.MPS) || p.OfMPS(), MPS},
		{p.Apart(), Container},
		{p.OfSystem(), System},
	} {
		if c.is {
			all = append(all, c.class)
		}
	}
	return all
}

// OfMPS reports whether a process calls itself one of MPS's own. Anybody may: it excuses nobody.
func (p Process) OfMPS() bool {
	return gpu.OfMPS(path.Base(p.Exe)) || gpu.OfMPS(p.Name)
}

// OfSystem reports whether a process is a service of the node: only root can put one there.
func (p Process) OfSystem() bool { return p.Service != "" && !p.Cgroup.Found() }

// Apart reports whether a process is in a container or a PID namespace of its own: its user need not be who started it.
func (p Process) Apart() bool { return p.Container != "" || p.OtherPIDs }
