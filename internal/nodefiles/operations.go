package nodefiles

import (
	"errors"
	"os"

	"bookend/internal/child"
	"bookend/internal/gpu"
)

// Request asks what the kernel and the driver show about themselves in files.
type Request struct {
	DriverProc string          `json:"driver_proc,omitempty"`
	Dev        string          `json:"dev,omitempty"`
	Proc       string          `json:"proc,omitempty"`
	Sys        string          `json:"sys"`
	Since      *gpu.KernelMark `json:"since,omitempty"`  // start in the kernel's log; nil for its newest entry only
	Before     *gpu.KernelMark `json:"before,omitempty"` // from there to Since, only errors of GPUs count
}

// Inventory has the GPUs that the driver lists in /proc, or the problem.
type Inventory struct {
	Cards    []gpu.Physical `json:"cards"`
	Epoch    gpu.Epoch      `json:"epoch"`
	NoDriver bool           `json:"no_driver,omitempty"`
	Problem  string         `json:"problem,omitempty"`
}

// ListGPUs lists the GPUs, and the epoch.
var ListGPUs = child.NewOperation("inventory", func(r Request) (Inventory, error) {
	list := Inventory{Epoch: ReadEpoch(r.Proc, r.Sys)}
	var err error
	list.Cards, err = Read(r.DriverProc, r.Sys)
	if err != nil {
		list.NoDriver, list.Problem = errors.Is(err, ErrNoDriver), err.Error()
	}
	return list, nil
})

// HasGPU reports whether a GPU is on the PCI bus (AMD's: with its driver), or NVIDIA's driver has a directory in /proc.
var HasGPU = child.NewOperation("present", func(r Request) (bool, error) {
	// Threat: none, nothing is opened.
	if _, err := os.Lstat(r.DriverProc); err == nil {
		return true, nil
	}
	return hasGPU(r.Sys)
})

// ReadKernel reads the kernel's log, a ring buffer of up to many megabytes, record by record, and the epoch.
var ReadKernel = child.NewOperation("kernel", func(r Request) (gpu.KernelLog, error) {
	log := ReadLog(r.Dev, r.Since, r.Before)
	log.Epoch = ReadEpoch(r.Proc, r.Sys)
	return log, nil
})
