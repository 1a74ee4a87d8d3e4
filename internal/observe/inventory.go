package observe

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/nodefiles"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// inventory returns the case with the epoch and the job's GPUs, or for a health check all of the node's, with the
// source of their numbers, and without anything else seen.
func inventory(a *node.Access, c judge.Case, n *numbers) judge.Case {
	c.Seen = judge.Seen{}
	list, faults := drivers(a)
	c.Faults = slices.Concat(c.Faults, faults)
	if list == nil {
		return c
	}
	c.Seen.Epoch = list.Epoch
	if a.Config.NVIDIA.DriverProc == "" {
		cards, faults := listed(a)
		c.Faults = slices.Concat(c.Faults, faults)
		list.Cards = cards
		if len(cards) == 0 { // its fault is already a finding
			return c
		}
	}
	if f := problem(a, *list); f != nil {
		c.Faults = append(slices.Clip(c.Faults), *f)
		return c
	}
	if c.Phase == slurm.HealthCheck {
		c.Seen.Cards = everyGPU(list.Cards, a.Config.NVIDIA.GPUMap, n.list())
		c.Seen.Given = slurmconf.Slurms(list.Cards, n.list())
		return c
	}
	if from := a.Config.NVIDIA.DriverProc; from != "" {
		_ = state.LastInventory.Save(a.Store, state.Inventory{From: from, Epoch: list.Epoch, Cards: list.Cards})
	}
	res := devices(a, c.Past.Run, list.Cards, n.list())
	c.Faults = slices.Concat(c.Faults, unresolved(res, len(list.Cards)))
	c.Seen.Cards, c.Seen.Origin = res.Devices, origin(a, c.Past.Run, res, list.Cards, n.list())
	return c
}

// drivers asks the driver's files which GPUs the node has; nil if there is no answer.
func drivers(a *node.Access) (*nodefiles.Inventory, []record.Finding) {
	met, refused := a.Meet()
	if refused != nil {
		return nil, a.Troubles(*refused, "")
	}
	defer met()
	paths := a.Config.Paths
	request := nodefiles.Request{DriverProc: a.Config.NVIDIA.DriverProc, Proc: paths.Proc, Sys: paths.Sys}
	reply, err := nodefiles.ListGPUs.Ask(request, a.Left(a.Times.Driver/2))
	if err != nil {
		return nil, a.ChildFault(nodefiles.ListGPUs.Name, err)
	}
	return &reply, nil
}

// problem returns what is wrong with the driver according to its files, nil for nothing.
func problem(a *node.Access, list nodefiles.Inventory) *record.Finding {
	switch {
	case list.NoDriver:
		f := record.Saw(catalog.NoDriver, list.Problem, "a loaded driver")
		if a.Config.NVIDIA.DriverProc != config.Default().NVIDIA.DriverProc {
			f.Doubts = []string{"the driver may be elsewhere: nvidia.driver_proc"}
		}
		if why := nodefiles.Present(a.Config.Paths.Sys)[0].Untried; why != "" {
			f.Doubts = []string{why}
		}
		return &f
	case list.Problem != "":
		f := record.Unsure(catalog.DriverKO, list.Problem)
		return &f
	}
	return nil
}

func devices(a *node.Access, recalled record.Run, cards []gpu.Physical, list slurmconf.List) slurmconf.Result {
	if slurmconf.GivesNumbers(a.Job) && settled(recalled, a.Job) {
		return slurmconf.Again(recalled.Devices, recalled.Numbering.Source, cards)
	}
	return slurmconf.Devices(a.Job, cards, a.Config.NVIDIA.GPUMap, list)
}

// origin returns where the numbers' meaning came from, with the GPUs that the job may have too.
func origin(
	a *node.Access, recalled record.Run, res slurmconf.Result, cards []gpu.Physical, list slurmconf.List,
) record.Origin {
	o := record.Origin{Source: res.Source, Why: res.Unknown, Perhaps: recalled.Numbering.Perhaps}
	if !settled(recalled, a.Job) {
		o.Perhaps = list.Perhaps(res.Devices, everyGPU(cards, a.Config.NVIDIA.GPUMap, list))
	}
	return o
}

// foresee predicts what inventory will return: the last hook's GPUs, with the kept numbers; no GPUs if unknown.
func foresee(a *node.Access, recalled record.Run, list slurmconf.List) (seen judge.Seen) {
	last := state.LastInventory.Peek(a.Store)
	res := devices(a, recalled, last.Cards, list)
	if last.From != a.Config.NVIDIA.DriverProc || res.Unknown != "" || len(res.Missing) > 0 {
		return seen
	}
	return judge.Seen{Epoch: last.Epoch, Cards: res.Devices, Origin: origin(a, recalled, res, last.Cards, list)}
}

// unresolved returns findings for the job's numbers that match no GPU of the driver, and for unknown ones.
func unresolved(res slurmconf.Result, have int) (found []record.Finding) {
	if res.Unknown != "" {
		found = append(found, record.Unsure(catalog.Ambiguous, res.Unknown))
	}
	for _, index := range res.Missing {
		found = append(found, record.Finding{
			Code: catalog.Missing, Index: &index, Expected: "a GPU for every index that Slurm gives out",
			Observed: fmt.Sprintf("Slurm's GPU %d does not exist: the driver has %d", index, have),
			Doubts:   []string{"the numbering may be configured wrongly"},
		})
	}
	return found
}

// listed asks the backend for the node's GPUs, for a driver that does not list them in its files.
func listed(a *node.Access) (cards []gpu.Physical, faults []record.Finding) {
	answer := a.Ask(snapshot(a.Left(a.Times.Driver/2), false), backend.Params{})
	for _, s := range answer.Snapshots {
		for _, r := range s.Readings {
			if r.Device.Parent == "" {
				cards = append(cards, gpu.Physical{Device: r.Device})
			}
		}
	}
	return cards, a.Troubles(answer, "")
}

// snapshot is a request for one sample of every GPU.
func snapshot(timeout time.Duration, health bool) protocol.Request {
	return protocol.Request{
		Op: protocol.Snapshot, All: true, DeadlineMillis: timeout.Milliseconds(), Health: health,
	}
}

// settled reports whether the start of this run determined what its numbers mean. They mean the same at its end,
// whatever the configuration says by then.
func settled(r record.Run, job slurm.Job) bool {
	if !r.Numbering.Source.Settled() || len(r.Devices) == 0 || r.Closed() && !r.Sure(job) {
		return false
	}
	if len(job.GPUIndexes) != len(r.Devices) { // a record of another run, or Slurm before 21.08
		return false
	}
	return !slices.ContainsFunc(r.Devices, func(d record.Assigned) bool {
		return !slices.Contains(job.GPUIndexes, d.Index)
	})
}

// everyGPU returns the driver's GPUs with Slurm's numbers, as for a job that has all; -1 if not certain.
func everyGPU(cards []gpu.Physical, own map[int]string, list slurmconf.List) (all []record.Assigned) {
	job := slurm.Job{GPUIndexes: slices.Sorted(maps.Keys(own))}
	for i := range list.GPUs {
		if len(own) == 0 {
			job.GPUIndexes = append(job.GPUIndexes, i)
		}
	}
	numbered := slurmconf.Devices(job, cards, own, list).Devices
	for _, c := range cards {
		if !c.Excluded {
			all = append(all, record.Assigned{Index: numberOf(c.Device, numbered), Device: c.Device})
		}
	}
	return all
}

// numberOf returns Slurm's number of a GPU, -1 if that is not certain.
func numberOf(d gpu.Device, cards []record.Assigned) int {
	for _, c := range cards {
		if c.Device.ID == d.ID && d.ID != "" || c.Device.BusID == d.BusID && d.BusID != "" {
			return c.Index
		}
	}
	return -1
}

// withReadings joins the driver's list with a sample of all GPUs: MIG instances, without numbers, replace their GPU.
func withReadings(cards []record.Assigned, s gpu.Snapshot) (all []record.Assigned) {
	cut := map[gpu.ID]bool{}
	for _, r := range s.Readings {
		cut[r.Device.Parent] = r.Device.Parent != ""
	}
	unread := slices.Clone(cards)
	for _, r := range s.Readings {
		unread = slices.DeleteFunc(unread, func(c record.Assigned) bool { return c.Device.BusID == r.Device.BusID })
		if cut[r.Device.ID] {
			continue
		}
		card := record.Assigned{Index: -1, Device: r.Device}
		if r.Device.Parent == "" {
			card.Index = numberOf(r.Device, cards)
		}
		all = append(all, card)
	}
	return append(all, unread...)
}
