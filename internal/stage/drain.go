package stage

import (
	"errors"
	"time"

	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/runlog"
	"bookend/internal/scontrol"
	"bookend/internal/settle"
)

// slurmCall bounds each of a health check's calls of scontrol: with slurmctld down or hung one would take 10 to 20 s.
const slurmCall = 3 * time.Second

// lookAfterDrain gives a drain of ours the reason in the place of Slurm's fixed text, and ends it where it may. Slurm is asked
// only while there is one that is not settled. What fails is told, and the next health check does it.
func (h *hook) lookAfterDrain(within time.Duration, cards func() map[gpu.ID]drain.Seen) {
	if h.store == nil {
		return
	}
	in := drain.Input{
		Now: h.moment(), Epoch: h.epoch, Writer: drain.ByCheck,
		Rules: drain.Rules{By: h.cfg.Drain.ReasonBy, Resume: h.cfg.Drain.Resume.Enabled, After: h.cfg.Drain.Resume.After},
	}
	memory := h.drainMemory()
	runs, _ := h.store.Runs() // anew: an end may have come since; what is damaged is reported by whoever looks into it
	in.Memory, in.Exits = memory.Here(in.Now), drain.Exits(runs, in.Now)
	if !drain.Pending(in.Rules, in.Memory, in.Exits) {
		return
	}
	until := h.env.Clock.Boot() + within
	cmd := h.scontrol(drain.Conf(in.Memory, in.Exits), func() time.Duration {
		return h.left(min(slurmCall, until-h.env.Clock.Boot()), time.Duration(h.times.Outputs))
	})
	node, err := cmd.Node(h.job.Node)
	if err != nil {
		h.noReason(err)
		return
	}
	in.Node, in.Cards = node, cards()
	h.carryOut(cmd, in, memory)
}

// carryOut decides, and does what was decided. What is remembered of it is written before anything is done: where the one
// fails the other is not begun.
func (h *hook) carryOut(cmd scontrol.Command, in drain.Input, memory drain.Memory) {
	d := drain.Decide(in)
	if !h.remember(memory, d.Intent) {
		return
	}
	still := func(now drain.Node) bool {
		again := in
		again.Node = now
		wanted := drain.Decide(again)
		return wanted.Act == d.Act && wanted.Reason == d.Reason
	}
	var err error
	switch d.Act {
	case drain.Write:
		err = cmd.Drain(h.job.Node, d.Reason, still)
	case drain.Resume:
		err = cmd.Resume(h.job.Node, still)
	}
	if errors.Is(err, scontrol.ErrChanged) { // the next health check sees what has become of it
		d = drain.Decision{Act: drain.Leave, Why: err.Error(), After: d.Intent}
		err = nil
	}
	if err != nil {
		h.noReason(err)
		return
	}
	if d.Act == drain.Write || d.Act == drain.Resume {
		h.remember(d.Intent, d.After)
	}
	if last := memory.Last; d.Act != drain.Leave || last == nil || last.Why != d.Why {
		h.drain = &d
	}
}

// drainEntry is the line of the log that says what was decided about the node's drain; false where there is no news.
func (h *hook) drainEntry() (runlog.Entry, bool) {
	if h.drain == nil {
		return runlog.Entry{}, false
	}
	e := h.entry(config.Info, "drain: "+string(h.drain.Act)+": "+h.drain.Why)
	if h.drain.Act == drain.Resume {
		e.Level = config.Warning
	}
	return e, true
}

// seenOf says what a look showed of a card, as far as a drain is concerned: by the one rule for clean.
func seenOf(r gpu.Reading, s gpu.Snapshot, b finding.Baseline, l finding.Limits) drain.Seen {
	rule := gpu.WatchRule{SlackBytes: l.Report, Expect: map[gpu.ID]gpu.Expected{r.Device.ID: b.Expected(l)}}
	switch curve := settle.JudgeDevice(rule, r.Device, []gpu.Snapshot{s}); curve.State {
	case settle.Clean:
		return drain.Seen{Memory: drain.Clean}
	case settle.Unknown:
		return drain.Seen{Memory: drain.Unknown, Why: curve.Why}
	}
	return drain.Seen{Memory: drain.Dirty, Why: "memory is in use, or somebody is on it"}
}
