// Package attrib decides whose a process on a GPU is, and how sure that is. It is pure: /proc was read by
// package holders, Slurm's records by package state.
package attrib

import (
	"path"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Process is what /proc said of one PID. Strings are raw: the process chose them.
type Process struct {
	PID  int    `json:"pid"`
	Gone bool   `json:"gone,omitempty"` // no such PID, or only its zombie: the driver lists a dead process
	Why  string `json:"why,omitempty"`  // why the rest is unknown, when it is
	// Start is the start time as CLOCK_BOOTTIME, from field 22 of stat, to the kernel's 10 ms tick.
	Start    time.Duration `json:"start_ns,omitempty"`
	UID      uint32        `json:"uid"`
	Name     string        `json:"name,omitempty"`    // comm
	State    string        `json:"state,omitempty"`   // R S D T Z …
	Cgroup   slurm.Owner   `json:"cgroup,omitzero"`   // the job its cgroup names, if any
	EnvJobID slurm.JobID   `json:"env_job,omitempty"` // SLURM_JOB_ID in its initial environment: forgeable
	// Service is the systemd unit of the system manager that its cgroup names ("dcgm.service"), Container the
	// container that it names; never both with a job. A user's own manager names neither.
	Service   string `json:"service,omitempty"`
	Container string `json:"container,omitempty"`
	Exe       string `json:"exe,omitempty"`        // target of its exe link
	OtherPIDs bool   `json:"other_pids,omitempty"` // it sees itself under another PID: another PID namespace
	Hangs     bool   `json:"hangs,omitempty"`      // its entry in /proc was still being read when time was up
}

// Instance names one process: a PID alone may be another's later.
type Instance struct {
	PID   int           `json:"pid"`
	Start time.Duration `json:"start_ns,omitempty"` // CLOCK_BOOTTIME; 0 where it is not known, which stands for any
}

// Level is the evidence behind an attribution, strongest first.
type Level string

// The levels of evidence.
const (
	ByCgroup      Level = "cgroup"      // the process is in the job's cgroup
	BySighting    Level = "sighting"    // an earlier hook saw it there
	ByExclusive   Level = "exclusive"   // it started between the job's two ends, same user, on a GPU given to it alone
	ByEnvironment Level = "environment" // its environment says so: a hint
	None          Level = "none"
)

// Weaker reports whether a level is less sure than another.
func (l Level) Weaker(than Level) bool { return rank[l] < rank[than] }

var rank = map[Level]int{None: 0, ByEnvironment: 1, ByExclusive: 2, BySighting: 3, ByCgroup: 4}

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

// Holding is one process with what it has open or mapped of the driver's device nodes. A descriptor proves a
// holder, not bytes.
type Holding struct {
	Process
	Minors  []int `json:"minors,omitempty"`  // of the cards, sorted
	Control bool  `json:"control,omitempty"` // the control node: names no GPU
	UVM     bool  `json:"uvm,omitempty"`     // a node of shared memory: names no GPU
	Caps    bool  `json:"caps,omitempty"`    // something in the folder of capabilities
}

// Scan is one search of /proc for holders of device nodes.
type Scan struct {
	Holdings []Holding `json:"holdings"`
	Looked   int       `json:"looked"` // processes that were looked into
	// Partial is why holders may have been missed, empty when every process was looked into to its end.
	Partial string `json:"partial,omitempty"`
	// Hung are the processes whose memory was still being read when time was up.
	Hung []Instance `json:"hung,omitempty"`
}

// Open names the device nodes that a process holds, as in /dev.
func (h Holding) Open() []string {
	var names []string
	v := gpu.Vendors[0]
	for _, minor := range h.Minors {
		names = append(names, v.CardNode(minor))
	}
	for _, kind := range []struct {
		open bool
		name string
	}{{h.Control, v.Nodes.Control}, {h.UVM, v.Nodes.Shared[0]}, {h.Caps, v.Nodes.Caps}} {
		if kind.open {
			names = append(names, kind.name)
		}
	}
	return names
}
