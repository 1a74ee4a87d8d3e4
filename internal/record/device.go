package record

import (
	"bookend/internal/gpu"
)

// Assigned is a device of the job. If the driver had not cached its id, Device.ID is empty and Device.BusID names it. A
// MIG instance has no bus id, which would name the whole GPU; its Parent may be unknown before the first reading.
type Assigned struct {
	Index  int // Slurm's index of the device; -1 if it is not certain
	Device gpu.Device
}

// Source is where the meaning of a job's GPU numbers came from.
type Source string

// The sources, most trusted first. Ambiguous means that there is none.
const (
	ByUUID    Source = "uuid"    // Slurm itself named the devices
	ByMap     Source = "gpu_map" // the admin's nvidia.gpu_map
	BySlurmd  Source = "slurmd"  // slurmd -G
	Ambiguous Source = "ambiguous"
)

// Origin records where the meaning of a job's GPU numbers came from; Why is the reason if it is ambiguous.
type Origin struct {
	Source Source `json:"source"`
	Why    string `json:"why,omitempty"`
	// Perhaps are GPUs that the job may have too: Slurm tells a hook those of one type alone, if a job has several.
	Perhaps []gpu.ID `json:"perhaps,omitempty"`
}

// Settled reports whether the source leaves no doubt about what the numbers mean.
func (s Source) Settled() bool { return s != "" && s != Ambiguous }
