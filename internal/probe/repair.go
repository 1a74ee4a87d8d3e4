package probe

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

// Repaired is what became of a repair. Without either text the GPU is proven well, and the node's drain is over.
type Repaired struct {
	Card    record.Assigned // without an id there was nothing to repair
	Refused string          // why the GPU was not touched
	Failed  string          // why it was, and the node has to stay drained
}

// Repair resets the GPU for which alone Bookend has drained the node because memory is left on it that no process
// holds, and ends the drain if the GPU is proven well. It first puts back what a reset that died has changed. It tries
// once: after that the node has another reason, or no drain.
func Repair(a *node.Access, s slurmcmd.Scontrol, say func(any)) (o Repaired, err error) {
	memory, err := a.Store.Drain()
	id, is := memory.Repairable(node.ReadEpoch(a.Config.Paths).Boot)
	if err != nil || !is && memory.Resetting.IsZero() {
		return o, err
	}
	runs, unread := a.Store.Runs()
	old, more := state.History(a.Config.Paths.Var, a.Job.Node)
	lost, unsure := a.Store.LostRecord()
	r, err := NewReset(a, s, slices.Concat(runs, old), say)
	if err == nil {
		err = r.Finish()
	}
	begun, over := memory, memory
	over.Resetting = time.Time{}
	if err == nil && !is { // the drain is another one, or has ended
		err = a.Store.SwapDrain(memory, over)
	}
	if err != nil || !is {
		return o, err
	}
	check := state.LastCheck.Peek(a.Store)
	o.Card = record.Assigned{Index: -1, Device: gpu.Device{ID: id}}
	for _, c := range cmp.Or(check, &record.Check{}).Cards {
		if c.Device.ID == id {
			o.Card = c
		}
	}
	tried := func(a condition.ResetAttempt) bool {
		return a.ByCheck && a.GPU == id && a.At.After(memory.Written.Wall)
	}
	r.Facts.Card = o.Card
	if i := slices.IndexFunc(r.Facts.Earlier, tried); i >= 0 && r.isOurs() {
		o.Failed = cmp.Or(r.Facts.Earlier[i].Failed, "the reset died; what it had stopped is started again")
		r.Facts.Earlier[i].Failed = o.Failed
		return o, r.Keep(r.Facts.Earlier)
	}
	r.byCheck = true
	r.Plan(o.Card, r.Look())
	refused := r.Facts.RepairRefusals(r.known(check, len(unread)+len(more) > 0 || lost || unsure != nil))
	if len(refused) > 0 {
		o.Refused = refused[0]
		return o, nil
	}
	begun.Resetting = memory.Written.Wall
	if err = a.Store.SwapDrain(memory, begun); err != nil {
		return o, err
	}
	r.CarryOut()
	o.Failed = r.Report.Unproven()
	if o.Failed == "" {
		err = a.Store.SwapDrain(begun, begun.Resumed(a.Env.Clock.Wall(), "its GPU was reset, and is proven well"))
	}
	return o, err
}

// known reads what speaks against a repair.
func (r *Reset) known(check *record.Check, unread bool) condition.Repair {
	a := r.Access
	standing, errStanding := state.Standing.Load(a.Store)
	tests, errTests := state.Probes.Load(a.Store)
	k := condition.Repair{
		Check: check, Runs: r.Runs, Unread: unread || errStanding != nil || errTests != nil,
		Limits: record.NewLimits(a.Config.Thresholds.Bytes()), Standing: standing,
		Test: tests[r.Facts.Card.Device.ID].Probe,
	}
	if check != nil && check.Kernel != nil {
		k.Log, _ = node.KernelLog(a, check.Kernel)
	}
	return k
}
