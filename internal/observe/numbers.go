package observe

import (
	"errors"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/node"
	"bookend/internal/nodefiles"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// numbers find out what Slurm's GPU numbers mean.
type numbers struct {
	kept    slurmconf.List  // the stored answer
	last    *slurmconf.Kept // with what it depends on; nil without one
	asks    bool            // whether it still holds must be checked
	a       *node.Access
	settle  func() *slurmconf.Kept // waits for the answer of a check that was started
	settled *slurmconf.Kept        // once it is known
	faults  []record.Finding
}

// numbersOf reads the stored meaning of Slurm's GPU numbers. Nothing needs it if Slurm or the admin names the devices,
// or the run's start determined them.
func numbersOf(a *node.Access, recalled record.Run) *numbers {
	n := &numbers{a: a}
	gives := slurmconf.GivesNumbers(a.Job) && !settled(recalled, a.Job)
	n.asks = (a.Phase == slurm.HealthCheck || gives) && len(a.Config.NVIDIA.GPUMap) == 0
	if !n.asks { // then only the types of the GPUs count
		if known := state.Numbering.PeekNode(a.Config.Paths.Run, a.Job.Node); known != nil {
			n.kept = known.List
		}
		return n
	}
	last, err := state.Numbering.Load(a.Store)
	n.last, n.faults = last, node.Fault(err)
	if last != nil {
		n.kept = last.List
	}
	return n
}

// start begins to check whether the stored answer still holds.
func (n *numbers) start() {
	conf := n.a.Env.Getenv("SLURM_CONF")
	check := n.a.Phase == slurm.HealthCheck
	switch {
	case !n.asks:
	case check && conf == "" && n.a.Config.Slurm.GresConf == "" && n.last == nil:
		n.settled = &slurmconf.Kept{List: slurmconf.Unclear("no hook of a job has asked slurmd yet")}
	default:
		n.settle = n.check(n.last, conf)
	}
}

// list waits for the answer, and stores it if it is new.
func (n *numbers) list() slurmconf.List {
	if n.settled == nil && n.settle == nil {
		return n.kept
	}
	if n.settled == nil {
		now, kept := n.settle(), n.last
		// A hook that does not know which slurmd runs keeps the answer of one that did.
		known := kept == nil || now.Key.Daemon.PID != 0 || kept.Key.Daemon.PID == 0
		if now != kept && now.Key.Conf != "" && known {
			// then another hook stores the same
			if err := state.Numbering.Save(n.a.Store, now); !errors.Is(err, state.ErrLocked) {
				n.faults = append(n.faults, node.Fault(err)...)
			}
		}
		n.settled = now
	}
	return n.settled.List
}

// ReadNumbering returns what hooks that start now would find for a node, and stores nothing. env.PID is slurmd's, or 0.
func ReadNumbering(env child.Env, cfg config.Config, name, slurmConf string) slurmconf.List {
	a := node.With(env, slurm.HealthCheck, cfg, env.Clock.Boot())
	a.Job.Node = name
	n := numbers{a: a}
	return n.check(state.Numbering.PeekNode(cfg.Paths.Run, name), slurmConf)().List
}

// check starts to find the answer; collect returns kept itself if that still holds.
func (n *numbers) check(kept *slurmconf.Kept, slurmConf string) (collect func() *slurmconf.Kept) {
	a := n.a
	request := slurmcmd.NumberingRequest{
		Proc: a.Config.Paths.Proc, Boot: nodefiles.BootID(a.Config.Paths.Proc), Hook: a.Env.PID, Node: a.Job.Node,
		SlurmConf: slurmConf,
		GresConf:  a.Config.Slurm.GresConf, Slurmd: a.Config.Slurm.Slurmd, Scontrol: a.Config.Slurm.Scontrol,
	}
	due := false
	if kept != nil {
		request.Kept, due = kept.Key, kept.Due(a.Env.Clock.Boot(), a.Phase == slurm.HealthCheck)
	}
	first := a.Left(a.Times.Scan)
	wait := child.Async(func() (slurmcmd.NumberingReply, error) { return slurmcmd.Numbering.Ask(request, first) })
	return func() *slurmconf.Kept {
		reply, err := wait()
		switch {
		case err != nil:
			return n.unclear(err)
		case kept != nil && !due && kept.Holds(reply.Key):
			return kept
		case reply.Unknown != "":
			return n.unclear(errors.New(reply.Unknown))
		}
		return n.ask(kept, request, reply)
	}
}

// ask asks slurmd, and returns its answer if the files that it read did not change meanwhile.
func (n *numbers) ask(
	kept *slurmconf.Kept, request slurmcmd.NumberingRequest, reply slurmcmd.NumberingReply,
) *slurmconf.Kept {
	a := n.a
	asked := slurmconf.Asked{Key: reply.Key, Own: reply.Own, At: a.Env.Clock.Boot()}
	if daemon := reply.Key.Daemon; daemon.PID != 0 {
		asked.Began = a.Env.Clock.Wall().Add(daemon.Began() - asked.At)
	}
	asked.List, asked.Failed = n.askSlurmd(reply)
	now := asked.Settle(kept)                              // the answer in force
	if a.InJob && kept == nil && now.Key.Daemon.PID == 0 { // and it may not have read these files
		return n.unclear(errors.New("which slurmd is running is not known"))
	}
	after, err := slurmcmd.Numbering.Ask(request, a.Left(a.Times.Scan))
	if err == nil && !reply.Key.Equal(after.Key) {
		err = errors.New("slurm.conf, gres.conf or slurmd changed while slurmd -G read them")
	}
	if err != nil {
		return n.unclear(err)
	}
	return &now
}

func (n *numbers) unclear(err error) *slurmconf.Kept {
	n.faults = append(n.faults, n.a.Defect(err)...)
	return &slurmconf.Kept{List: slurmconf.Unclear("%v", err)}
}

// askSlurmd runs slurmd -G. While an earlier one is stuck, no other is started: it would get stuck too.
func (n *numbers) askSlurmd(reply slurmcmd.NumberingReply) (list slurmconf.List, failed bool) {
	a := n.a
	if stuck, since := a.StuckReader(node.SlurmdOp); stuck != nil && a.Store != nil {
		return slurmconf.Unclear("slurmd -G started at %s cannot be killed: PID %d", since, stuck.PID), true
	}
	limit := time.Duration(a.Times.Driver) / 2 // it takes 0.1 s, and longer if AutoDetect has to wake the GPUs
	command := slurmcmd.Slurmd{
		Path: reply.Key.Slurmd.Path, Conf: reply.Key.Conf, Node: reply.Key.Node, Root: a.Env.EUID == 0,
		Entries: reply.Entries,
		Timeout: a.Deadline.Left(limit, a.Reserve()+limit),
	}
	if a.Store != nil {
		command.Private = a.Store.Dir()
	}
	read, res, err := command.List()
	if res.Outcome == child.Abandoned {
		failure := &child.Error{Op: node.SlurmdOp, Result: res}
		n.faults = append(n.faults, a.AbandonedReader(failure, nil)...)
	}
	switch {
	case err != nil:
		return slurmconf.Unclear("%v", err), true
	case reply.Unsure != "":
		return slurmconf.Unclear("%s", reply.Unsure), false
	case len(read.GPUs) == 0 || len(read.GPUs) != reply.Count: // the driver may not have been loaded yet
		return slurmconf.Unclear("slurmd -G lists %d GPUs, slurm.conf gives out %d", len(read.GPUs),
			reply.Count), true
	}
	return read, false
}
