package operation

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/gpu"
	"bookend/internal/holders"
	"bookend/internal/inventory"
)

// InventoryRequest asks for the GPUs that the driver's /proc lists, and for the epoch. Library is the configured one of
// the driver; empty: the installed one.
type InventoryRequest struct {
	DriverProc string `json:"driver_proc"`
	Proc       string `json:"proc"`
	Sys        string `json:"sys"`
	Library    string `json:"library,omitempty"`
}

// InventoryReply has them, or the problem.
type InventoryReply struct {
	Cards    []gpu.Card `json:"cards"`
	Epoch    gpu.Epoch  `json:"epoch"`
	Library  string     `json:"library,omitempty"` // the driver library's version
	NoDriver bool       `json:"no_driver,omitempty"`
	Problem  string     `json:"problem,omitempty"`
}

// Inventory reads the driver's /proc.
var Inventory = Operation[InventoryRequest, InventoryReply]{"inventory", takeInventory}

func takeInventory(r InventoryRequest) (InventoryReply, error) {
	reply := InventoryReply{Epoch: inventory.ReadEpoch(r.Proc, r.Sys), Library: inventory.LibraryVersion(r.Library)}
	var err error
	if reply.Cards, err = inventory.Read(r.DriverProc); err != nil {
		reply.NoDriver, reply.Problem = errors.Is(err, inventory.ErrNoDriver), err.Error()
	}
	return reply, nil
}

// PresentRequest asks whether there is a GPU or its driver.
type PresentRequest struct {
	Sys        string `json:"sys"`
	DriverProc string `json:"driver_proc"`
}

// Present asks neither driver nor GPU: the kernel's own list of what is on the bus knows.
var Present = Operation[PresentRequest, bool]{"present", isPresent}

func isPresent(r PresentRequest) (bool, error) {
	if _, err := os.Lstat(r.DriverProc); err == nil {
		return true, nil
	}
	return inventory.OnBus(r.Sys)
}

// KernelRequest asks for the kernel's log since a mark; nil for its newest entry alone.
type KernelRequest struct {
	Dev   string          `json:"dev"`
	Proc  string          `json:"proc"`
	Sys   string          `json:"sys"`
	Since *gpu.KernelMark `json:"since,omitempty"`
}

// Kernel reads a ring of up to many megabytes, record by record. It tells the epoch as well: the driver need not answer
// for that.
var Kernel = Operation[KernelRequest, gpu.KernelLog]{"kernel", readKernel}

func readKernel(r KernelRequest) (gpu.KernelLog, error) {
	log := inventory.ReadLog(r.Dev, r.Since)
	log.Epoch = inventory.ReadEpoch(r.Proc, r.Sys)
	return log, nil
}

// ProcessesRequest asks what /proc says of some processes.
type ProcessesRequest struct {
	Proc   string            `json:"proc"`
	PIDs   []int             `json:"pids"`
	Budget time.Duration     `json:"budget_ns"`
	Skip   []attrib.Instance `json:"skip,omitempty"` // those that earlier readers hang at
}

// Processes reads other processes' /proc.
var Processes = Operation[ProcessesRequest, []attrib.Process]{"processes", readProcesses}

func readProcesses(r ProcessesRequest) ([]attrib.Process, error) {
	return within(holders.Processes(r.Proc, r.PIDs, r.Budget, r.Skip...), maxReply), nil
}

// within makes an answer about thousands of processes fit: the last of them lose the path of their program, then all
// but their PID.
func within(all []attrib.Process, most int) []attrib.Process {
	size := 0
	for i, p := range all {
		if size > most/2 {
			p.Exe = ""
		}
		text, err := json.Marshal(p)
		if err != nil || size+len(text) > most/4*3 {
			p, text = attrib.Process{PID: p.PID, Why: "too many processes to answer for"}, nil
		}
		size += len(text) + len(",")
		all[i] = p
	}
	return all
}

// Hanging are those of the processes that did not answer.
func Hanging(all []attrib.Process) (at []attrib.Instance) {
	for _, p := range all {
		if p.Hangs {
			at = append(at, attrib.Instance{PID: p.PID, Start: p.Start})
		}
	}
	return at
}

// HoldersRequest asks which processes have a GPU open.
type HoldersRequest struct {
	Proc   string            `json:"proc"`
	Dev    string            `json:"dev"`
	Budget time.Duration     `json:"budget_ns"`
	Skip   []attrib.Instance `json:"skip,omitempty"`
}

// Holders searches all of /proc.
var Holders = Operation[HoldersRequest, attrib.Scan]{"holders", scanHolders}

func scanHolders(r HoldersRequest) (attrib.Scan, error) {
	return holders.Scan(r.Proc, r.Dev, r.Budget, r.Skip...), nil
}
