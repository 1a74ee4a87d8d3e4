package stage

import (
	"errors"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/scontrol"
	"bookend/internal/state"
)

// reasonTime bounds each call of scontrol by a hook, of which there are three: with slurmctld up one takes 10 ms.
const reasonTime = time.Second

// giveReason drains the node itself, with the reason, where the site wants the hook to do it: slurmctld keeps a
// reason that is there before the hook's exit code arrives.
func (h *hook) giveReason() {
	if h.verdict.Exit == 0 || h.cfg.Drain.ReasonBy != config.ReasonByHook {
		return
	}
	own := drain.FromEnd(ledger.Run{Job: h.job, Epoch: h.epoch}, h.phase, h.end())
	if own == nil || own.Reason == "" {
		return
	}
	memory := h.drainMemory()
	cmd := h.scontrol(own.Conf, func() time.Duration { return h.left(reasonTime, time.Duration(h.times.Outputs)) })
	node, err := cmd.Node(h.job.Node)
	if err != nil {
		h.noReason(err)
		return
	}
	in := drain.Input{Now: h.moment(), Memory: memory, Node: node, Writer: drain.ByHook}
	d := drain.AtHook(in, *own)
	if d.Act == drain.Leave {
		h.noReason(errors.New(d.Why))
		return
	}
	kept := h.remember(memory, d.Intent)
	// A hook that drains at the same moment writes its reason: of two, each over the other's, one would be nobody's.
	if another := errors.Is(kept, state.ErrChanged) || errors.Is(kept, state.ErrLocked); d.Act != drain.Write || another {
		return
	}
	err = cmd.Drain(h.job.Node, d.Reason, func(now drain.Node) bool {
		in.Node = now
		return drain.AtHook(in, *own).Act == drain.Write
	})
	if err != nil {
		h.noReason(err)
		return
	}
	_ = h.remember(d.Intent, d.After) // told; the health check finds what was done
}

// noReason tells that Slurm could not be asked, or told. What cannot be written now the next health check writes.
func (h *hook) noReason(err error) {
	h.add(finding.Finding{Code: code.ReasonFailed, Observed: err.Error(), Expected: "the drain reason is written"})
}

// drainMemory is what the node remembers of its drain. Without it no reason that stands is ours.
func (h *hook) drainMemory() drain.Memory {
	if h.store == nil {
		return drain.Memory{}
	}
	m, err := h.store.Drain()
	h.try(err)
	return m
}

// errNoState says that nothing can be remembered at all; it is told where the state could not be opened.
var errNoState = errors.New("no state")

// remember keeps what was decided. Where another program has changed it since, that one's word stands.
func (h *hook) remember(seen, next drain.Memory) error {
	if h.store == nil {
		return errNoState
	}
	err := h.store.SwapDrain(seen, next)
	if errors.Is(err, state.ErrChanged) {
		h.add(finding.Finding{Code: code.StateLock, Unknown: err.Error()})
	} else {
		h.try(err)
	}
	return err
}

// scontrol is Slurm's command as slurmd's own configuration leads it.
func (h *hook) scontrol(conf string, left func() time.Duration) scontrol.Command {
	return scontrol.Command{Path: h.cfg.Slurm.Scontrol, Conf: conf, Root: h.env.EUID == 0, Time: left}
}

// moment is now, on the clocks of this boot.
func (h *hook) moment() drain.Moment {
	return drain.Moment{Wall: h.env.Clock.Wall(), Boot: h.env.Clock.Boot(), ID: h.epoch.Boot}
}
