package stage

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/operation"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// Inventory is the node's list of GPUs, and which of them are the job's, or for a health check everybody's.
type Inventory struct {
	Epoch  gpu.Epoch
	Cards  []finding.Card
	Origin slurmconf.Origin
	Given  map[gpu.BusID]bool // the GPUs that Slurm gives out, for a health check; nil where that is not known
}

// Inventory lists the node's GPUs. Recalled is the record of this run's start.
func (d *Driver) Inventory(recalled ledger.Run) Inventory {
	remembered := settled(recalled, d.Job)
	numbers, paths := d.startNumbering(remembered), d.Config.Paths
	request := operation.MachineRequest{DriverProc: d.Config.NVIDIA.DriverProc, Proc: paths.Proc, Sys: paths.Sys}
	limit := d.Left(time.Duration(d.Times.Driver)/2, d.Reserve())
	reply, err := operation.Ask[operation.InventoryReply](
		operation.Inventory.Name, request, limit, d.started(operation.Inventory.Name))
	if err != nil {
		d.childFault(operation.Inventory.Name, err)
		return Inventory{}
	}
	i := Inventory{Epoch: reply.Epoch}
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
	if res.Unknown != "" {
		d.Add(finding.Unsure(code.Ambiguous, res.Unknown))
	}
	for _, index := range res.Missing {
		d.Add(finding.Finding{
			Code: code.Missing, Index: &index, Expected: "a GPU for every index that Slurm gives out",
			Observed: fmt.Sprintf("Slurm's GPU %d does not exist: the driver has %d", index, len(reply.Cards)),
			Doubts:   []string{"the numbering may be configured wrongly"},
		})
	}
	i.Cards, i.Origin = res.Devices, slurmconf.Origin{Source: res.Source, Why: res.Unknown}
	return i
}

// listed asks the backend for the node's GPUs: for a driver that shows them in no directory of /proc.
func (d *Driver) listed() (cards []gpu.Card) {
	answer := d.askBackend(d.snapshot(d.Left(time.Duration(d.Times.Driver)/2, d.Reserve()), false))
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

// everyCard are the GPUs that the driver has, with Slurm's numbers of them: as those of a job that has all. A number
// that is not certain is -1.
func everyCard(cards []gpu.Card, n config.NVIDIA, list slurmconf.List) (all []finding.Card) {
	job := slurm.Job{GPUIndexes: slices.Sorted(maps.Keys(n.GPUMap))}
	for i := range list.GPUs {
		if len(n.GPUMap) == 0 {
			job.GPUIndexes = append(job.GPUIndexes, i)
		}
	}
	numbered := slurmconf.Devices(job, cards, n, list).Devices
	for _, c := range cards {
		if !c.Excluded {
			all = append(all, finding.Card{Index: numberOf(c.Device, numbered), Device: c.Device})
		}
	}
	return all
}

// numberOf is Slurm's number of a GPU, -1 where that is not certain.
func numberOf(d gpu.Device, cards []finding.Card) int {
	for _, c := range cards {
		if c.Device.BusID == d.BusID {
			return c.Index
		}
	}
	return -1
}

// withReadings joins the driver's own list of GPUs with what a look at all of them saw: MIG instances stand for the GPU
// they are part of, and Slurm's numbers of them are not known.
func withReadings(cards []finding.Card, s gpu.Snapshot) (all []finding.Card) {
	cut := map[gpu.ID]bool{}
	for _, r := range s.Readings {
		cut[r.Device.Parent] = r.Device.Parent != ""
	}
	unread := slices.Clone(cards)
	for _, r := range s.Readings {
		unread = slices.DeleteFunc(unread, func(c finding.Card) bool { return c.Device.BusID == r.Device.BusID })
		if cut[r.Device.ID] {
			continue
		}
		card := finding.Card{Index: -1, Device: r.Device}
		if r.Device.Parent == "" {
			card.Index = numberOf(r.Device, cards)
		}
		all = append(all, card)
	}
	return append(all, unread...)
}
