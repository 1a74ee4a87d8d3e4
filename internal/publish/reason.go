package publish

import (
	"errors"
	"math/rand/v2"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

const (
	// reasonTime bounds each of a hook's calls of scontrol: with slurmctld up, one takes 10 ms.
	reasonTime  = time.Second
	reasonCalls = 4
	// reasonSpread is the time over which a cluster's hooks that meet the same fault spread their calls to slurmctld.
	reasonSpread = 2 * time.Second
	// slurmCall bounds each of a health check's calls: with slurmctld down or hung, one would take 10 to 20 s.
	slurmCall = 3 * time.Second
)

// Expedited reports whether this epilog's exit status may start its job again at once. It reads slurm.conf, so it is
// called only before a drain. If that cannot be read, the version decides: only 25.11 and later can.
func Expedited(a *node.Access) slurm.Answer {
	answer := slurmcmd.Expedites(a.Config.Slurm.GresConf, a.Env.Getenv("SLURM_CONF"))
	if answer == slurm.Unknown && a.Env.Getenv("SLURM_JOB_SLUID") == "" { // hooks get it from 25.11 on
		return slurm.No
	}
	return answer
}

// Reason drains the node with the reason: slurmctld keeps one that is set before the hook's exit code arrives. end is
// the record that the exit code follows from. If the hook exits 0 nevertheless, this is the drain itself, whichever
// program is to write reasons. Reason returns what went wrong.
func Reason(a *node.Access, seen judge.Seen, end record.End) []record.Finding {
	alone := end.Verdict.ByScontrol
	if a.Phase == slurm.HealthCheck || end.Verdict.Exit == 0 ||
		a.Config.Drain.ReasonBy != config.ReasonByHook && !alone {
		return nil
	}
	own := drain.FromEnd(record.Run{Job: a.Job, Epoch: seen.Epoch}, a.Phase, end)
	if own.Reason == "" && alone {
		return notDrained(errors.New("there is no reason for it that names the job"))
	}
	if own.Reason == "" {
		return nil
	}
	time.Sleep(rand.N(1 + a.Deadline.Left(reasonSpread, reasonCalls*reasonTime+time.Duration(a.Times.Outputs))))
	now, left, faults, err := give(a, *own, seen)
	if left != "" {
		err = errors.New(left)
	}
	if alone && err != nil && !now.Drained() {
		return append(faults, notDrained(err)...)
	}
	return append(faults, notWritten(err)...)
}

// give drains the node for an exit's reason. It returns the node as it was, and why it was left alone, if it was.
func give(a *node.Access, own drain.Exit, seen judge.Seen) (
	now slurm.Node, left string, faults []record.Finding, err error,
) {
	limit := reasonTime
	if own.ByScontrol { // nothing else drains: a busy controller gets more time
		limit = slurmCall
	}
	cmd := scontrol(a, own.Conf, func() time.Duration { return a.Deadline.Left(limit, time.Duration(a.Times.Outputs)) })
	memory, faults := drainMemory(a)
	now, err = cmd.Node(a.Job.Node)
	if err != nil {
		return now, "", faults, err
	}
	in := withOthers(a, drain.Facts{Memory: memory, Epoch: seen.Epoch, Node: now, Now: a.Env.Clock.Wall()})
	left, more, err := writeReason(a, cmd, in, own)
	return now, left, append(faults, more...), err
}

// withOthers adds what is known of the node's other GPUs; nothing if one is in quarantine already.
func withOthers(a *node.Access, in drain.Facts) drain.Facts {
	if a.Store != nil && len(state.Quarantines.Peek(a.Store)) == 0 {
		in.Last, in.Standing = state.LastCheck.Peek(a.Store), state.Standing.Peek(a.Store)
	}
	return in
}

// writeReason writes the reason of an exit, if that is what is decided; left is why not.
func writeReason(
	a *node.Access, cmd slurmcmd.Scontrol, in drain.Facts, own drain.Exit,
) (left string, faults []record.Finding, err error) {
	decision := drain.AtHook(in, own)
	if decision.Act == drain.Leave {
		return decision.Why, nil, nil
	}
	faults, kept := remember(a, in.Memory, decision.Memory)
	// A hook that drains at the same moment writes its reason: if both did, the one in place might not be on record.
	another := errors.Is(kept, state.ErrChanged) || errors.Is(kept, state.ErrLocked)
	if decision.Act != drain.Write || another && !own.ByScontrol {
		return "", faults, nil
	}
	put := cmd.Drain
	if own.ByScontrol {
		put = cmd.EnsureDrained
	}
	err = put(a.Job.Node, decision.Reason, func(now slurm.Node) bool {
		in.Node = now
		return drain.AtHook(in, own).Act == drain.Write
	})
	if own.ByScontrol && err != nil {
		more, _ := remember(a, decision.Memory, decision.Memory.Failed(err)) // for display
		faults = append(faults, more...)
	}
	return "", faults, err
}

// notDrained returns the finding that a drain did not come about: the exit status must not do it instead.
func notDrained(err error) []record.Finding {
	return []record.Finding{record.Saw(catalog.ReasonFailed, "the node was not drained: "+err.Error(),
		"it is drained by scontrol: with expedited requeue a failed epilog would start the job again")}
}

// notWritten returns the finding that Slurm could not be asked or updated. The next health check writes the reason.
func notWritten(err error) (found []record.Finding) {
	if err != nil {
		found = append(found, record.Saw(catalog.ReasonFailed, err.Error(), "the drain reason is written"))
	}
	return found
}

// SettleDrain replaces Slurm's fixed text for a drain of ours with the reason, and resumes the node if it may. It asks
// Slurm only while a drain is not settled. Failures become findings, and the next health check tries again.
func SettleDrain(a *node.Access, c judge.Check, j judge.Judgement) (
	decided *drain.Decision, faults []record.Finding,
) {
	memory, faults := drainMemory(a)
	in, more := drainInput(a, c.Seen, memory)
	faults = append(faults, more...)
	if !in.Pending() {
		return nil, faults
	}
	until := a.Env.Clock.Boot() + time.Duration(a.Config.Deadlines.HealthCheck.Slurm)
	cmd := scontrol(a, in.Conf(), func() time.Duration {
		return a.Deadline.Left(min(slurmCall, until-a.Env.Clock.Boot()), time.Duration(a.Times.Outputs))
	})
	var err error
	in.Node, err = cmd.Node(a.Job.Node)
	if err == nil {
		in.Cards = c.DrainSeen(j)
		decided, more, err = carryOut(a, cmd, in, memory)
		faults = append(faults, more...)
	}
	return decided, append(faults, notWritten(err)...)
}

// DrainIdle drains a node without jobs if a health check is to do so. It returns the node as it was before, and what
// kept it from being drained. Slurm is asked twice whether a job is there, the second time right before.
func DrainIdle(a *node.Access, c judge.Check, j judge.Judgement) (
	was slurm.Node, held string, faults []record.Finding,
) {
	if j.Action != config.Drain {
		return was, "", nil
	}
	end := record.End{At: a.Deadline.Start, Wall: a.Env.Clock.Wall(), Findings: j.Found, Verdict: j.Verdict}
	end.Verdict.Exit, end.Verdict.ByScontrol = catalog.Exit(j.Code), true // as the end of a job would
	end.SlurmConf = keptConf(a)
	own := drain.FromEnd(record.Run{Job: a.Job, Epoch: c.Seen.Epoch}, a.Phase, end)
	if own == nil || own.Reason == "" || a.Config.Drain.ReasonBy == config.ReasonByNone {
		return was, "drain.reason_by is none", nil
	}
	was, held, faults, err := give(a, *own, c.Seen)
	if err != nil {
		held = err.Error()
	}
	return was, held, append(faults, notWritten(err)...)
}

// AskSlurm returns access to Slurm for a program for which no hook waits.
func AskSlurm(a *node.Access) slurmcmd.Scontrol {
	const patience = 10 * time.Second
	conf := keptConf(a)
	memory, _ := drainMemory(a)
	if memory.Written != nil {
		conf = memory.Written.Conf
	}
	return scontrol(a, conf, func() time.Duration { return patience })
}

// keptConf returns the SLURM_CONF of the node's hooks: Slurm gives a health check none.
func keptConf(a *node.Access) string {
	if kept := node.Numbering.Peek(a.Store); kept != nil {
		return kept.Key.Conf
	}
	return ""
}

// Idle reports whether Slurm has no job on the node, also none without a process; false if that cannot be told.
func Idle(a *node.Access) bool {
	left := func() time.Duration { return a.Left(config.Duration(slurmCall)) }
	now, err := scontrol(a, keptConf(a), left).Node(a.Job.Node)
	return err == nil && now.Idle()
}

// drainInput returns what this node's records say about its drain, read again, since an end may have come meanwhile.
func drainInput(a *node.Access, seen judge.Seen, memory drain.Remembered) (drain.Facts, []record.Finding) {
	runs, unread := a.Store.Runs()
	lost, err := a.Store.LostRecord() // after the records: reading them sets damaged ones aside
	return withOthers(a, drain.Facts{Now: a.Env.Clock.Wall(), Epoch: seen.Epoch, Memory: memory.Here(seen.Epoch.Boot),
		Exits: drain.Exits(runs, seen.Epoch.Boot), Mute: a.Config.Drain.ReasonBy == config.ReasonByNone,
		Resume:  a.Config.Drain.Resume.Times(),
		Partial: seen.Epoch.Boot == "" || len(unread) > 0, Lost: lost || err != nil}), node.Fault(err)
}

// carryOut does what was decided, and stores it first: if that fails, nothing is done.
func carryOut(a *node.Access, cmd slurmcmd.Scontrol, in drain.Facts, memory drain.Remembered) (
	decided *drain.Decision, faults []record.Finding, err error,
) {
	decision := drain.Decide(in)
	faults, err = remember(a, memory, decision.Memory)
	if err != nil {
		return nil, faults, nil
	}
	still := func(now slurm.Node) bool {
		again := in
		again.Node = now
		wanted := drain.Decide(again)
		return wanted.Act == decision.Act && wanted.Reason == decision.Reason
	}
	switch decision.Act {
	case drain.Write:
		err = cmd.Drain(a.Job.Node, decision.Reason, still)
	case drain.Resume:
		err = cmd.Resume(a.Job.Node, still)
	}
	switch {
	case errors.Is(err, slurmcmd.ErrChanged): // the next health check sees the new state
		decision = drain.Decision{Act: drain.Leave, Why: err.Error(), Memory: decision.Memory}
	case err != nil:
		more, _ := remember(a, decision.Memory, decision.Memory.Failed(err)) // for display
		return nil, append(faults, more...), err
	case decision.Act == drain.Resume:
		done := decision.Memory
		done.Written = nil                            // the drain is no longer ours
		more, _ := remember(a, decision.Memory, done) // the next health check sees what was done
		faults = append(faults, more...)
	}
	if last := memory.Last; decision.Act != drain.Leave || last == nil || last.Why != decision.Why {
		return &decision, faults, nil
	}
	return nil, faults, nil
}

// drainMemory returns what the node stores about its drain. Without it, no reason in place counts as ours.
func drainMemory(a *node.Access) (drain.Remembered, []record.Finding) {
	if a.Store == nil {
		return drain.Remembered{}, nil
	}
	m, err := a.Store.Drain()
	return m, node.Fault(err)
}

// remember stores what was decided. If another program changed the memory meanwhile, that one's version is kept.
func remember(a *node.Access, seen, next drain.Remembered) ([]record.Finding, error) {
	if a.Store == nil {
		return nil, errors.New("no state") // a finding since it could not be opened
	}
	err := a.Store.SwapDrain(seen, next)
	if errors.Is(err, state.ErrChanged) {
		return []record.Finding{record.Unsure(catalog.StateLock, err.Error())}, err
	}
	return node.Fault(err), err
}

func scontrol(a *node.Access, conf string, left func() time.Duration) slurmcmd.Scontrol {
	return slurmcmd.Scontrol{Path: a.Config.Slurm.Scontrol, Conf: conf, Root: a.Env.EUID == 0, Time: left}
}
