package node

import (
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/nodefiles"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// inventory returns the case with the epoch and the GPUs, a job's or for a health check all, and nothing else seen.
func inventory(a *Access, c judge.Case, n *numbers) judge.Case {
	c.Seen = judge.Seen{}
	list, faults := drivers(a)
	if list != nil && a.Config.NVIDIA.DriverProc == "" {
		cards, more := listed(a)
		list.Cards, faults = cards, slices.Concat(faults, more)
	}
	c.Faults = slices.Concat(c.Faults, faults)
	if list == nil {
		return c
	}
	c.Seen.Epoch = list.Epoch
	if a.Config.NVIDIA.DriverProc == "" && len(list.Cards) == 0 { // then the driver is a finding itself
		return c
	}
	if found := problem(a, *list); found != nil {
		c.Faults = slices.Concat(c.Faults, found)
		return c
	}
	if c.Phase == slurm.HealthCheck {
		c.Seen.Cards = slurmconf.Every(list.Cards, a.Config.NVIDIA.GPUMap, n.list())
		c.Seen.Given = slurmconf.Slurms(list.Cards, n.list())
		return c
	}
	now := state.Inventory{From: a.Config.NVIDIA.DriverProc, Epoch: list.Epoch, Cards: list.Cards}
	now = now.Since(state.LastInventory.Peek(a.Store))
	if now.From != "" {
		_ = state.LastInventory.Save(a.Store, now)
	}
	resolve := func(cards []gpu.Physical) (slurmconf.Result, record.Origin) {
		return slurmconf.OfJob(a.Job, c.Past.Run, cards, a.Config.NVIDIA.GPUMap, n.list())
	}
	res, origin := resolve(list.Cards)
	before, _ := resolve(slices.Concat(list.Cards, now.Gone))
	c.Faults = slices.Concat(c.Faults, record.Unresolved(res.Unknown, res.Missing, before.Devices, len(list.Cards)))
	c.Seen.Cards, c.Seen.Origin = res.Devices, origin
	return c
}

// drivers asks the driver's files which GPUs the node has; nil if there is no answer.
func drivers(a *Access) (*nodefiles.Inventory, []record.Finding) {
	next, refused := a.meet(state.Files)
	if refused != nil {
		return nil, a.Troubles(*refused, "")
	}
	paths := a.Config.Paths
	request := nodefiles.Request{DriverProc: a.Config.NVIDIA.DriverProc, Proc: paths.Proc, Sys: paths.Sys}
	reply, err := nodefiles.ListGPUs.Ask(request, a.Left(a.Times.Driver/2))
	defer next(err == nil)
	if err != nil {
		return nil, a.ChildFault(nodefiles.ListGPUs.Name, err)
	}
	return &reply, nil
}

// problem returns what is wrong with the driver according to its files, nil for nothing.
func problem(a *Access, list nodefiles.Inventory) []record.Finding {
	switch {
	case list.NoDriver:
		f := record.Saw(catalog.NoDriver, list.Problem, "a loaded driver")
		if a.Config.NVIDIA.DriverProc != config.Default().NVIDIA.DriverProc {
			f.Doubts = []string{"the driver may be elsewhere: nvidia.driver_proc"}
		}
		if why := nodefiles.Present(a.Config.Paths.Sys)[0].Untried; why != "" {
			f.Doubts = []string{why}
		}
		return []record.Finding{f}
	case list.Problem != "":
		return []record.Finding{record.Unsure(catalog.DriverKO, list.Problem)}
	}
	return nil
}

// foresee predicts what inventory will return: the last hook's GPUs, with the kept numbers; no GPUs if unknown.
func foresee(a *Access, recalled record.Run, list slurmconf.List) (seen judge.Seen) {
	last := state.LastInventory.Peek(a.Store)
	res, origin := slurmconf.OfJob(a.Job, recalled, last.Cards, a.Config.NVIDIA.GPUMap, list)
	if last.From != a.Config.NVIDIA.DriverProc || res.Unknown != "" || len(res.Missing) > 0 {
		return seen
	}
	return judge.Seen{Epoch: last.Epoch, Cards: res.Devices, Origin: origin}
}

// listed asks the backend for the node's GPUs, for a driver that does not list them in its files.
func listed(a *Access) (cards []gpu.Physical, faults []record.Finding) {
	answer := a.ask(snapshot(a.Left(a.Times.Driver/2), false, false), Params{})
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
func snapshot(timeout time.Duration, health, identity bool) protocol.Request {
	return protocol.Request{Op: protocol.Snapshot, All: true, DeadlineMillis: timeout.Milliseconds(), Health: health,
		Identity: identity}
}
