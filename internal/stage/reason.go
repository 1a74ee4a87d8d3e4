package stage

import (
	"errors"
	"math/rand/v2"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/session"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

const (
	// reasonTime bounds each call of scontrol by a hook, of which there are three: with slurmctld up one takes 10 ms.
	reasonTime = time.Second
	// reasonSpread is over how long the hooks of a cluster ask slurmctld that meet the same fault at once.
	reasonSpread = 2 * time.Second
	// slurmCall bounds each of a health check's calls: with slurmctld down or hung one would take 10 to 20 s.
	slurmCall = 3 * time.Second
)

// giveReason drains the node itself, with the reason, where the site wants the hook to do it: slurmctld keeps a
// reason that is there before the hook's exit code arrives.
func (r *record) giveReason(d *session.Driver) {
	if d.Phase == slurm.HealthCheck || r.Exit == 0 || d.Config.Drain.ReasonBy != config.ReasonByHook {
		return
	}
	own := drain.FromEnd(ledger.Run{Job: d.Job, Epoch: r.Seen.Epoch}, d.Phase, r.end(d))
	if own == nil || own.Reason == "" {
		return
	}
	time.Sleep(rand.N(1 + d.Left(reasonSpread, 3*reasonTime+time.Duration(d.Times.Outputs))))
	memory := drainMemory(d)
	cmd := command(d, own.Conf, func() time.Duration { return d.Left(reasonTime, time.Duration(d.Times.Outputs)) })
	node, err := cmd.Node(d.Job.Node)
	if err == nil {
		in := drain.Input{Now: r.moment(d), Memory: memory, Node: node}
		err = writeReason(d, cmd, in, *own)
	}
	r.late(d.Take()...)
	r.late(notWritten(err)...)
}

// writeReason does what is decided about an exit of this hook, where that is to write.
func writeReason(d *session.Driver, cmd slurmcmd.Scontrol, in drain.Input, own drain.Exit) error {
	decision := drain.AtHook(in, own)
	if decision.Act == drain.Leave {
		return errors.New(decision.Why)
	}
	kept := remember(d, in.Memory, decision.Memory)
	// A hook that drains at the same moment writes its reason: of two, each over the other's, one would be nobody's.
	another := errors.Is(kept, state.ErrChanged) || errors.Is(kept, state.ErrLocked)
	if decision.Act != drain.Write || another {
		return nil
	}
	return cmd.Drain(d.Job.Node, decision.Reason, func(now drain.Node) bool {
		in.Node = now
		return drain.AtHook(in, own).Act == drain.Write
	})
}

// notWritten tells that Slurm could not be asked, or told. What cannot be written now the next health check writes.
func notWritten(err error) []finding.Finding {
	if err == nil {
		return nil
	}
	return []finding.Finding{finding.Saw(code.ReasonFailed, err.Error(), "the drain reason is written")}
}

// settleDrain gives a drain of ours the reason in the place of Slurm's fixed text, and ends it where it may. Slurm is
// asked only while there is one that is not settled. What fails is told, and the next health check does it.
func (r *record) settleDrain(d *session.Driver, c judge.Check) {
	if d.Store == nil {
		return
	}
	resume := d.Config.Drain.Resume
	in := drain.Input{
		Now: r.moment(d), Epoch: r.Seen.Epoch,
		Rules: drain.Rules{By: d.Config.Drain.ReasonBy, Resume: resume.Enabled, After: resume.After},
	}
	memory := drainMemory(d)
	runs, _ := d.Store.Runs() // anew: an end may have come since; what is damaged is reported by whoever looks into it
	in.Memory, in.Exits = memory.Here(in.Now), drain.Exits(runs, in.Now)
	if !drain.Pending(in.Rules, in.Memory, in.Exits, in.Now.Wall) {
		return
	}
	until := d.Clock.Boot() + time.Duration(d.Config.Deadlines.HealthCheck.Slurm)
	cmd := command(d, drain.Conf(in.Memory, in.Exits), func() time.Duration {
		return d.Left(min(slurmCall, until-d.Clock.Boot()), time.Duration(d.Times.Outputs))
	})
	node, err := cmd.Node(d.Job.Node)
	if err == nil {
		in.Node, in.Cards = node, c.DrainSeen(r.Judgement)
		r.drain, err = carryOut(d, cmd, in, memory)
	}
	d.Add(notWritten(err)...)
}

// carryOut decides, and does what was decided. What is remembered of it is written before anything is done: where the
// one fails the other is not begun. It returns a decision that is news.
func carryOut(
	d *session.Driver, cmd slurmcmd.Scontrol, in drain.Input, memory drain.Memory,
) (news *drain.Decision, err error) {
	decision := drain.Decide(in)
	if remember(d, memory, decision.Memory) != nil {
		return nil, nil
	}
	still := func(now drain.Node) bool {
		again := in
		again.Node = now
		wanted := drain.Decide(again)
		return wanted.Act == decision.Act && wanted.Reason == decision.Reason
	}
	switch decision.Act {
	case drain.Write:
		err = cmd.Drain(d.Job.Node, decision.Reason, still)
	case drain.Resume:
		err = cmd.Resume(d.Job.Node, still)
	}
	if errors.Is(err, slurmcmd.ErrChanged) { // the next health check sees what has become of it
		decision = drain.Decision{Act: drain.Leave, Why: err.Error(), Memory: decision.Memory}
		err = nil
	}
	if err != nil {
		_ = remember(d, decision.Memory, decision.Memory.Failed(err)) // for display
		return nil, err
	}
	if decision.Act == drain.Resume {
		_ = remember(d, decision.Memory, decision.Memory.Resumed()) // told; the next health check finds what was done
	}
	if last := memory.Last; decision.Act == drain.Leave && last != nil && last.Why == decision.Why {
		return nil, nil
	}
	return &decision, nil
}

// drainMemory is what the node remembers of its drain. Without it no reason that stands is ours.
func drainMemory(d *session.Driver) drain.Memory {
	if d.Store == nil {
		return drain.Memory{}
	}
	m, err := d.Store.Drain()
	d.Try(err)
	return m
}

// errNoState says that nothing can be remembered at all; it is told where the state could not be opened.
var errNoState = errors.New("no state")

// remember keeps what was decided. Where another program has changed it since, that one's word stands.
func remember(d *session.Driver, seen, next drain.Memory) error {
	if d.Store == nil {
		return errNoState
	}
	err := d.Store.SwapDrain(seen, next)
	if errors.Is(err, state.ErrChanged) {
		d.Add(finding.Unsure(code.StateLock, err.Error()))
	} else {
		d.Try(err)
	}
	return err
}

// command is Slurm's command as slurmd's own configuration leads it.
func command(d *session.Driver, conf string, left func() time.Duration) slurmcmd.Scontrol {
	return slurmcmd.Scontrol{Path: d.Config.Slurm.Scontrol, Conf: conf, Root: d.EUID == 0, Time: left}
}

// moment is now, on the clocks of this boot.
func (r *record) moment(d *session.Driver) drain.Moment {
	return drain.Moment{Wall: d.Clock.Wall(), ID: r.Seen.Epoch.Boot}
}
