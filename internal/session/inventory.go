package session

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/operation"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/wire"
)

// Inventory is the node's list of GPUs, and which of them are the job's, or for a health check everybody's.
type Inventory struct {
	Epoch   gpu.Epoch
	Library string // the driver library's version, empty where its file does not tell
	Cards   []finding.Card
	Origin  slurmconf.Origin
	Given   map[gpu.BusID]bool // the GPUs that Slurm gives out, for a health check; nil where that is not known
}

// Inventory lists the node's GPUs. Recalled is the record of this run's start.
func (d *Driver) Inventory(recalled ledger.Run) Inventory {
	remembered := settled(recalled, d.Job)
	numbers, paths := d.startNumbering(remembered), d.Config.Paths
	request := operation.InventoryRequest{
		DriverProc: d.Config.NVIDIA.DriverProc, Proc: paths.Proc, Sys: paths.Sys, Library: d.Config.NVIDIA.NVMLLibrary,
	}
	limit := d.Left(time.Duration(d.Times.Driver)/2, d.Reserve())
	reply, err := operation.Inventory.AskTelling(d.started(operation.Inventory.Name), request, limit)
	if err != nil {
		d.childFault(operation.Inventory.Name, err)
		return Inventory{}
	}
	i := Inventory{Epoch: reply.Epoch, Library: reply.Library}
	if request.DriverProc == "" {
		if reply.Cards = d.listed(); len(reply.Cards) == 0 { // its fault is a finding already
			return i
		}
	}
	switch {
	case reply.NoDriver:
		f := finding.Saw(code.NoDriver, reply.Problem, "a loaded driver")
		if request.DriverProc != config.Default().NVIDIA.DriverProc {
			f.Doubts = []string{"the driver may be elsewhere: nvidia.driver_proc"}
		}
		d.Add(f)
		return i
	case reply.Problem != "":
		d.Add(finding.Unsure(code.DriverKO, reply.Problem))
		return i
	case d.Phase == slurm.HealthCheck:
		list := numbers()
		i.Cards, i.Given = everyCard(reply.Cards, d.Config.NVIDIA, list), slurmconf.Slurms(reply.Cards, list)
		return i
	}
	res := slurmconf.Devices(d.Job, reply.Cards, d.Config.NVIDIA, numbers())
	if slurmconf.GivesNumbers(d.Job) && remembered {
		res = slurmconf.Again(recalled.Devices, recalled.Numbering.Source, reply.Cards)
	}
	d.Add(unresolved(res, len(reply.Cards))...)
	i.Cards, i.Origin = judge.Cards(res.Devices), slurmconf.Origin{Source: res.Source, Why: res.Unknown}
	return i
}

// listed asks the backend for the node's GPUs: for a driver that shows them in no folder of /proc.
func (d *Driver) listed() (cards []gpu.Card) {
	timeout := d.Left(time.Duration(d.Times.Driver)/2, d.Reserve())
	answer := d.askBackend(wire.Request{
		Bookend: wire.Version, Op: wire.Snapshot, All: true, DeadlineMillis: timeout.Milliseconds(),
		Options: d.Config.NVIDIA.ForLooks(),
	})
	d.looks -= len(answer.Snapshots) // this one was no look at the job's GPUs
	for _, s := range answer.Snapshots {
		for _, r := range s.Readings {
			if r.Device.Parent == "" {
				cards = append(cards, gpu.Card{Device: r.Device})
			}
		}
	}
	return cards
}

// unresolved is what keeps Slurm's numbers from naming GPUs.
func unresolved(res slurmconf.Result, count int) (found []finding.Finding) {
	if res.Unknown != "" {
		found = append(found, finding.Unsure(code.Ambiguous, res.Unknown))
	}
	for _, index := range res.Missing {
		found = append(found, finding.Finding{
			Code: code.Missing, Index: &index, Expected: "a GPU for every index that Slurm gives out",
			Observed: fmt.Sprintf("Slurm's GPU %d does not exist: the driver has %d", index, count),
			Doubts:   []string{"the numbering may be configured wrongly"},
		})
	}
	return found
}

// settled reports whether the start of this run settled what its numbers mean. They mean the same at its end, whatever
// the configuration says by then.
func settled(r ledger.Run, job slurm.Job) bool {
	if !r.Numbering.Source.Settled() || len(r.Devices) == 0 || r.Closed() && !r.Sure(job) {
		return false
	}
	if len(job.GPUIndexes) != len(r.Devices) { // a record of another run, or Slurm before 21.08
		return false
	}
	return !slices.ContainsFunc(r.Devices, func(d ledger.Assigned) bool {
		return !slices.Contains(job.GPUIndexes, d.Index)
	})
}

// Mismatched adds that the driver's library is of another version than its kernel module, where no GPU could be read
// and NVML did not come far enough to say so. A library that has just read the GPUs is none of another version.
func (d *Driver) Mismatched(i Inventory) {
	module := i.Epoch.Driver
	told := slices.ContainsFunc(d.list, func(f finding.Finding) bool { return f.Code == code.Mismatch })
	if i.Library == "" || module == "" || i.Library == module || told {
		return
	}
	observed := "the kernel module is " + module + ", the library " + i.Library
	d.Add(finding.Saw(code.Mismatch, observed, "driver and library of one version"))
}
