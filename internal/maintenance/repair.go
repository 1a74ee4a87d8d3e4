package maintenance

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/condition"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

// Repaired is what became of a repair. Without a text or an error the GPU is proven well and the node's drain over.
type Repaired struct {
	GPU     record.Assigned // without an id there was nothing to repair
	Refused string          // why the GPU was not touched
	Failed  string          // why it was, and the node has to stay drained
}

// Repair resets the GPU for which alone Bookend has drained the node because memory is left on it that no process
// holds, and ends the drain if the GPU is proven well. It first puts back what a reset that died has changed. It tries
// once: after that the node has another reason, or no drain.
func Repair(a *node.Access, s slurmcmd.Scontrol, say func(any)) (o Repaired, err error) {
	memory, err := a.Store.Drain()
	id, repairable := memory.Repairable(node.ReadEpoch(a.Config.Paths))
	if err != nil || !repairable && memory.Resetting.IsZero() {
		return o, err
	}
	runs, unread := onRecord(a)
	r, err := NewReset(a, s, runs, say)
	if err == nil {
		err = r.Finish()
	}
	begun, over := memory, memory
	begun.Resetting, over.Resetting = memory.Written.Wall, time.Time{}
	switch {
	case err != nil:
		return o, err
	case !repairable: // the drain is another one, or has ended
		return o, a.Store.SwapDrain(memory, over)
	}
	check := cmp.Or(state.LastCheck.Peek(a.Store), &record.Check{Stopped: true})
	o.GPU = lastSeen(check, id)
	r.Facts.Card, r.byCheck = o.GPU, true
	o.Failed, err = r.tried(begun.Resetting)
	if o.Failed != "" {
		return o, err
	}
	o.Refused = r.refused(check, begun.Resetting, unread)
	if o.Refused == "" {
		err = a.Store.SwapDrain(memory, begun)
	}
	if err != nil || o.Refused != "" {
		return o, err
	}
	r.CarryOut()
	failed := r.Report.Unproven()
	switch {
	case r.attempt.GPU == "": // nothing was begun
		o.Refused, err = failed, a.Store.SwapDrain(begun, over)
	case failed != "":
		o.Failed = failed
	default:
		err = a.Store.SwapDrain(begun, begun.Resumed(a.Env.Clock.Wall(), "its GPU was reset, and is proven well"))
	}
	return o, err
}

func lastSeen(check *record.Check, id gpu.ID) record.Assigned {
	for _, c := range check.Cards {
		if c.Device.ID == id {
			return c
		}
	}
	return record.Assigned{Index: -1, Device: gpu.Device{ID: id}}
}

// onRecord returns all runs of the node that are on record, and whether there may be others.
func onRecord(a *node.Access) (runs []record.Run, unread bool) {
	runs, damaged := a.Store.Runs()
	old, more := state.History(a.Config.Paths.Var, a.Job.Node)
	lost, err := a.Store.LostRecord() // after the records: reading them sets damaged ones aside
	return slices.Concat(runs, old), len(damaged)+len(more) > 0 || lost || err != nil
}

// tried returns why an earlier reset for this drain has failed, empty if there was none.
func (r *Reset) tried(drained time.Time) (failed string, err error) {
	is := func(e condition.ResetAttempt) bool {
		return e.ByCheck && e.GPU == r.Facts.Card.Device.ID && e.At.After(drained)
	}
	i := slices.IndexFunc(r.Facts.Earlier, is)
	if i < 0 || !r.isOurs() {
		return "", nil
	}
	was := &r.Facts.Earlier[i]
	was.Failed = cmp.Or(was.Failed, "the reset died; what it had stopped is started again")
	return was.Failed, r.Keep(r.Facts.Earlier)
}

// refused returns what speaks against a repair, empty for nothing.
func (r *Reset) refused(check *record.Check, drained time.Time, unread bool) string {
	a := r.Access
	r.Plan(r.Facts.Card, r.SampleAll())
	standing, errStanding := state.Standing.Load(a.Store)
	tests, errTests := state.Probes.Load(a.Store)
	k := condition.Repair{
		Check: check, Runs: r.Runs, Unread: unread || errStanding != nil || errTests != nil, Drained: drained,
		Limits: record.NewLimits(a.Config.Thresholds.Bytes()), Standing: standing,
		Test: tests[r.Facts.Card.Device.ID].Probe,
	}
	if check.Kernel != nil {
		k.Log, _ = node.KernelLog(a, check.Kernel)
	}
	return append(r.Facts.RepairRefusals(k), "")[0]
}
