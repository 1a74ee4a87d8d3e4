package condition

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Repair is what a health check has to know, besides, before it resets a GPU without being asked.
type Repair struct {
	Limits   record.Limits
	Check    *record.Check // the last one, nil for none
	Runs     []record.Run  // all that are on record
	Drained  time.Time     // when the node was drained for it
	Unread   bool          // there are records that could not be read
	Standing record.Standing
	Test     gpu.Probe      // the last one of the GPU
	Log      *gpu.KernelLog // since the last check, and what it still has from before
}

// RepairRefusals returns all that speaks against a reset that no admin asked for: whatever speaks against any reset,
// doubt that memory is left that no process holds, and each sign of a fault of the hardware, however old.
func (r Reset) RepairRefusals(k Repair) []string {
	then := r
	then.Now = k.Drained // what came back within a day of a reset waits for an admin, however long
	return append(r.Refusals(), given(then.again(), r.unsettled(k), r.fault(k))...)
}

func (r Reset) unsettled(k Repair) string {
	isLeft := func(f record.Finding) bool {
		return f.GPU == r.Card.Device.ID && f.Code.Traits().Memory == catalog.Unlisted && f.Unknown == "" &&
			len(f.Doubts) == 0
	}
	switch c := k.Check; {
	case !r.Idle:
		return "the node is not drained and without jobs"
	case c == nil, c.Stopped, c.Boot != r.Boot, len(c.Rest) > 0, r.Now.Sub(c.Wall).Abs() > 10*time.Minute,
		!slices.ContainsFunc(c.Findings, isLeft):
		return "the last health check does not say for certain that memory is left on it"
	case r.Before.Reading == nil || r.memory(*r.Before.Reading, k.Limits).Holds != record.No:
		return "its memory is free by now, or cannot be judged"
	}
	return ""
}

// fault returns a sign that the GPU's hardware is faulty, or why that is not known.
func (r Reset) fault(k Repair) string {
	var found []record.Finding
	isOther := func(f record.Finding) bool { return f.GPU != r.Card.Device.ID }
	for _, run := range k.Runs {
		for _, e := range run.AllEnds() {
			found = append(found, slices.DeleteFunc(slices.Clone(e.Findings), isOther)...)
		}
	}
	if k.Check != nil {
		found = append(found, k.Check.Findings...)
	}
	now := Input{Cards: []record.Assigned{r.Card}, Now: []gpu.Health{r.Before.Health}}
	if k.Log != nil {
		log := *k.Log
		log.Xids = slices.Concat(log.Before, log.Xids) // what a driver calls over is no proof of sound hardware
		now.Kernel = &log
	}
	found = append(found, Judge(now)...)
	bus := r.Card.Device.BusID
	stands := func(f record.StandingFault) bool { return f.Xid.BusID == bus }
	switch i := slices.IndexFunc(found, r.isAgainst); {
	case i >= 0:
		return fmt.Sprintf("%s is on record: %.100s", found[i].Code, found[i].Observed)
	case slices.ContainsFunc(k.Standing.Faults, stands), k.Standing.Errors[bus] != 0:
		return "an error of its hardware is on record"
	case k.Test.Result.Bad() || k.Test.Result == gpu.ProbeGap:
		return fmt.Sprintf("its last memory test ended with %q", k.Test.Result)
	case k.Log == nil || k.Log.Unknown != "" || k.Log.Lost || k.Standing.Lost || k.Unread:
		return "whether its hardware is well is not known: not all of the kernel log or of the records was read"
	}
	for _, p := range r.Proofs(r.Before, k.Limits, "", record.Yes) { // what is not known now is not known afterwards
		if p.Holds == record.CannotTell {
			return fmt.Sprintf("nor could a reset prove that it is well: %s: %s", p.What, cmp.Or(p.After, "unknown"))
		}
	}
	return ""
}

// isAgainst reports whether a finding may be about faulty hardware of the GPU, or of what all GPUs depend on.
func (r Reset) isAgainst(f record.Finding) bool {
	if f.GPU != "" && f.GPU != r.Card.Device.ID {
		return false
	}
	e, _ := catalog.Lookup(f.Code)
	if x, known := catalog.LookupXid(f.Xid); f.Code == catalog.Xid && known {
		return x.OfGPU()
	}
	return e.Severity != catalog.Note && (e.Scope == catalog.Driver || e.Condition || e.Unusable)
}
