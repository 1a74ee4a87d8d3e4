package stage

import (
	"errors"
	"fmt"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/operation"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// startNumbering begins to find out what Slurm's GPU numbers mean, while the driver is asked for the GPUs. Nothing is
// done where Slurm or the admin names the devices, nor at the end of a run whose start has done so.
func (d *Driver) startNumbering(remembered bool) (collect func() slurmconf.List) {
	job := d.Job
	if d.Phase == slurm.HealthCheck {
		job.GPUIndexes = []int{0}
	}
	if !slurmconf.NeedsList(job, d.Config.NVIDIA) || remembered {
		return func() slurmconf.List { return slurmconf.List{} }
	}
	var kept *slurmconf.Kept
	if d.Store != nil {
		var err error
		kept, err = d.Store.Numbering()
		d.Try(err)
	}
	conf, check := d.Getenv("SLURM_CONF"), d.Phase == slurm.HealthCheck
	if check && conf == "" && d.Config.Slurm.GresConf == "" && kept == nil {
		return func() slurmconf.List { return slurmconf.Unclear("no hook of a job has asked slurmd yet") }
	}
	settled := d.numbers(kept, conf)
	return func() slurmconf.List {
		now := settled()
		// One that does not know which slurmd runs leaves the answer for one that did.
		known := kept == nil || now.Key.Daemon.PID != 0 || kept.Key.Daemon.PID == 0
		if now != kept && now.Key.Conf != "" && d.Store != nil && known {
			if err := d.Store.PutNumbering(*now); !errors.Is(err, state.ErrLocked) { // then another hook keeps the same
				d.Try(err)
			}
		}
		return now.List
	}
}

// ReadNumbering answers for a node as hooks that begin now do, and keeps nothing. env.PID is slurmd's; 0 where it is
// not known.
func ReadNumbering(env operation.Env, cfg config.Config, node, slurmConf string) slurmconf.List {
	d := New(env, slurm.HealthCheck)
	d.Config, d.Times, d.Job.Node = cfg, cfg.Deadlines.HealthCheck.Hook(), node
	d.Limit(time.Duration(d.Times.Total))
	defer d.watchdog.Stop()
	return d.numbers(state.PeekNumbering(cfg.Paths.Run, node), slurmConf)().List
}

// numbers begins to find the answer: kept itself where it still holds.
func (d *Driver) numbers(kept *slurmconf.Kept, slurmConf string) (collect func() *slurmconf.Kept) {
	request := operation.NumberingRequest{
		Proc: d.Config.Paths.Proc, Sys: d.Config.Paths.Sys, Hook: d.PID, Node: d.Job.Node, SlurmConf: slurmConf,
		GresConf: d.Config.Slurm.GresConf, Slurmd: d.Config.Slurm.Slurmd, Scontrol: d.Config.Slurm.Scontrol,
	}
	if kept != nil {
		request.Kept, request.Again = &kept.Key, kept.Due(d.Clock.Boot(), d.Phase == slurm.HealthCheck)
	}
	limit := func() time.Duration { return d.Left(time.Duration(d.Times.Scan), d.Reserve()) }
	wait := operation.Numbering.Beside(request, limit())
	unclear := func(err error) *slurmconf.Kept {
		d.Defect(err)
		return &slurmconf.Kept{List: slurmconf.Unclear("%v", err)}
	}
	return func() *slurmconf.Kept {
		reply, err := wait()
		switch {
		case err != nil:
			return unclear(err)
		case kept != nil && !request.Again && kept.Key.Same(reply.Key):
			return kept
		case reply.Unknown != "":
			return unclear(errors.New(reply.Unknown))
		}
		now := d.renumber(reply, kept)
		if d.InJob && kept == nil && now.Key.Daemon.PID == 0 { // nor is it known whether it has read these files
			return unclear(errors.New("which slurmd is running is not known"))
		}
		request.Kept, request.Again = &reply.Key, false
		after, err := operation.Numbering.Ask(request, limit())
		if err == nil && !reply.Key.Equal(after.Key) {
			err = errors.New("slurm.conf, gres.conf or slurmd changed while slurmd -G read them")
		}
		if err != nil {
			return unclear(err)
		}
		return now
	}
}

// renumber asks slurmd, and settles what is in force.
func (d *Driver) renumber(reply operation.NumberingReply, kept *slurmconf.Kept) *slurmconf.Kept {
	asked := slurmconf.Asked{Key: reply.Key, Own: reply.Own, At: d.Clock.Boot()}
	if daemon := reply.Key.Daemon; daemon.PID != 0 {
		const perTick = time.Second / 100 // USER_HZ
		asked.Began = d.Clock.Wall().Add(time.Duration(daemon.Ticks)*perTick - asked.At)
	}
	asked.List, asked.Failed = d.askSlurmd(reply)
	now := asked.Settle(kept)
	return &now
}

// askSlurmd runs slurmd -G. Where that fails the configuration may still leave no doubt. While an earlier one lives
// that cannot be killed no other is started: it would get stuck as well.
func (d *Driver) askSlurmd(reply operation.NumberingReply) (list slurmconf.List, failed bool) {
	if d.Store != nil {
		for _, r := range d.readers().Stuck() {
			if r.Op == operation.SlurmdG {
				why := fmt.Sprintf("slurmd -G started at %s cannot be killed: PID %d", d.At(r.Since), r.PID)
				reply.Counted.Why = why
				return reply.Counted, true
			}
		}
	}
	limit := time.Duration(d.Times.Driver) / 2 // it takes 0.1 s, and longer where AutoDetect has to wake the GPUs
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
		d.abandonedReader(operation.SlurmdG, &operation.Error{Op: operation.SlurmdG, Result: res})
	}
	if err == nil && reply.Unsure != "" {
		return slurmconf.Unclear("%s", reply.Unsure), false
	}
	if err == nil && len(gpus) == 0 && reply.Counted.Known() {
		err = errors.New("slurmd -G lists no GPUs")
	}
	switch {
	case err != nil && reply.Counted.Known():
		reply.Counted.Why = err.Error()
		return reply.Counted, true
	case err != nil:
		return slurmconf.Unclear("%v; %s", err, reply.Counted.Why), true
	case len(gpus) == 0 || len(gpus) != reply.Count: // the driver may not have been there yet
		return slurmconf.Unclear("slurmd -G lists %d GPUs, slurm.conf gives out %d", len(gpus), reply.Count), true
	}
	return slurmconf.List{Source: slurmconf.BySlurmd, GPUs: gpus}, false
}
