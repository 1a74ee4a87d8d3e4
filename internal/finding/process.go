package finding

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Process is what /proc said of one PID. Strings are raw: the process chose them.
type Process struct {
	PID  int  `json:"pid"`
	Gone bool `json:"gone,omitempty"` // no such PID, or only its zombie: the driver lists a dead process
	// Reused is set with Gone if another process has the PID by now: that one has no GPU open.
	Reused bool   `json:"reused,omitempty"`
	Why    string `json:"why,omitempty"` // why the rest is unknown, when it is
	// Start is the start time as CLOCK_BOOTTIME, from field 22 of stat, to the kernel's 10 ms tick.
	Start    time.Duration `json:"start_ns,omitempty"`
	UID      uint32        `json:"uid"`
	Name     string        `json:"name,omitempty"`    // comm
	State    string        `json:"state,omitempty"`   // R S D T Z …; X once all threads that live are ending
	Cgroup   slurm.Owner   `json:"cgroup,omitzero"`   // the job its cgroup names, if any
	EnvJobID slurm.JobID   `json:"env_job,omitempty"` // SLURM_JOB_ID in its initial environment: forgeable
	// EnvJobHere is why that job may be on this node though no record says so: it has a step here with a process of this
	// user, or whether it has could not be read. It is empty if it has none, and where a cgroup names the process's job.
	EnvJobHere string `json:"env_job_here,omitempty"`
	// EnvUnknown is why its environment was not read. Steps are then the jobs that it may name: those with a step here
	// that runs a process of this user.
	EnvUnknown string        `json:"env_unknown,omitempty"`
	Steps      []slurm.JobID `json:"steps,omitempty"`
	// Service is the system manager's unit in its cgroup ("dcgm.service"), Container its container; never with a job.
	Service   string `json:"service,omitempty"`
	Container string `json:"container,omitempty"`
	Exe       string `json:"exe,omitempty"`        // target of its exe link
	OtherPIDs bool   `json:"other_pids,omitempty"` // it sees itself under another PID: another PID namespace
	// DeviceUnknown is why it could not be read whether the process has a GPU open: another may be the one that holds one.
	DeviceUnknown string `json:"device_unknown,omitempty"`
	Hangs         bool   `json:"hangs,omitempty"` // its entry in /proc was still being read when time was up
}

// Instance names one process: a PID alone may be another's later.
type Instance struct {
	PID   int           `json:"pid"`
	Start time.Duration `json:"start_ns,omitempty"` // CLOCK_BOOTTIME; 0 where it is not known, which stands for any
}

// Class is what kind of holder a process is. A holder may be of several.
type Class string

const (
	Orphan    Class = "orphan"    // its job has ended
	Phantom   Class = "phantom"   // the driver lists it, but it is gone
	Exported  Class = "exported"  // may hold an exported handle: it has the driver open and nothing that explains why
	Stopped   Class = "stopped"   // state T or t: SIGKILL ends it
	Dying     Class = "dying"     // ending, a zombie whose threads live on, or in uninterruptible sleep
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

// OfMPS reports whether a process calls itself one of MPS's own. Any process can, so this alone excuses nothing.
func (p Process) OfMPS() bool { return gpu.OfMPS(path.Base(p.Exe)) || gpu.OfMPS(p.Name) }

// OfSystem reports whether a process is a service of the node: only root can put one there.
func (p Process) OfSystem() bool { return p.Service != "" && !p.Cgroup.Found() }

// Apart reports whether a process is in a container or a PID namespace of its own: its user need not be who started it.
func (p Process) Apart() bool { return p.Container != "" || p.OtherPIDs }

// Scan is one search of /proc for holders of device nodes.
type Scan struct {
	Holdings []Holding `json:"holdings"`
	Looked   int       `json:"looked"` // processes that were looked into
	// Partial is why holders may have been missed, but for Unread: processes of which not all could be read.
	Partial string    `json:"partial,omitempty"`
	Unread  []Process `json:"unread,omitempty"`
	// Hung are the processes whose memory was still being read when time was up.
	Hung []Instance `json:"hung,omitempty"`
}

// Missed says why holders may have been missed, empty if every process was looked into to its end.
func (s Scan) Missed() string {
	missed := holding(doubt{s.Partial != "", s.Partial})
	for _, p := range s.Unread[:min(len(s.Unread), 1)] {
		missed = append(missed, fmt.Sprintf("process %d: %s", p.PID, cmp.Or(p.Why, p.EnvUnknown)))
	}
	if more := len(s.Unread) - 1; more > 0 {
		missed = append(missed, fmt.Sprintf("and %d more processes", more))
	}
	return strings.Join(missed, "; ")
}

// Tick is the resolution of a process's start time in /proc: 1/100 s on every Linux (USER_HZ).
const Tick = 10 * time.Millisecond

// Holding is a process with the driver's device nodes that it has open or mapped. A descriptor proves no bytes.
type Holding struct {
	Process
	Minors  []int `json:"minors,omitempty"`  // of the cards, sorted
	Control bool  `json:"control,omitempty"` // the control node: names no GPU
	UVM     bool  `json:"uvm,omitempty"`     // a node of shared memory: names no GPU
	Caps    bool  `json:"caps,omitempty"`    // a file of the driver's capabilities
	// Renders are the minors of AMD's render nodes, Buffers a dma-buf: memory of any GPU whose driver exports such.
	Renders []int `json:"renders,omitempty"`
	Buffers bool  `json:"dma_bufs,omitempty"`
}

// Has reports who has the card's own node open; where that is not known, who has anything of its vendor's.
func (h Holding) Has(d gpu.Device) bool {
	if d.Minor == nil {
		return h.Of(gpu.VendorOf(d))
	}
	return slices.Contains(h.cards(gpu.VendorOf(d)), *d.Minor)
}

// MayHold reports who may hold a GPU's unlisted memory: with it open, or only nodes that name no GPU.
func (h Holding) MayHold(d gpu.Device) bool {
	v := gpu.VendorOf(d)
	return h.Has(d) || h.Of(v) && len(h.cards(v)) == 0 || v == &gpu.AMD && h.Buffers
}

// Of reports who has anything of a vendor's open.
func (h Holding) Of(v *gpu.Vendor) bool {
	if v == &gpu.AMD {
		return len(h.Renders) > 0 || h.Buffers
	}
	return len(h.Minors) > 0 || h.Control || h.UVM || h.Caps
}

func (h Holding) cards(v *gpu.Vendor) []int {
	if v == &gpu.AMD {
		return h.Renders
	}
	return h.Minors
}

// Open names the device nodes that a process holds, as in /dev.
func (h Holding) Open() (names []string) {
	v := &gpu.NVIDIA
	for _, minor := range h.Minors {
		names = append(names, v.CardNode(minor))
	}
	for _, minor := range h.Renders {
		names = append(names, gpu.AMD.CardNode(minor))
	}
	has := [...]bool{h.Control, h.UVM, h.Caps, h.Buffers}
	for i, name := range [...]string{v.Nodes.Control, v.Nodes.Shared[0], v.Nodes.Caps, "dma-buf"} {
		if has[i] {
			names = append(names, name)
		}
	}
	return names
}
