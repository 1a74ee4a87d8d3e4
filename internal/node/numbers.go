package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/nodefiles"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// Numbering is what Slurm's GPU numbers mean on the node, as stored. Concurrent hooks get the same answer. 256 GPUs and
// 64 Slurm configuration files take about 40 KiB.
var Numbering = state.Value[*slurmconf.Kept]("numbering.json", 128<<10)

// numbers find out what Slurm's GPU numbers mean.
type numbers struct {
	kept    slurmconf.List  // the stored answer
	last    *slurmconf.Kept // with what it depends on; nil without one
	asks    bool            // whether it still holds must be checked
	a       *Access
	settle  func() *slurmconf.Kept // waits for the answer of a check that was started
	settled *slurmconf.Kept        // once it is known
	faults  []record.Finding
}

// numbersOf reads the stored meaning of Slurm's GPU numbers, and finds out whether this hook needs it.
func numbersOf(a *Access, recalled record.Run) *numbers {
	n := &numbers{a: a}
	n.asks = (a.Phase == slurm.HealthCheck || slurmconf.NeedsList(a.Job, recalled)) && len(a.Config.NVIDIA.GPUMap) == 0
	if n.asks {
		last, err := Numbering.Load(a.Store)
		n.last, n.faults = last, Fault(err)
	} else { // then only the types of the GPUs count
		n.last = Numbering.PeekNode(a.Config.Paths.Run, a.Job.Node)
	}
	n.kept = cmp.Or(n.last, &slurmconf.Kept{}).List
	return n
}

// start begins to check whether the stored answer still holds.
func (n *numbers) start() {
	conf, check := n.a.Env.Getenv("SLURM_CONF"), n.a.Phase == slurm.HealthCheck
	switch {
	case !n.asks:
		n.settled = &slurmconf.Kept{List: n.kept}
	case check && conf == "" && n.a.Config.Slurm.GresConf == "" && n.last == nil:
		n.settled = &slurmconf.Kept{List: slurmconf.Unclear("no hook of a job has asked slurmd yet")}
	default:
		n.settle = n.check(n.last, conf)
	}
}

// list waits for the answer, and stores it if it is new.
func (n *numbers) list() slurmconf.List {
	if n.settled == nil {
		now, kept := n.settle(), n.last
		// A hook that does not know which slurmd runs keeps the answer of one that did.
		known := kept == nil || now.Key.Daemon.PID != 0 || kept.Key.Daemon.PID == 0
		if now != kept && now.Key.Conf != "" && known {
			// then another hook stores the same
			if err := Numbering.Save(n.a.Store, now); !errors.Is(err, state.ErrLocked) {
				n.faults = append(n.faults, Fault(err)...)
			}
		}
		n.settled = now
	}
	return n.settled.List
}

// ReadNumbering returns what hooks that start now would find for a node, and stores nothing. env.PID is slurmd's, or 0.
func ReadNumbering(env child.Env, cfg config.Config, name, slurmConf string) *slurmconf.Kept {
	a := With(env, slurm.HealthCheck, cfg, env.Clock.Boot())
	a.Job.Node = name
	return (&numbers{a: a}).check(Numbering.PeekNode(cfg.Paths.Run, name), slurmConf)()
}

// check starts to find the answer; collect returns kept itself if that still holds.
func (n *numbers) check(kept *slurmconf.Kept, slurmConf string) (collect func() *slurmconf.Kept) {
	a := n.a
	proc, conf := a.Config.Paths.Proc, a.Config.Slurm
	collected := slurmcmd.Question{
		Request: slurmcmd.NumberingRequest{
			Proc: proc, Boot: nodefiles.BootID(proc), Hook: a.Env.PID, Node: a.Job.Node, SlurmConf: slurmConf,
			GresConf: conf.GresConf, Slurmd: conf.Slurmd, Scontrol: conf.Scontrol,
			PIDFile: config.SlurmdPIDFile,
		},
		Kept: kept, Check: a.Phase == slurm.HealthCheck, InJob: a.InJob, Clock: a.Env.Clock,
		Scan: func() time.Duration { return a.Left(a.Times.Scan) }, Slurmd: n.slurmd,
	}.Ask()
	return func() *slurmconf.Kept {
		now, failure := collected()
		n.faults = slices.Concat(n.faults, defect(a.Env, failure), a.AbandonedReader(failure, nil))
		return now
	}
}

// slurmd returns how to run slurmd -G. While an earlier one is stuck, no other is started: it would get stuck too.
func (n *numbers) slurmd() (slurmcmd.Slurmd, error) {
	a := n.a
	limit := time.Duration(a.Times.Driver) / 2 // it takes 0.1 s, and longer if AutoDetect has to wake the GPUs
	s := slurmcmd.Slurmd{Root: a.Env.EUID == 0, Timeout: a.Deadline.Left(limit, a.Reserve()+limit)}
	if a.Store == nil {
		return s, nil
	}
	s.Private = a.Store.Dir()
	for _, r := range StuckReaders(a) {
		if r.Op == slurmcmd.SlurmdOp {
			return s, fmt.Errorf("slurmd -G started at %s cannot be killed: PID %d", a.at(r.Since), r.PID)
		}
	}
	return s, nil
}
