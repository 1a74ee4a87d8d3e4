package record

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

// Process is what /proc shows about one PID. Strings are raw: the process chose them.
type Process struct {
	PID  int  `json:"pid"`
	Gone bool `json:"gone,omitempty"` // no such PID, or only its zombie: the driver lists a dead process
	// Reused is set with Gone if another process has the PID by now, and that one has no GPU open.
	Reused bool   `json:"reused,omitempty"`
	Why    string `json:"why,omitempty"` // why the rest is unknown, if it is
	// Start is the start time as CLOCK_BOOTTIME, from field 22 of stat, to the kernel's 10 ms tick.
	Start    time.Duration `json:"start_ns,omitempty"`
	UID      uint32        `json:"uid"`
	Name     string        `json:"name,omitempty"`    // comm
	State    string        `json:"state,omitempty"`   // R S D T Z …; X once all live threads are ending
	Cgroup   slurm.Owner   `json:"cgroup,omitzero"`   // the job its cgroup names, if any
	EnvJobID slurm.JobID   `json:"env_job,omitempty"` // SLURM_JOB_ID in its initial environment: forgeable
	// EnvJobHere is why that job may be on this node without a record: it has a step here with a process of this user,
	// or whether it has one could not be read. It is empty if it has none, or if a cgroup names the process's job.
	EnvJobHere string `json:"env_job_here,omitempty"`
	// EnvUnknown is why its environment was not read. Steps are then the jobs that it may name: those with a step here
	// that runs a process of this user.
	EnvUnknown string        `json:"env_unknown,omitempty"`
	Steps      []slurm.JobID `json:"steps,omitempty"`
	// Service is the system manager's unit in its cgroup ("dcgm.service"), Container its container; not set with a job.
	Service   string `json:"service,omitempty"`
	Container string `json:"container,omitempty"`
	Exe       string `json:"exe,omitempty"`        // target of its exe link
	OtherPIDs bool   `json:"other_pids,omitempty"` // in a PID namespace that its user did not make
	Notebook  bool   `json:"notebook,omitempty"`   // Jupyter's mark is in its initial environment: forgeable
	// DeviceUnknown is why it is unknown whether the process has a GPU open; the holder may be another process.
	DeviceUnknown string `json:"device_unknown,omitempty"`
	Hangs         bool   `json:"hangs,omitempty"` // its /proc entry could not be read in time
}

// Instance identifies one process; its PID alone may be reused.
type Instance struct {
	PID   int           `json:"pid"`
	Start time.Duration `json:"start_ns,omitempty"` // CLOCK_BOOTTIME; 0 if unknown, which matches any
}

// Class is a kind of holder. A process may be of several.
type Class string

const (
	Orphan    Class = "orphan"    // its job has ended
	Phantom   Class = "phantom"   // the driver lists it, but it is gone
	Exported  Class = "exported"  // may hold an exported handle: it has the driver open without a known reason
	Stopped   Class = "stopped"   // state T or t: SIGKILL ends it
	Dying     Class = "dying"     // ending, a zombie whose threads live on, or in uninterruptible sleep
	MPS       Class = "mps"       // a vendor's multi-process service: its server, its daemon or a client
	Container Class = "container" // in a container, or in another PID namespace
	System    Class = "system"    // a service of the system manager: not a job's
)

// OfMPS reports whether a process has the name of an MPS program. Any process can, so this alone excuses nothing.
func (p Process) OfMPS() bool { return gpu.OfMPS(path.Base(p.Exe)) || gpu.OfMPS(p.Name) }

// OfSystem reports whether a process is a service of the node: only root can put one there.
func (p Process) OfSystem() bool { return p.Service != "" && !p.Cgroup.Found() }

// Apart reports whether a process is in a container or another PID namespace: its UID may not be its user's.
func (p Process) Apart() bool { return p.Container != "" || p.OtherPIDs }

// Scan is one search of /proc for holders of device nodes.
type Scan struct {
	Holdings []Holding `json:"holdings"`
	Looked   int       `json:"looked"` // processes that were examined
	// Partial is why holders may have been missed, apart from Unread: processes that could not be read completely.
	Partial string     `json:"partial,omitempty"`
	Unread  []Process  `json:"unread,omitempty"`
	Hung    []Instance `json:"hung,omitempty"` // the processes whose memory was still being read when time was up
}

// Missed says why holders may have been missed, empty if every process was read completely.
func (s Scan) Missed() string {
	var missed []string
	if s.Partial != "" {
		missed = append(missed, s.Partial)
	}
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
	Minors  []int `json:"minors,omitempty"`  // of the GPUs, sorted
	Control bool  `json:"control,omitempty"` // the control node: names no GPU
	UVM     bool  `json:"uvm,omitempty"`     // a node of shared memory: names no GPU
	Caps    bool  `json:"caps,omitempty"`    // a file of the driver's capabilities
	// Renders are the minors of AMD's render nodes. Buffers is a dma-buf: memory of any GPU whose driver exports such.
	Renders []int `json:"renders,omitempty"`
	Buffers bool  `json:"dma_bufs,omitempty"`
}

// Has reports whether the GPU's own node is open or, if its minor is unknown, any node of its vendor.
func (h Holding) Has(d gpu.Device) bool {
	if d.Minor == nil {
		return h.Of(gpu.VendorOf(d))
	}
	return slices.Contains(h.minors(gpu.VendorOf(d)), *d.Minor)
}

// MayHold reports whether a GPU's unlisted memory may be held: the GPU, only nodes of no GPU, or a dma-buf is open.
func (h Holding) MayHold(d gpu.Device) bool {
	v := gpu.VendorOf(d)
	return h.Has(d) || h.Of(v) && len(h.minors(v)) == 0 || v == &gpu.AMD && h.Buffers
}

// Of reports whether any device node of a vendor is open.
func (h Holding) Of(v *gpu.Vendor) bool {
	if v == &gpu.AMD {
		return len(h.Renders) > 0 || h.Buffers
	}
	return len(h.Minors) > 0 || h.Control || h.UVM || h.Caps
}

func (h Holding) minors(v *gpu.Vendor) []int {
	if v == &gpu.AMD {
		return h.Renders
	}
	return h.Minors
}

func (h Holding) Open() (names []string) {
	v := &gpu.NVIDIA
	for _, minor := range h.Minors {
		names = append(names, v.DeviceNode(minor))
	}
	for _, minor := range h.Renders {
		names = append(names, gpu.AMD.DeviceNode(minor))
	}
	has := [...]bool{h.Control, h.UVM, h.Caps, h.Buffers}
	for i, name := range [...]string{v.Nodes.Control, v.Nodes.Shared[0], v.Nodes.Caps, "dma-buf"} {
		if has[i] {
			names = append(names, name)
		}
	}
	return names
}

// Sighting is a process that a hook saw in a job's cgroup while the cgroup still existed.
type Sighting struct {
	PID   int
	Start time.Duration
	Owner slurm.Owner
}

// RecordedProcess is one process on one GPU, as samples saw it.
type RecordedProcess struct {
	GPU   gpu.ID        `json:"gpu"`
	PID   int           `json:"pid"`
	Start time.Duration `json:"start_ns"` // CLOCK_BOOTTIME; with the PID it identifies the process
	UID   uint32        `json:"uid"`
	// Owner is the job in whose cgroup a sample saw it; a Conflict if there were two jobs.
	Owner slurm.Owner `json:"owner,omitzero"`
	// Apart is set for a process in a container or a PID namespace: its UID need not be its user's.
	Apart   bool          `json:"apart,omitempty"`
	Service string        `json:"service,omitempty"` // the unit, if it belongs to a service of the node
	Name    string        `json:"name,omitempty"`    // comm: chosen by the process
	EnvJob  slurm.JobID   `json:"env_job,omitempty"` // SLURM_JOB_ID in its environment: forgeable
	First   time.Duration `json:"first_ns"`          // CLOCK_BOOTTIME of the samples
	Last    time.Duration `json:"last_ns"`
	Bytes   gpu.Figure    `json:"bytes"` // at the last sample
	Most    uint64        `json:"most,omitempty"`
	MostAt  time.Duration `json:"most_at_ns,omitempty"` // when it had most; 0 if no sample showed that
	Curve   []uint32      `json:"curve,omitempty"`      // MiB, by the GPU's steps; only of the largest processes
}

// Process returns what a finding contains of it.
func (seen RecordedProcess) Process() Process {
	return Process{PID: seen.PID, Start: seen.Start, UID: seen.UID, Name: seen.Name, Cgroup: seen.Owner,
		Service: seen.Service, OtherPIDs: seen.Apart, EnvJobID: seen.EnvJob}
}

// Known returns the samples that are kept: when it was seen first and last, and when it had most.
func (p RecordedProcess) Known() map[time.Duration]gpu.Figure {
	all := map[time.Duration]gpu.Figure{p.First: gpu.Unknown("how much it had then was not kept"), p.Last: p.Bytes}
	if p.MostAt > 0 {
		all[p.MostAt] = gpu.Bytes(p.Most)
	}
	return all
}

func (r Run) Had(id gpu.ID) bool {
	return slices.ContainsFunc(r.Devices, func(d Assigned) bool { return d.Device.ID == id && id != "" })
}

func (r Run) Owns(o slurm.Owner) bool { return r.Job.Owns(o) }

// MayOwn reports whether a recorded process in no job's cgroup may well be the run's own: it is of the same user and
// began during the run, as far as the run's start is known. In a container the user is not known. A second end may be
// that of a later run of the job id, whose own record was lost.
func (r Run) MayOwn(p RecordedProcess) bool {
	sameUser := p.UID == r.Job.UID && p.UID != 0 || p.Apart
	named := p.EnvJob == 0 || p.EnvJob == r.Job.ID || p.EnvJob == r.Job.HetJobID
	return sameUser && named && p.Service == "" && r.BeganBefore(p) && (r.Epilog() == nil || p.Start < r.Last().At)
}

// BeganBefore reports whether a run may have begun when a process started. /proc rounds start times down to a tick.
func (r Run) BeganBefore(p RecordedProcess) bool {
	return r.Start == nil || p.Start+Tick > r.Start.At
}
