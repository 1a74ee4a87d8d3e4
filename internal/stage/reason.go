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
func (r *record) giveReason() {
	if r.Phase == slurm.HealthCheck || r.Verdict.Exit == 0 || r.Config.Drain.ReasonBy != config.ReasonByHook {
		return
	}
	own := drain.FromEnd(ledger.Run{Job: r.Job, Epoch: r.Seen.Epoch}, r.Phase, r.end())
	if own == nil || own.Reason == "" {
		return
	}
	time.Sleep(rand.N(1 + r.Left(reasonSpread, 3*reasonTime+time.Duration(r.Times.Outputs))))
	in := drain.Input{Memory: r.drainMemory()}
	cmd := r.scontrol(own.Conf, func() time.Duration { return r.Left(reasonTime, time.Duration(r.Times.Outputs)) })
	var err error
	if in.Node, err = cmd.Node(r.Job.Node); err == nil {
		in.Now = r.moment()
		err = r.writeReason(cmd, in, *own)
	}
	r.late(r.Take()...)
	r.late(notWritten(err)...)
}

// writeReason does what is decided about an exit of this hook, where that is to write.
func (r *record) writeReason(cmd slurmcmd.Scontrol, in drain.Input, own drain.Exit) error {
	decision := drain.AtHook(in, own)
	if decision.Act == drain.Leave {
		return errors.New(decision.Why)
	}
	kept := r.remember(in.Memory, decision.Memory)
	// A hook that drains at the same moment writes its reason: of two, each over the other's, one would be nobody's.
	another := errors.Is(kept, state.ErrChanged) || errors.Is(kept, state.ErrLocked)
	if decision.Act != drain.Write || another {
		return nil
	}
	return cmd.Drain(r.Job.Node, decision.Reason, func(now drain.Node) bool {
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
func (r *record) settleDrain(c judge.Check) {
	if r.Store == nil {
		return
	}
	resume := r.Config.Drain.Resume
	memory := r.drainMemory()
	runs, _ := r.Store.Runs() // again: an end may have come since; what is damaged is reported by whoever looks into it
	in := drain.Input{
		Now: r.moment(), Epoch: r.Seen.Epoch, Memory: memory.Here(r.moment()), Exits: drain.Exits(runs, r.moment()),
		Rules: drain.Rules{By: r.Config.Drain.ReasonBy, Resume: resume.Enabled, After: resume.After},
	}
	if !drain.Pending(in.Rules, in.Memory, in.Exits, in.Now.Wall) {
		return
	}
	until := r.Clock.Boot() + time.Duration(r.Config.Deadlines.HealthCheck.Slurm)
	cmd := r.scontrol(drain.Conf(in.Memory, in.Exits), func() time.Duration {
		return r.Left(min(slurmCall, until-r.Clock.Boot()), time.Duration(r.Times.Outputs))
	})
	var err error
	if in.Node, err = cmd.Node(r.Job.Node); err == nil {
		in.Cards = c.DrainSeen(r.Judgement)
		err = r.carryOut(cmd, in, memory)
	}
	r.Add(notWritten(err)...)
}

// carryOut decides, and does what was decided. What is remembered of it is written before anything is done: where the
// one fails the other is not begun. A decision that is news is on the record.
func (r *record) carryOut(cmd slurmcmd.Scontrol, in drain.Input, memory drain.Memory) (err error) {
	decision := drain.Decide(in)
	if r.remember(memory, decision.Memory) != nil {
		return nil
	}
	still := func(now drain.Node) bool {
		again := in
		again.Node = now
		wanted := drain.Decide(again)
		return wanted.Act == decision.Act && wanted.Reason == decision.Reason
	}
	switch decision.Act {
	case drain.Write:
		err = cmd.Drain(r.Job.Node, decision.Reason, still)
	case drain.Resume:
		err = cmd.Resume(r.Job.Node, still)
	}
	switch {
	case errors.Is(err, slurmcmd.ErrChanged): // the next health check sees what has become of it
		decision = drain.Decision{Act: drain.Leave, Why: err.Error(), Memory: decision.Memory}
	case err != nil:
		_ = r.remember(decision.Memory, decision.Memory.Failed(err)) // for display
		return err
	case decision.Act == drain.Resume:
		done := decision.Memory
		done.Written = nil                    // the drain is no longer ours
		_ = r.remember(decision.Memory, done) // told; the next health check finds what was done
	}
	if last := memory.Last; decision.Act != drain.Leave || last == nil || last.Why != decision.Why {
		r.drain = &decision
	}
	return nil
}

// drainMemory is what the node remembers of its drain. Without it no reason that stands is ours.
func (r *record) drainMemory() drain.Memory {
	if r.Store == nil {
		return drain.Memory{}
	}
	m, err := r.Store.Drain()
	r.Try(err)
	return m
}

// remember keeps what was decided. Where another program has changed it since, that one's word stands.
func (r *record) remember(seen, next drain.Memory) error {
	if r.Store == nil {
		return errors.New("no state") // which is told where it could not be opened
	}
	err := r.Store.SwapDrain(seen, next)
	if errors.Is(err, state.ErrChanged) {
		r.Add(finding.Unsure(code.StateLock, err.Error()))
	} else {
		r.Try(err)
	}
	return err
}

// scontrol is Slurm's command as slurmd's own configuration leads it.
func (r *record) scontrol(conf string, left func() time.Duration) slurmcmd.Scontrol {
	return slurmcmd.Scontrol{Path: r.Config.Slurm.Scontrol, Conf: conf, Root: r.EUID == 0, Time: left}
}

// moment is now, on the clocks of this boot.
func (r *record) moment() drain.Moment {
	return drain.Moment{Wall: r.Clock.Wall(), ID: r.Seen.Epoch.Boot}
}
