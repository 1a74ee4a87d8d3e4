package stage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/nodefiles"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// Inventory returns the epoch and the job's GPUs, or for a health check all of the node's, with the source of their
// numbers. recalled is the record of this run's start; numbers returns what Slurm's numbers mean.
func (d *Driver) Inventory(recalled record.Run, numbers func() slurmconf.List) (seen judge.Seen) {
	paths := d.Config.Paths
	request := nodefiles.Request{DriverProc: d.Config.NVIDIA.DriverProc, Proc: paths.Proc, Sys: paths.Sys}
	met, refused := d.meet()
	if refused != nil {
		d.take(backend.Answer{Unasked: true, Troubles: []backend.Trouble{*refused}})
		return seen
	}
	reply, err := nodefiles.ListGPUs.Ask(request, d.Left(time.Duration(d.Times.Driver)/2, d.Reserve()))
	if err != nil {
		d.childFault(nodefiles.ListGPUs.Name, err)
	}
	if met(); err != nil {
		return seen
	}
	seen.Epoch = reply.Epoch
	if request.DriverProc == "" {
		reply.Cards = d.listed()
		if len(reply.Cards) == 0 { // its fault is already a finding
			return seen
		}
	}
	switch {
	case reply.NoDriver:
		f := record.Saw(catalog.NoDriver, reply.Problem, "a loaded driver")
		if request.DriverProc != config.Default().NVIDIA.DriverProc {
			f.Doubts = []string{"the driver may be elsewhere: nvidia.driver_proc"}
		}
		if why := nodefiles.Present(paths.Sys)[0].Untried; why != "" {
			f.Doubts = []string{why}
		}
		d.Add(f)
	case reply.Problem != "":
		d.Add(record.Unsure(catalog.DriverKO, reply.Problem))
	case d.Phase == slurm.HealthCheck:
		list := numbers()
		seen.Cards, seen.Given = everyGPU(reply.Cards, d.Config.NVIDIA, list), slurmconf.Slurms(reply.Cards, list)
	default:
		if request.DriverProc != "" {
			_ = d.Store.PutInventory(state.Inventory{From: request.DriverProc, Epoch: reply.Epoch, Cards: reply.Cards})
		}
		res := d.devices(recalled, reply.Cards, numbers())
		d.unresolved(res, len(reply.Cards))
		seen.Cards, seen.Origin = res.Devices, record.Origin{Source: res.Source, Why: res.Unknown}
	}
	return seen
}

func (d *Driver) devices(recalled record.Run, cards []gpu.Physical, list slurmconf.List) slurmconf.Result {
	if slurmconf.GivesNumbers(d.Job) && settled(recalled, d.Job) {
		return slurmconf.Again(recalled.Devices, recalled.Numbering.Source, cards)
	}
	return slurmconf.Devices(d.Job, cards, d.Config.NVIDIA, list)
}

// foresee predicts the result of Inventory: the last hook's GPUs, with the kept numbers; no GPUs if unknown.
func (d *Driver) foresee(recalled record.Run, list slurmconf.List) (seen judge.Seen) {
	last := d.Store.Inventory()
	res := d.devices(recalled, last.Cards, list)
	if last.From != d.Config.NVIDIA.DriverProc || res.Unknown != "" || len(res.Missing) > 0 {
		return seen
	}
	return judge.Seen{Epoch: last.Epoch, Cards: res.Devices, Origin: record.Origin{Source: res.Source}}
}

// unresolved adds findings for the job's numbers that match no GPU of the driver, and for unknown ones.
func (d *Driver) unresolved(res slurmconf.Result, have int) {
	if res.Unknown != "" {
		d.Add(record.Unsure(catalog.Ambiguous, res.Unknown))
	}
	for _, index := range res.Missing {
		d.Add(record.Finding{
			Code: catalog.Missing, Index: &index, Expected: "a GPU for every index that Slurm gives out",
			Observed: fmt.Sprintf("Slurm's GPU %d does not exist: the driver has %d", index, have),
			Doubts:   []string{"the numbering may be configured wrongly"},
		})
	}
}

// listed asks the backend for the node's GPUs, for a driver that does not list them in /proc.
func (d *Driver) listed() (cards []gpu.Physical) {
	answer := d.askBackend(d.snapshot(d.Left(time.Duration(d.Times.Driver)/2, d.Reserve()), false))
	d.Seen.Looks -= len(answer.Snapshots) // this was no sample of the job's GPUs
	for _, s := range answer.Snapshots {
		for _, r := range s.Readings {
			if r.Device.Parent == "" {
				cards = append(cards, gpu.Physical{Device: r.Device})
			}
		}
	}
	return cards
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
func everyGPU(cards []gpu.Physical, n config.NVIDIA, list slurmconf.List) (all []record.Assigned) {
	job := slurm.Job{GPUIndexes: slices.Sorted(maps.Keys(n.GPUMap))}
	for i := range list.GPUs {
		if len(n.GPUMap) == 0 {
			job.GPUIndexes = append(job.GPUIndexes, i)
		}
	}
	numbered := slurmconf.Devices(job, cards, n, list).Devices
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

// numbering returns the stored meaning of Slurm's GPU numbers, and a function that starts to check whether it still
// holds. That does nothing if Slurm or the admin names the devices, or the run's start determined them.
func (d *Driver) numbering(recalled record.Run) (kept slurmconf.List, start func() (collect func() slurmconf.List)) {
	check := d.Phase == slurm.HealthCheck
	asks := check || slurmconf.GivesNumbers(d.Job) && !settled(recalled, d.Job)
	if !asks || len(d.Config.NVIDIA.GPUMap) > 0 {
		return kept, func() func() slurmconf.List { return func() slurmconf.List { return kept } }
	}
	last, err := d.Store.Numbering()
	if d.Try(err); last != nil {
		kept = last.List
	}
	return kept, func() func() slurmconf.List { return d.startNumbering(last, check) }
}

func (d *Driver) startNumbering(kept *slurmconf.Kept, check bool) (collect func() slurmconf.List) {
	conf := d.Getenv("SLURM_CONF")
	if check && conf == "" && d.Config.Slurm.GresConf == "" && kept == nil {
		return func() slurmconf.List { return slurmconf.Unclear("no hook of a job has asked slurmd yet") }
	}
	settled := d.numbers(kept, conf)
	return sync.OnceValue(func() slurmconf.List {
		now := settled()
		// A hook that does not know which slurmd runs keeps the answer of one that did.
		known := kept == nil || now.Key.Daemon.PID != 0 || kept.Key.Daemon.PID == 0
		if now != kept && now.Key.Conf != "" && known {
			// then another hook stores the same
			if err := d.Store.PutNumbering(*now); !errors.Is(err, state.ErrLocked) {
				d.Try(err)
			}
		}
		return now.List
	})
}

// ReadNumbering returns what hooks that start now would find for a node, and stores nothing. env.PID is slurmd's, or 0.
func ReadNumbering(env child.Env, cfg config.Config, node, slurmConf string) slurmconf.List {
	d := New(env, slurm.HealthCheck)
	d.Config, d.Times, d.Job.Node = cfg, cfg.Deadlines.HealthCheck.Hook(), node
	d.Limit(time.Duration(d.Times.Total))
	defer d.watchdog.Stop()
	return d.numbers(state.PeekNumbering(cfg.Paths.Run, node), slurmConf)().List
}

// numbers starts to find the answer; collect returns kept itself if that still holds.
func (d *Driver) numbers(kept *slurmconf.Kept, slurmConf string) (collect func() *slurmconf.Kept) {
	request := slurmcmd.NumberingRequest{
		Proc: d.Config.Paths.Proc, Boot: nodefiles.BootID(d.Config.Paths.Proc), Hook: d.PID, Node: d.Job.Node,
		SlurmConf: slurmConf,
		GresConf:  d.Config.Slurm.GresConf, Slurmd: d.Config.Slurm.Slurmd, Scontrol: d.Config.Slurm.Scontrol,
	}
	due := false
	if kept != nil {
		request.Kept, due = kept.Key, kept.Due(d.Clock.Boot(), d.Phase == slurm.HealthCheck)
	}
	limit := func() time.Duration { return d.Left(time.Duration(d.Times.Scan), d.Reserve()) }
	first := limit()
	wait := child.Async(func() (slurmcmd.NumberingReply, error) { return slurmcmd.Numbering.Ask(request, first) })
	unclear := func(err error) *slurmconf.Kept {
		d.Defect(err)
		return &slurmconf.Kept{List: slurmconf.Unclear("%v", err)}
	}
	return func() *slurmconf.Kept {
		reply, err := wait()
		switch {
		case err != nil:
			return unclear(err)
		case kept != nil && !due && kept.Key.ValidFor(reply.Key):
			return kept
		case reply.Unknown != "":
			return unclear(errors.New(reply.Unknown))
		}
		asked := slurmconf.Asked{Key: reply.Key, Own: reply.Own, At: d.Clock.Boot()}
		if daemon := reply.Key.Daemon; daemon.PID != 0 {
			asked.Began = d.Clock.Wall().Add(daemon.Began() - asked.At)
		}
		asked.List, asked.Failed = d.askSlurmd(reply)
		now := asked.Settle(kept)                              // the answer in force
		if d.InJob && kept == nil && now.Key.Daemon.PID == 0 { // and it may not have read these files
			return unclear(errors.New("which slurmd is running is not known"))
		}
		after, err := slurmcmd.Numbering.Ask(request, limit())
		if err == nil && !reply.Key.Equal(after.Key) {
			err = errors.New("slurm.conf, gres.conf or slurmd changed while slurmd -G read them")
		}
		if err != nil {
			return unclear(err)
		}
		return &now
	}
}

// askSlurmd runs slurmd -G. While an earlier one is stuck, no other is started: it would get stuck too.
func (d *Driver) askSlurmd(reply slurmcmd.NumberingReply) (list slurmconf.List, failed bool) {
	if d.Store != nil {
		for _, r := range d.stuckReaders() {
			if r.Op == slurmdOp {
				return slurmconf.Unclear("slurmd -G started at %s cannot be killed: PID %d", d.At(r.Since), r.PID), true
			}
		}
	}
	limit := time.Duration(d.Times.Driver) / 2 // it takes 0.1 s, and longer if AutoDetect has to wake the GPUs
	command := slurmcmd.Slurmd{
		Path: reply.Key.Slurmd.Path, Conf: reply.Key.Conf, Node: reply.Key.Node, Root: d.EUID == 0,
		Entries: reply.Entries,
		Timeout: d.Left(limit, d.Reserve()+limit),
	}
	if d.Store != nil {
		command.Private = d.Store.Dir()
	}
	gpus, res, err := command.List()
	if res.Outcome == child.Abandoned {
		d.abandonedReader(&child.Error{Op: slurmdOp, Result: res}, nil)
	}
	switch {
	case err != nil:
		return slurmconf.Unclear("%v", err), true
	case reply.Unsure != "":
		return slurmconf.Unclear("%s", reply.Unsure), false
	case len(gpus) == 0 || len(gpus) != reply.Count: // the driver may not have been loaded yet
		return slurmconf.Unclear("slurmd -G lists %d GPUs, slurm.conf gives out %d", len(gpus), reply.Count), true
	}
	return slurmconf.List{Source: record.BySlurmd, GPUs: gpus}, false
}
