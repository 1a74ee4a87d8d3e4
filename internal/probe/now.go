package probe

import (
	"fmt"
	"slices"

	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/record"
)

// Now tests a GPU that no job can get and that no process is on, and its memory, for an admin. It returns the result in
// words, with what else went wrong, and whether the GPU passed: unknown if it was not tested.
func Now(a *node.Access, card record.Assigned) (text string, passed record.Answer) {
	t := &tester{a: a}
	if why := t.prepare(nil); why != "" {
		return "not tested: " + why, record.CannotTell
	}
	t.rule.Pattern = []gpu.ID{card.Device.ID}
	earlier, more := node.Tests(a)
	t.last = earlier
	o := t.run([]record.Assigned{card})[0]
	seen := judge.Seen{Epoch: node.ReadEpoch(a.Config.Paths)}
	text = summary(card, o)
	for _, f := range slices.Concat(t.faults, more, keep(a, seen, []judge.TestResult{o}, earlier)) {
		text += fmt.Sprintf("; %s: %s", f.Code, f.Observed)
	}
	return text, passedBy(o)
}

func summary(card record.Assigned, o judge.TestResult) (text string) {
	switch o.Result {
	case gpu.ProbeSkipped:
		text = "not tested: " + o.Why
	case gpu.ProbeOK:
		text = fmt.Sprintf("ok, largest block %s of %s free", gpu.Size(o.Largest.Bytes), gpu.Size(o.Free.Bytes))
	default:
		for _, f := range slices.Backward(judge.FoundByTests([]record.Assigned{card}, []judge.TestResult{o})) {
			text = fmt.Sprintf("%s: %s", f.Code, f.Observed) // of the first
		}
	}
	if o.Pattern != nil && o.Result != gpu.ProbeWrong {
		text += "; pattern test: " + o.Pattern.Outcome()
	}
	return text
}

func passedBy(o judge.TestResult) record.Answer {
	switch {
	case o.Result == gpu.ProbeOK && o.Pattern != nil && o.Pattern.Bytes > 0:
		return record.Yes
	case o.Result == gpu.ProbeOK, o.Result == gpu.ProbeSkipped:
		return record.CannotTell
	}
	return record.No
}
